//! Gather: requests that wait together go in one call.
//!
//! ```text
//!   requests    a  b c   d e f g    h           while FLIGHTS calls are under way, those
//!               |  |     |                      that come wait; when one lands, all that
//!   calls       a--+ b c----+ d e f g---+ h--   wait for the same slot leave together
//! ```
//!
//! Nobody waits for company: a request that finds a place leaves at once. Under load calls
//! carry many requests, and requests for one key share its read and its write: the more
//! there are, the less each costs. A request whose caller has gone is not sent.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use ratekeeper_core::UnixMicros;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::batch::{Ask, Batch, Found};
use super::limits::Prepared;
use super::node::Call;
use super::script::Scripts;
use super::servers::Servers;
use super::settle::Outcome;
use super::trouble::Trouble;

/// Calls under way at a time: with two, one is decided while another travels.
const FLIGHTS: usize = 2;
/// Requests that leave together: bounds how long the store is busy with one call.
const MOST_TOGETHER: usize = 128;
/// Requests that wait at most; further ones are turned away.
const MOST_WAITING: usize = 16_384;

/// Where requests wait for their call.
#[derive(Debug)]
pub(super) struct Gather {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    servers: Arc<Servers>,
    scripts: Arc<Scripts>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    flying: usize,
}

/// A request and who waits for it.
#[derive(Debug)]
struct Waiting {
    ask: Ask,
    slot: u16,
    told: Option<UnixMicros>,
    answer: oneshot::Sender<Result<Answer, Trouble>>,
}

impl Waiting {
    fn tell(self, result: Result<(Outcome, UnixMicros), Trouble>) {
        let ask = self.ask;
        let answer = result.map(|(outcome, now)| Answer { ask, outcome, now });
        let _ = self.answer.send(answer); // or the caller has gone
    }
}

/// What a request is answered, and when.
#[derive(Debug)]
pub(super) struct Answer {
    /// The request itself.
    pub(super) ask: Ask,
    pub(super) outcome: Outcome,
    pub(super) now: UnixMicros,
}

impl Gather {
    pub(super) fn new(servers: Arc<Servers>, scripts: Arc<Scripts>) -> Self {
        Self {
            inner: Arc::new(Inner {
                servers,
                scripts,
                queue: Mutex::default(),
            }),
        }
    }

    /// Decides a request whose limits all have twins, in a call of its own or with others.
    pub(super) async fn ask(
        &self,
        ask: Ask,
        slot: u16,
        told: Option<UnixMicros>,
    ) -> Result<Answer, Trouble> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting {
            ask,
            slot,
            told,
            answer,
        };
        let takes_off = {
            let mut queue = self.inner.queue.lock();
            if queue.waiting.len() >= MOST_WAITING {
                let why = format!("{MOST_WAITING} requests wait for the store");
                return Err(Trouble::Absent(why));
            }
            queue.waiting.push_back(waiting);
            let room = queue.flying < FLIGHTS;
            queue.flying += usize::from(room);
            room
        };
        if takes_off {
            let flight = Flight(Arc::clone(&self.inner));
            tokio::spawn(async move { flight.carry_all().await });
        }
        let lost = || Trouble::Lost("the call was given up".into());
        answered.await.map_err(|_| lost())?
    }
}

/// A place among the calls under way; given back when dropped, whatever happens.
struct Flight(Arc<Inner>);

impl Drop for Flight {
    fn drop(&mut self) {
        self.0.queue.lock().flying -= 1;
    }
}

impl Flight {
    /// Carries what waits until nothing does.
    async fn carry_all(self) {
        loop {
            let groups = self.0.next();
            if groups.is_empty() {
                return;
            }
            let mut calls = JoinSet::new();
            for group in groups {
                let inner = Arc::clone(&self.0);
                calls.spawn(async move { inner.carry(group).await });
            }
            while calls.join_next().await.is_some() {}
        }
    }
}

impl Inner {
    /// What leaves next: requests of one slot and moment each.
    fn next(&self) -> Vec<Vec<Waiting>> {
        let mut groups: HashMap<_, Group> = HashMap::new();
        let mut queue = self.queue.lock();
        for _ in 0..MOST_TOGETHER {
            let Some(waiting) = queue.waiting.pop_front() else {
                break;
            };
            if waiting.answer.is_closed() {
                continue;
            }
            let group = groups.entry((waiting.slot, waiting.told)).or_default();
            if !group.takes(&waiting.ask) {
                // Behind those of its kind that have older numbers; it leaves next.
                queue.waiting.push_front(waiting);
                break;
            }
            group.waiting.push(waiting);
        }
        let groups = groups.into_values().map(|group| group.waiting);
        groups.filter(|waiting| !waiting.is_empty()).collect()
    }

    async fn carry(&self, mut group: Vec<Waiting>) {
        match self.decide(&group).await {
            Ok((outcomes, now)) => {
                for (waiting, outcome) in group.into_iter().zip(outcomes) {
                    waiting.tell(Ok((outcome, now)));
                }
            }
            // The call did nothing, because of a key of one of them: the others go alone.
            Err(Trouble::Foreign(_)) if group.len() > 1 => {
                for waiting in group.drain(..) {
                    let alone = self.decide(std::slice::from_ref(&waiting)).await;
                    let outcome = alone.and_then(|(mut outcomes, now)| {
                        let outcome = outcomes.pop().ok_or_else(nobody)?;
                        Ok((outcome, now))
                    });
                    waiting.tell(outcome);
                }
            }
            Err(trouble) => {
                for waiting in group {
                    waiting.tell(Err(trouble.clone()));
                }
            }
        }
    }

    async fn decide(&self, group: &[Waiting]) -> Result<(Vec<Outcome>, UnixMicros), Trouble> {
        let batch = Batch::of(group.iter().map(|waiting| &waiting.ask));
        let (slot, told) = group
            .first()
            .map_or((0, None), |first| (first.slot, first.told));
        let Some((script, arguments)) = batch.script(&self.scripts, told) else {
            return Err(Trouble::Refused("a limit has no twin".into()));
        };
        let call = Call {
            script: &script,
            keys: &batch.names(),
            arguments: &arguments,
        };
        let answer = self.servers.run(slot, call).await?;
        let found = Found::read(answer, call.keys.len())?;
        Ok((batch.settle(&found)?, found.now))
    }
}

/// A call answers each of its requests.
fn nobody() -> Trouble {
    Trouble::Refused("a script answered nobody".into())
}

/// Requests that leave in one call.
#[derive(Default)]
struct Group {
    waiting: Vec<Waiting>,
    limits: SmallVec<[Arc<Prepared>; 4]>,
}

impl Group {
    /// Whether the request may go too: a call decides a limit by one set of numbers.
    fn takes(&mut self, ask: &Ask) -> bool {
        for item in &ask.items {
            let same = |known: &Arc<Prepared>| Arc::ptr_eq(known, &item.limit);
            if self.limits.iter().any(same) {
                continue;
            }
            let of_it = |known: &Arc<Prepared>| known.label.limit == item.limit.label.limit;
            if self.limits.iter().any(of_it) {
                return false;
            }
            self.limits.push(Arc::clone(&item.limit));
        }
        true
    }
}
