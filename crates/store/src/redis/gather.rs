//! Gather: requests that wait together go in one call.
//!
//! ```text
//!   requests    a  b c   d e f g    h           while FLIGHTS calls of a slot are under way,
//!               |  |     |                      those that come wait; when one lands, all
//!   calls       a--+ b c----+ d e f g---+ h--   that wait leave together
//! ```
//!
//! Nobody waits for company: a request that finds a place leaves at once. Under load calls
//! carry many requests, and requests for one key share its read and its write: the more
//! there are, the less each costs. A request whose caller has gone is not sent. A key that is
//! asked for more often than it is worth a call waits a moment for company: see [`pace`].
//!
//! [`pace`]: super::pace

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use ratekeeper_core::UnixMicros;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::{Ask, Batch, Found};
use super::hints::Hints;
use super::limits::Prepared;
use super::node::Call;
use super::pace::{Next, Pace};
use super::script::Scripts;
use super::servers::Servers;
use super::settle::Outcome;
use super::trouble::Trouble;

/// Calls of a slot under way at a time: with two, one is decided while another travels.
const FLIGHTS: usize = 2;
/// Requests that leave together: bounds how long the store is busy with one call.
const MOST_TOGETHER: usize = 128;
/// Requests that wait or are under way at most; further ones are turned away.
const MOST_PRESENT: usize = 16_384;

/// Where requests wait for their call.
#[derive(Debug)]
pub(super) struct Gather {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    servers: Arc<Servers>,
    scripts: Arc<Scripts>,
    hints: Arc<Hints>,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Only those with somebody in them.
    lanes: HashMap<Way, Lane, RandomState>,
    pace: Pace<Waiting>,
    /// In lanes, held back, and under way.
    present: usize,
}

/// What requests have in common that may leave together: slot and moment.
type Way = (u16, Option<UnixMicros>);

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Waiting>,
    flying: usize,
}

/// What a request is answered, and when.
type Told = Result<(Outcome, UnixMicros), Trouble>;

/// A request and who waits for it.
#[derive(Debug)]
struct Waiting {
    ask: Ask,
    answer: oneshot::Sender<Result<Answer, Trouble>>,
}

impl Waiting {
    fn tell(self, told: Told) {
        let ask = self.ask;
        let answer = told.map(|(outcome, now)| Answer { ask, outcome, now });
        let _ = self.answer.send(answer); // or the caller has gone
    }

    /// The key, if the request is about one only.
    fn key(&self) -> Option<Box<[u8]>> {
        match &*self.ask.items {
            [item] => Some(item.name.clone()),
            _ => None,
        }
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
    pub(super) fn new(servers: Arc<Servers>, (scripts, hints): (Arc<Scripts>, Arc<Hints>)) -> Self {
        Self {
            inner: Arc::new(Inner {
                servers,
                scripts,
                hints,
                queue: Mutex::default(),
            }),
        }
    }

    /// Decides a request whose limits all have twins, in a call of its own or with others.
    /// `now` is for its pace only.
    pub(super) async fn ask(
        &self,
        ask: Ask,
        slot: u16,
        told: Option<UnixMicros>,
        now: Instant,
    ) -> Result<Answer, Trouble> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { ask, answer };
        let way = (slot, told);
        {
            let mut queue = self.inner.queue.lock();
            if queue.present >= MOST_PRESENT {
                let why = format!("{MOST_PRESENT} requests wait for the store");
                return Err(Trouble::Absent(why));
            }
            queue.present += 1;
            // Where the moment is told, requests of different moments cannot share a call.
            match waiting.key() {
                Some(key) if told.is_none() => {
                    let next = queue.pace.arrives(&key, waiting, MOST_TOGETHER, now);
                    self.inner.go_on(&mut queue, way, &key, next);
                }
                _ => self.inner.take_off(&mut queue, way, [waiting]),
            }
        }
        let lost = || Trouble::Lost("the call was given up".into());
        answered.await.map_err(|_| lost())?
    }
}

impl Inner {
    /// Lets requests go, each lane with its flights.
    fn take_off(
        self: &Arc<Self>,
        queue: &mut Queue,
        way: Way,
        requests: impl IntoIterator<Item = Waiting>,
    ) {
        let lane = queue.lanes.entry(way).or_default();
        lane.waiting.extend(requests);
        if lane.flying < FLIGHTS {
            lane.flying += 1;
            let flight = Flight {
                inner: Arc::clone(self),
                way,
                has_landed: false,
            };
            tokio::spawn(flight.carry_all());
        }
    }

    /// Does what the pace of a key says.
    fn go_on(self: &Arc<Self>, queue: &mut Queue, way: Way, key: &[u8], next: Next<Waiting>) {
        if !next.go.is_empty() {
            self.take_off(queue, way, next.go);
        }
        if let Some(at) = next.wake {
            let (inner, key) = (Arc::clone(self), Box::from(key));
            tokio::spawn(async move { inner.wake(way, key, at).await });
        }
    }

    /// Lets those go who have been held back until then.
    async fn wake(self: Arc<Self>, way: Way, key: Box<[u8]>, at: Instant) {
        tokio::time::sleep_until(at).await;
        let mut queue = self.queue.lock();
        let next = queue.pace.wakes(&key, Instant::now());
        self.go_on(&mut queue, way, &key, next);
    }
}

/// A place among the calls under way; given back when dropped, whatever happens.
struct Flight {
    inner: Arc<Inner>,
    way: Way,
    has_landed: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.has_landed {
            land(&mut self.inner.queue.lock(), self.way);
        }
    }
}

/// A flight is over.
fn land(queue: &mut Queue, way: Way) {
    if let Some(lane) = queue.lanes.get_mut(&way) {
        lane.flying = lane.flying.saturating_sub(1);
        if lane.flying == 0 && lane.waiting.is_empty() {
            queue.lanes.remove(&way);
        }
    }
}

impl Flight {
    /// Carries what waits until nothing does.
    async fn carry_all(mut self) {
        while let Some(group) = self.next() {
            let passengers = Passengers {
                inner: &self.inner,
                way: self.way,
                keys: group.iter().map(Waiting::key).collect(),
            };
            let told = self.inner.carry(self.way, &group).await;
            // Before they are told: who asks again at once has not been company.
            drop(passengers);
            for (waiting, told) in group.into_iter().zip(told) {
                waiting.tell(told);
            }
        }
    }

    /// What leaves next; if nothing does, the flight is over.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let mut queue = self.inner.queue.lock();
        let (mut group, mut gone) = (Group::default(), Vec::new());
        if let Some(lane) = queue.lanes.get_mut(&self.way) {
            while group.waiting.len() < MOST_TOGETHER
                && let Some(waiting) = lane.waiting.pop_front()
            {
                if waiting.answer.is_closed() {
                    gone.push(waiting.key());
                } else if group.takes(&waiting.ask) {
                    group.waiting.push(waiting);
                } else {
                    // It has other numbers than those before it; it leaves next.
                    lane.waiting.push_front(waiting);
                    break;
                }
            }
        }
        self.inner.leave(&mut queue, self.way, gone);
        if group.waiting.is_empty() && is_empty(&queue, self.way) {
            self.has_landed = true;
            land(&mut queue, self.way);
            return None;
        }
        Some(group.waiting)
    }
}

fn is_empty(queue: &Queue, way: Way) -> bool {
    let lane = queue.lanes.get(&way);
    lane.is_none_or(|lane| lane.waiting.is_empty())
}

/// Requests of a call; when dropped, they have been answered, or never will be.
struct Passengers<'a> {
    inner: &'a Arc<Inner>,
    way: Way,
    keys: Vec<Option<Box<[u8]>>>,
}

impl Drop for Passengers<'_> {
    fn drop(&mut self) {
        let mut queue = self.inner.queue.lock();
        let keys = std::mem::take(&mut self.keys);
        self.inner.leave(&mut queue, self.way, keys);
    }
}

impl Inner {
    /// Requests are present no more; those that they held back may go.
    fn leave(self: &Arc<Self>, queue: &mut Queue, way: Way, keys: Vec<Option<Box<[u8]>>>) {
        if keys.is_empty() {
            return;
        }
        queue.present = queue.present.saturating_sub(keys.len());
        if way.1.is_some() {
            return; // where the moment is told there is no pace
        }
        let now = Instant::now();
        for key in keys.into_iter().flatten() {
            let next = queue.pace.lands(&key, now);
            self.go_on(queue, way, &key, next);
        }
    }

    /// What each request of a call is answered.
    async fn carry(&self, way: Way, group: &[Waiting]) -> Vec<Told> {
        match self.decide(way, group).await {
            Ok((outcomes, now)) => {
                let told = outcomes.into_iter().map(|outcome| Ok((outcome, now)));
                told.collect()
            }
            // The call did nothing, because of a key of one of them: the others go alone.
            Err(Trouble::Foreign(_)) if group.len() > 1 => {
                let mut told = Vec::with_capacity(group.len());
                for waiting in group {
                    let alone = self.decide(way, std::slice::from_ref(waiting)).await;
                    told.push(alone.and_then(|(mut outcomes, now)| {
                        let outcome = outcomes.pop().ok_or_else(nobody)?;
                        Ok((outcome, now))
                    }));
                }
                told
            }
            Err(trouble) => group.iter().map(|_| Err(trouble.clone())).collect(),
        }
    }

    /// Makes the call; none for none.
    async fn decide(
        &self,
        (slot, told): Way,
        group: &[Waiting],
    ) -> Result<(Vec<Outcome>, UnixMicros), Trouble> {
        if group.is_empty() {
            return Ok((Vec::new(), UnixMicros::default()));
        }
        let batch = Batch::of(group.iter().map(|waiting| &waiting.ask));
        let losses = self.hints.losses();
        let hints = told.map_or_else(|| self.hints.of(&batch), |_| None);
        let Some((script, arguments)) = batch.script(&self.scripts, told, hints) else {
            return Err(Trouble::Refused("a limit has no twin".into()));
        };
        let call = Call {
            script: &script,
            keys: &batch.names(),
            arguments: &arguments,
        };
        let answer = self.servers.run(slot, call).await?;
        let found = Found::read(answer, call.keys.len())?;
        let (outcomes, after) = batch.settle(&found)?;
        if told.is_none() {
            self.hints.note(&batch, &found, &after, losses);
        }
        Ok((outcomes, found.now))
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
