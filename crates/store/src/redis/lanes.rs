//! Lanes: queues of requests, by slot and time, and how their requests share calls.
//!
//! ```text
//!   slot 7      a b c d    two calls under way: they wait
//!   slot 9      e f g' h   none yet: e and f leave together; g' has other numbers, and
//!                          leaves next
//!   slot 9, ada  i j k     exchanges of a key: one under way, they wait
//! ```

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use foldhash::quality::RandomState;
use ratekeeper_core::UnixMicros;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::batch::RedisRequest;
use super::limits::Prepared;
use super::settle::Item;
use super::trouble::Trouble;
use crate::act::AnyAnswer;

/// Workers of a queue: with two, one call is decided while another is on the network.
const FLIGHTS: usize = 2;
/// Maximum size of a batch, to bound how long the store is busy with one call.
pub(super) const MAX_TOGETHER: usize = 128;

/// Key of a queue, shared by the requests of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct LaneKey {
    pub(super) slot: u16,
    /// The time, if callers give it.
    pub(super) given: Option<UnixMicros>,
    /// For exchanges: the hash of a key that they share. Those of another key do not wait for them.
    pub(super) exchanged: Option<u64>,
}

impl LaneKey {
    /// Returns true if its requests are held back for a moment. If callers give the time, requests of
    /// different times cannot share a call; exchanges wait for one another anyway.
    pub(super) const fn has_pace(self) -> bool {
        self.given.is_none() && self.exchanged.is_none()
    }
}

/// The key of a request with one charge; `None` for other requests.
pub(super) type Alone = Option<Box<[u8]>>;

/// All queues; one is kept only while it has a waiting request or a worker.
#[derive(Debug, Default)]
pub(super) struct Lanes(HashMap<LaneKey, Lane, RandomState>);

#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<WaitingRequest>,
    flying: usize,
}

impl Lanes {
    /// Queues requests; returns the runtime of the last one if another worker must be started.
    pub(super) fn enter(
        &mut self,
        way: LaneKey,
        requests: impl IntoIterator<Item = WaitingRequest>,
    ) -> Option<Handle> {
        let lane = self.0.entry(way).or_default();
        lane.waiting.extend(requests);
        // Exchanges would race with one another.
        let flights = way.exchanged.map_or(FLIGHTS, |_| 1);
        let leaves = lane.waiting.back().filter(|_| lane.flying < flights);
        let home = leaves?.home.clone();
        lane.flying += 1;
        Some(home)
    }

    /// Removes the requests of a runtime that ends, and those that no caller waits for; returns
    /// their keys.
    pub(super) fn strand(&mut self, way: LaneKey, home: &Handle) -> Vec<Alone> {
        let mut gone = Vec::new();
        if let Some(lane) = self.0.get_mut(&way) {
            lane.waiting.retain(|it| {
                let stays = !it.answer.is_closed() && it.home.id() != home.id();
                gone.extend((!stays).then(|| it.key()));
                stays
            });
        }
        gone
    }

    /// Returns requests that have lost a race to the front of their queue.
    pub(super) fn again(&mut self, way: LaneKey, lost: Vec<(WaitingRequest, ReplyResult)>) {
        let waiting = &mut self.0.entry(way).or_default().waiting;
        lost.into_iter()
            .rev()
            .for_each(|(it, _)| waiting.push_front(it));
    }

    /// Returns the next batch, and the keys of removed requests: those that no caller waits for, and
    /// those that have waited for longer than `wait`, which are refused.
    pub(super) fn board(
        &mut self,
        way: LaneKey,
        wait: Option<Duration>,
    ) -> (Vec<WaitingRequest>, Vec<Alone>) {
        let (mut group, mut gone) = (Group::default(), Vec::new());
        if let Some(lane) = self.0.get_mut(&way) {
            while group.waiting.len() < MAX_TOGETHER
                && let Some(waiting) = lane.waiting.pop_front()
            {
                if waiting.answer.is_closed() {
                    gone.push(waiting.key());
                } else if wait.is_some_and(|wait| waiting.since.elapsed() > wait) {
                    gone.push(waiting.key());
                    waiting.reply_with(Err(Trouble::Crowded));
                } else if group.takes(&waiting.ask) {
                    group.waiting.push(waiting);
                } else {
                    // It has other numbers for a limit of the batch; it begins the next one.
                    lane.waiting.push_front(waiting);
                    break;
                }
            }
        }
        (group.waiting, gone)
    }

    pub(super) fn is_empty(&self, way: LaneKey) -> bool {
        let lane = self.0.get(&way);
        lane.is_none_or(|lane| lane.waiting.is_empty())
    }

    /// Counts out a worker that has ended.
    pub(super) fn land(&mut self, way: LaneKey) {
        if let Some(lane) = self.0.get_mut(&way) {
            lane.flying = lane.flying.saturating_sub(1);
            if lane.flying == 0 && lane.waiting.is_empty() {
                self.0.remove(&way);
            }
        }
    }
}

/// The answer to a request, and its time.
pub(super) type ReplyResult = Result<(AnyAnswer, UnixMicros), Trouble>;

/// A request, and the channel to its caller.
#[derive(Debug)]
pub(super) struct WaitingRequest {
    pub(super) ask: RedisRequest,
    pub(super) since: Instant,
    pub(super) answer: oneshot::Sender<BatchReply>,
    /// The runtime of the caller.
    pub(super) home: Handle,
}

impl WaitingRequest {
    pub(super) fn reply_with(self, reply: ReplyResult) {
        let ask = self.ask;
        let _ = self.answer.send(BatchReply { ask, reply }); // or the caller has gone
    }

    pub(super) fn key(&self) -> Alone {
        match &*self.ask.items {
            [item] => Some(item.name.clone()),
            _ => None,
        }
    }
}

/// Answers all requests of a batch. Waking a thread of another runtime costs a system call, so
/// the callers of each other runtime are answered there, by one task for all of them.
pub(super) fn reply_to_all(answers: impl IntoIterator<Item = (WaitingRequest, ReplyResult)>) {
    let here = Handle::current().id();
    let mut elsewhere = SmallVec::<[Vec<(WaitingRequest, ReplyResult)>; 4]>::new();
    for (waiting, reply) in answers {
        let home = waiting.home.id();
        if home == here {
            waiting.reply_with(reply);
            continue;
        }
        let of_it = |group: &&mut Vec<(WaitingRequest, ReplyResult)>| group[0].0.home.id() == home;
        match elsewhere.iter_mut().find(of_it) {
            Some(group) => group.push((waiting, reply)),
            None => elsewhere.push(vec![(waiting, reply)]),
        }
    }
    for group in elsewhere {
        let home = group[0].0.home.clone();
        let all = move || {
            for (waiting, reply) in group {
                waiting.reply_with(reply);
            }
        };
        drop(home.spawn(async move { all() }));
    }
}

/// A request, the answer to it, and its time.
#[derive(Debug)]
pub(super) struct BatchReply {
    pub(super) ask: RedisRequest,
    pub(super) reply: ReplyResult,
}

/// A batch while it is collected.
#[derive(Default)]
struct Group {
    waiting: Vec<WaitingRequest>,
    /// The numbers of each key, by the hash of its name.
    numbers: HashMap<u64, Arc<Prepared>, RandomState>,
}

impl Group {
    /// Returns true if the request may join; the first one may. Requests share a call if each key has
    /// one set of numbers, no state is removed, and none moves to another name.
    fn takes(&mut self, ask: &RedisRequest) -> bool {
        let alone = |ask: &RedisRequest| ask.removes() || ask.inherits();
        let key = |item: &Item| self.numbers.hasher().hash_one(&item.name);
        let differs = |item: &Item| {
            let known = self.numbers.get(&key(item));
            known.is_some_and(|known| !Arc::ptr_eq(known, &item.limit))
        };
        if let Some(first) = self.waiting.first()
            && (alone(&first.ask) || alone(ask) || ask.items.iter().any(differs))
        {
            return false;
        }
        for item in &ask.items {
            let key = self.numbers.hasher().hash_one(&item.name);
            self.numbers
                .entry(key)
                .or_insert_with(|| Arc::clone(&item.limit));
        }
        true
    }
}
