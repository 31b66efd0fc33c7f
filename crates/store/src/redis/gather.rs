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
//! [`pace`]: super::pace

use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::UnixMicros;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::{RedisBatch, RedisRequest, ScriptReply};
use super::hints::KeyHints;
use super::lanes::{
    Alone, BatchReply, LaneKey, Lanes, MAX_TOGETHER, ReplyResult, WaitingRequest, reply_to_all,
};
use super::pace::{KeyPace, PaceStep};
use super::script::Scripts;
use super::servers::Servers;
use super::servers::node::ScriptCall;
use super::trouble::Trouble;
use crate::act::ScriptAct;

/// Maximum number of requests that wait or are being decided; further ones are refused.
const MAX_PRESENT: usize = 16_384;

/// Collects requests into batches, each decided by one call.
#[derive(Debug)]
pub(super) struct Gather {
    servers: Arc<Servers>,
    scripts: Arc<Scripts>,
    hints: Arc<KeyHints>,
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
    ) -> Arc<Self> {
        Arc::new(Self {
            servers,
            scripts,
            hints,
            queue: Mutex::default(),
        })
    }

    /// Decides a request in a call of its own or with others. All of its limits must have twins.
    /// `now` is used for its pace only.
    pub(super) async fn ask(
        self: &Arc<Self>,
        ask: RedisRequest<ScriptAct>,
        slot: u16,
        given: Option<UnixMicros>,
        now: Instant,
    ) -> Result<BatchReply, Trouble> {
        let (answer, answered) = oneshot::channel();
        let home = Handle::current();
        let waiting = WaitingRequest { ask, answer, home };
        let way = LaneKey { slot, given };
        self.hold(|queue| {
            if queue.present >= MAX_PRESENT {
                let why = format!("{MAX_PRESENT} requests already wait for the store");
                return Err(Trouble::Absent(why));
            }
            queue.present += 1;
            // If callers give the time, requests of different times cannot share a call.
            match waiting.key() {
                Some(key) if given.is_none() => {
                    let next = queue.pace.arrives(&key, waiting, MAX_TOGETHER, now);
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
            // Before the answers: a caller that then asks again at once is not a concurrent one.
            let aboard = std::mem::take(&mut self.aboard);
            self.gather
                .hold(|queue| self.gather.leave(queue, self.way, aboard));
            reply_to_all(group.into_iter().zip(replies));
        }
    }

    /// Returns the next batch; `None` if the queue is empty, which ends the worker.
    fn next(&mut self) -> Option<Vec<WaitingRequest>> {
        let way = self.way;
        let next = self.gather.hold(|queue| {
            let (group, gone) = queue.lanes.board(way);
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
        if way.given.is_some() {
            return; // callers give the time: there is no pace
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

    /// Decides a batch in one call; makes no call if the batch is empty.
    async fn decide(
        &self,
        LaneKey { slot, given }: LaneKey,
        group: &[WaitingRequest],
    ) -> Result<Vec<ReplyResult>, Trouble> {
        if group.is_empty() {
            return Ok(Vec::new());
        }
        let batch = RedisBatch::of(group.iter().map(|waiting| &waiting.ask));
        let losses = self.hints.losses.so_far();
        let hints = given.map_or_else(|| self.hints.of(&batch), |_| None);
        let Some((script, arguments)) = batch.script(&self.scripts, given, hints) else {
            return Err(Trouble::Refused("a limit has no Lua form".into()));
        };
        let names = batch.names();
        let call = ScriptCall::new(&script, &names, &arguments);
        let answer = self.servers.run(slot, call).await?;
        let found = ScriptReply::read(answer, names.len())?;
        let (each, after) = batch.settle(&found);
        if given.is_none() {
            self.hints.note(&batch, &found, &after, losses);
        }
        let reply = |answer: Result<_, _>| answer.map(|decisions| (decisions, found.now));
        Ok(each.into_iter().map(reply).collect())
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
                act: ScriptAct::Decide(Lend::Unnamed),
                items: smallvec![store.item(charge)],
            };
            store.gather.ask(ask, 0, None, hot)
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
