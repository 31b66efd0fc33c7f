//! Gather: requests that wait at the same time are sent in one call.
//!
//! ```text
//!   requests    a  b c   d e f g    h           while FLIGHTS calls of a slot are under way,
//!               |  |     |                      those that come wait; when one lands, all
//!   calls       a--+ b c----+ d e f g---+ h--   that wait leave together
//! ```
//!
//! No request waits to fill a batch: if a worker is free it is sent at once. Under load, batches
//! are large and requests for one key share its read and its write, so each costs less. A
//! request is not sent if its caller has gone. Requests for a hot key are delayed for a moment,
//! so that they share calls: see [`pace`].
//!
//! An exchange is shared in the same way, by the requests of a key. One that loses its race with
//! another process goes again, with those that have come meanwhile. A request that has waited
//! too long is refused: the store is in use, so a decision without it would admit too much.
//!
//! [`pace`]: super::pace

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::RedisRequest;
use super::hints::KeyHints;
use super::lanes::{
    Alone, BatchReply, LaneKey, Lanes, MAX_TOGETHER, ReplyResult, WaitingRequest, reply_to_all,
};
use super::pace::{KeyPace, PaceStep};
use super::script::Scripts;
use super::servers::Servers;
use super::trouble::Trouble;

/// Maximum number of requests that wait or are being decided; further ones are refused.
const MAX_PRESENT: usize = 16_384;
/// Races lost in a row after which the next is delayed: two processes that race at one pace may go on
/// as they began, where one swaps and the other has just loaded.
const UNLUCKY: u32 = 8;
/// Maximum delay: several races take as long.
const MAX_PAUSE_MICROS: u64 = 4_000;

/// Collects requests into batches, each decided by one call.
#[derive(Debug)]
pub(super) struct Gather {
    pub(super) servers: Arc<Servers>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) hints: Arc<KeyHints>,
    /// How long requests wait for an exchange.
    wait: Duration,
    hasher: RandomState,
    queue: Mutex<BatchQueue>,
}

#[derive(Debug, Default)]
struct BatchQueue {
    lanes: Lanes,
    pace: KeyPace<WaitingRequest>,
    /// Number of requests that are queued, held back, or being decided.
    present: usize,
    /// Tasks to start; empty unless the lock is held: see [`Gather::hold`].
    errands: SmallVec<[Errand; 2]>,
}

/// A task to start.
#[derive(Debug)]
enum Errand {
    Carry(Flight),
    Wake(WakeUp),
}

impl Gather {
    pub(super) fn new(
        servers: Arc<Servers>,
        scripts: Arc<Scripts>,
        hints: Arc<KeyHints>,
        wait: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            servers,
            scripts,
            hints,
            wait,
            hasher: RandomState::default(),
            queue: Mutex::default(),
        })
    }

    /// Decides a request in a call of its own or with others; by the script if `way` says so, which
    /// must support it.
    pub(super) async fn ask(
        self: &Arc<Self>,
        ask: RedisRequest,
        way: LaneKey,
        since: Instant,
    ) -> Result<BatchReply, Trouble> {
        let (answer, answered) = oneshot::channel();
        let home = Handle::current();
        let waiting = WaitingRequest {
            ask,
            since,
            answer,
            home,
        };
        self.hold(|queue| {
            if queue.present >= MAX_PRESENT {
                let why = format!("{MAX_PRESENT} requests already wait for the store");
                return Err(Trouble::Absent(why));
            }
            queue.present += 1;
            match waiting.key() {
                Some(key) if way.has_pace() => {
                    let next = queue.pace.arrives(&key, waiting, MAX_TOGETHER, since);
                    self.go_on(queue, way, &key, next);
                }
                _ => self.take_off(queue, way, [waiting]),
            }
            Ok(())
        })?;
        let lost = || Trouble::Lost("the call ended without a reply".into());
        answered.await.map_err(|_| lost())
    }

    /// Changes the queue, and starts the resulting tasks after unlocking it, because a runtime
    /// that shuts down drops a new task at once, and that drop locks the queue.
    fn hold<T>(self: &Arc<Self>, change: impl FnOnce(&mut BatchQueue) -> T) -> T {
        let (changed, errands) = {
            let mut queue = self.queue.lock();
            let changed = change(&mut queue);
            (changed, std::mem::take(&mut queue.errands))
        };
        for errand in errands {
            match errand {
                Errand::Carry(flight) => drop(flight.home.clone().spawn(flight.carry_all())),
                Errand::Wake(wake_up) => {
                    // Without a runtime it is dropped, and wakes them now.
                    if let Ok(home) = Handle::try_current() {
                        drop(home.spawn(async move {
                            tokio::time::sleep_until(wake_up.at).await;
                            drop(wake_up);
                        }));
                    }
                }
            }
        }
        changed
    }

    /// Queues requests, and starts another worker for their queue unless it has enough.
    fn take_off(
        self: &Arc<Self>,
        queue: &mut BatchQueue,
        way: LaneKey,
        requests: impl IntoIterator<Item = WaitingRequest>,
    ) {
        if let Some(home) = queue.lanes.enter(way, requests) {
            // Not the caller's, which may be idle by now; there is none while a runtime ends.
            let home = Handle::try_current().unwrap_or(home);
            self.start(queue, way, home);
        }
    }

    fn start(self: &Arc<Self>, queue: &mut BatchQueue, way: LaneKey, home: Handle) {
        queue.errands.push(Errand::Carry(Flight {
            gather: Arc::clone(self),
            way,
            home,
            aboard: Vec::new(),
            lost: 0,
            is_served: false,
            has_landed: false,
        }));
    }

    /// Performs the next step of a key's pace.
    fn go_on(
        self: &Arc<Self>,
        queue: &mut BatchQueue,
        way: LaneKey,
        key: &[u8],
        next: PaceStep<WaitingRequest>,
    ) {
        if !next.go.is_empty() {
            self.take_off(queue, way, next.go);
        }
        if let Some(at) = next.wake {
            queue.errands.push(Errand::Wake(WakeUp {
                gather: Arc::clone(self),
                way,
                key: key.into(),
                at,
            }));
        }
    }
}

/// Releases the requests of a key that are held back, when it is dropped: at its time, or before
/// if its runtime ends.
#[derive(Debug)]
struct WakeUp {
    gather: Arc<Gather>,
    way: LaneKey,
    key: Box<[u8]>,
    at: Instant,
}

impl Drop for WakeUp {
    fn drop(&mut self) {
        let now = Instant::now().max(self.at);
        self.gather.hold(|queue| {
            let next = queue.pace.wakes(&self.key, now);
            self.gather.go_on(queue, self.way, &self.key, next);
        });
    }
}

/// A worker of a queue. If its runtime ends, another one takes its place for the requests of others.
#[derive(Debug)]
struct Flight {
    gather: Arc<Gather>,
    way: LaneKey,
    home: Handle,
    /// Keys of the requests that are being decided.
    aboard: Vec<Alone>,
    /// Number of races lost in a row.
    lost: u32,
    /// True if the server answered the last call.
    is_served: bool,
    has_landed: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let (gather, way) = (&self.gather, self.way);
        if !self.has_landed {
            gather.hold(|queue| {
                let mut gone = queue.lanes.strand(way, &self.home);
                gone.append(&mut self.aboard);
                queue.lanes.land(way);
                gather.leave(queue, way, gone);
                if !queue.lanes.is_empty(way)
                    && let Some(home) = queue.lanes.enter(way, [])
                {
                    gather.start(queue, way, home);
                }
            });
        }
    }
}

impl Flight {
    /// Decides batch after batch until the queue is empty.
    async fn carry_all(mut self) {
        while let Some(group) = self.next() {
            self.aboard = group.iter().map(WaitingRequest::key).collect();
            let replies = self.gather.carry(self.way, &group).await;
            self.is_served = matches!(replies[..], [Ok(_) | Err(Trouble::Raced), ..]);
            let replies = group.into_iter().zip(replies);
            let (raced, done): (Vec<_>, Vec<_>) =
                replies.partition(|(_, reply)| matches!(reply, Err(Trouble::Raced)));
            self.lost = if raced.is_empty() { 0 } else { self.lost + 1 };
            // Before the answers: a caller that then asks again at once is not a concurrent one.
            self.aboard.clear();
            self.gather.hold(|queue| {
                let done = done.iter().map(|(waiting, _)| waiting.key()).collect();
                self.gather.leave(queue, self.way, done);
                queue.lanes.again(self.way, raced);
            });
            reply_to_all(done);
            if self.lost >= UNLUCKY {
                let random = self.gather.hasher.hash_one(Instant::now());
                tokio::time::sleep(Duration::from_micros(random % MAX_PAUSE_MICROS)).await;
            }
        }
    }

    /// Returns the next batch; `None` if the queue is empty, which ends the worker.
    fn next(&mut self) -> Option<Vec<WaitingRequest>> {
        let way = self.way;
        let waits = self.is_served && way.exchanged.is_some();
        let wait = waits.then_some(self.gather.wait);
        let next = self.gather.hold(|queue| {
            let (group, gone) = queue.lanes.board(way, wait);
            self.gather.leave(queue, way, gone);
            if group.is_empty() && queue.lanes.is_empty(way) {
                queue.lanes.land(way);
                return None;
            }
            Some(group)
        });
        self.has_landed = next.is_none();
        next
    }
}

impl Gather {
    /// Counts requests out; those that were held back because of them may be sent.
    fn leave(self: &Arc<Self>, queue: &mut BatchQueue, way: LaneKey, keys: Vec<Alone>) {
        if keys.is_empty() {
            return;
        }
        queue.present = queue.present.saturating_sub(keys.len());
        if !way.has_pace() {
            return;
        }
        let now = Instant::now();
        for key in keys.into_iter().flatten() {
            let next = queue.pace.lands(&key, now);
            self.go_on(queue, way, &key, next);
        }
    }

    /// Decides a batch, and returns the answer to each of its requests.
    async fn carry(&self, way: LaneKey, group: &[WaitingRequest]) -> Vec<ReplyResult> {
        match self.decide(way, group).await {
            Ok(each) => each,
            // The call did nothing, because of a key of one request: each is sent alone.
            Err(Trouble::Foreign(_)) if group.len() > 1 => {
                let mut replies = Vec::with_capacity(group.len());
                for waiting in group {
                    let alone = self.decide(way, std::slice::from_ref(waiting)).await;
                    replies.push(alone.and_then(|mut each| each.pop().unwrap_or_else(unanswered)));
                }
                replies
            }
            Err(trouble) => group.iter().map(|_| Err(trouble.clone())).collect(),
        }
    }
}

/// The error for a call that did not answer each of its requests.
fn unanswered() -> ReplyResult {
    Err(Trouble::Refused("the script's reply has no result".into()))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use ratekeeper_core::{Charge, Gcra, Key, Lend, Limit, LimitId, Permits};
    use smallvec::smallvec;

    use super::super::{RedisConfig, RedisStore};
    use super::*;
    use crate::ActKind;

    /// A runtime that ends before it wakes the requests of a key leaves them to others.
    #[test]
    fn a_wake_up_survives_its_runtime() {
        let builder = || {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
        };
        let [one, other] = [builder().unwrap(), builder().unwrap()];
        let store = RedisStore::new(RedisConfig::new("redis://127.0.0.1:1")).unwrap();
        let bucket = Gcra::token_bucket("3/1h".parse().unwrap()).unwrap();
        let limit = Limit::new("hot", LimitId::new(0), bucket);
        let charge = Charge::enforced(&limit, Key::ALL, Permits::ONE);
        // The key has had so many calls that its next one is not due when this one ends.
        let hot = Instant::now() + Duration::from_secs(3_600);
        let ask = || {
            let ask = RedisRequest {
                act: ActKind::Decide(Lend::Unnamed),
                items: smallvec![store.item(charge)],
            };
            store.gather.ask(ask, LaneKey::default(), hot)
        };
        other.block_on(async {
            tokio::select! {
                biased;
                _ = ask() => panic!("an answer without a call"),
                () = std::future::ready(()) => {}
            }
        });
        let mut held = Box::pin(ask());
        one.block_on(poll_fn(|context| {
            assert!(held.as_mut().poll(context).is_pending());
            Poll::Ready(())
        }));
        drop(other);
        let answered = one.block_on(async {
            let patience = Duration::from_secs(10);
            tokio::time::timeout(patience, held).await
        });
        assert!(answered.is_ok(), "it is never sent");
    }
}
