//! Table: the keys of one limit, of one size, in one shard.
//!
//! ```text
//!   hash --> slot | key 8, 16 or 32 | state 8 (GCRA) |
//!
//!   key never seen, or forgotten:  starts with what the floor has used, less what is forgiven
//!   floor: the strictest of all states pushed out for want of room; fresh once it expires
//! ```
//!
//! # What a key gains that is pushed out
//!
//! A key that is pushed out leaves `floor = stricter(floor, its state)` behind. In between it
//! cannot be charged, and time heals both alike. So when it comes back, the floor has used at
//! least as much as its own state would have; it starts with that, less what is forgiven, as if
//! charged at this moment, which heals no sooner. It gains what is forgiven at most. An entry
//! that left because it had expired was fresh by law.
//!
//! The floor has used the whole limit at most. So a newcomer finds at least what is forgiven.
//! A newcomer that uses less than that ends below the floor, and does not raise it when it is
//! pushed out: what newcomers inherit does not grow from one to the next.
//!
//! A clock that steps back would make what was forgotten as expired matter again. So a key
//! that is not in the table is judged no earlier than the moment at which something was
//! last forgotten.

mod loans;
mod promise;
mod room;

use foldhash::quality::RandomState;
use ratekeeper_core::{Algorithm, Decision, Lend, Nanos, Permits, Refund, Time, Verdict};

use super::EvictionCounts;
use super::budget::{Budget, Purpose};
use super::flat::{self, Flat};
use super::key::StoredKey;
pub(super) use promise::Made;

/// Slots looked at on each insert, to forget what has expired: the table is walked through
/// by the time it has grown by a quarter.
const SWEPT_PER_INSERT: usize = 7;
/// A key that comes back is forgiven one part in so many of its limit,
const FORGIVEN_PART: u32 = 8;
/// at least so many permits, and at most half of the limit.
const LEAST_FORGIVEN: u32 = 2;

#[derive(Debug)]
struct Entry<K, S> {
    key: K,
    state: S,
}

#[derive(Debug)]
pub(super) struct Table<A: Algorithm, K> {
    algorithm: A,
    entries: Flat<Entry<K, A::State>>,
    /// The strictest of all states pushed out.
    floor: A::State,
    /// The states are permits on loan: none is pushed out for a newcomer, nothing is forgiven.
    lends: bool,
    /// What has expired by now may have been forgotten.
    forgotten: Time,
    /// Bytes of keys and states on the heap.
    heap_bytes: usize,
    /// Slots below it are still to be swept in this round.
    hand: usize,
    pub(super) evicted: EvictionCounts,
    /// Permits on loan whose time ran out.
    pub(super) lapsed: u64,
    hasher: RandomState,
}

/// A request as a table sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) now: Time,
    pub(super) cost: Permits,
    /// To whom a limit of concurrency lends.
    pub(super) lend: Lend,
}

/// A key that is not in the table is judged at `now` or later; see the module.
struct Start<S> {
    state: S,
    now: Time,
    lag: Nanos,
}

/// What passes from a table to its successor under another algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct History {
    evicted: EvictionCounts,
    forgotten: Time,
    /// What the floor takes of the limit.
    floor: Permits,
}

/// Deciding, looking, giving back.
impl<A: Algorithm, K: StoredKey> Table<A, K> {
    pub(super) fn new(algorithm: A, hasher: RandomState) -> Self {
        Self {
            algorithm,
            entries: Flat::new(),
            floor: A::State::default(),
            lends: false,
            forgotten: Time::ZERO,
            heap_bytes: 0,
            hand: 0,
            evicted: EvictionCounts::default(),
            lapsed: 0,
            hasher,
        }
    }

    /// Decides and charges. `None` if the key is new and `budget` has no room for it: then
    /// nothing was done.
    pub(super) fn decide(&mut self, ask: &Ask<'_>, budget: &Budget) -> Option<Decision> {
        match self.find(ask).and_then(|at| self.entries.get_mut(at)) {
            Some(entry) => {
                let (algorithm, state) = (&self.algorithm, &mut entry.state);
                self.lapsed += algorithm.lapse(state, ask.now);
                Some(algorithm.lend(state, ask.now, ask.cost, ask.lend))
            }
            None => self.decide_new(ask, budget),
        }
    }

    /// The state of a key that is here, if the first guess finds it.
    #[expect(clippy::inline_always, reason = "as `MemoryStore::decide_one` asks")]
    #[inline(always)]
    pub(super) fn likely(&mut self, hash: u64, probe: &K::Probe<'_>) -> Option<&mut A::State> {
        let at = self.entries.likely(hash)?;
        let entry = self.entries.get_mut(at)?;
        entry.key.is(probe).then_some(&mut entry.state)
    }

    fn decide_new(&mut self, ask: &Ask<'_>, budget: &Budget) -> Option<Decision> {
        let lend = |algorithm: &A, state: &mut A::State, now| {
            algorithm.lend(state, now, ask.cost, ask.lend)
        };
        self.begin(ask, budget, lend)
    }

    /// Decides about a key that is not here, and remembers what that leaves.
    fn begin(
        &mut self,
        ask: &Ask<'_>,
        budget: &Budget,
        decide: impl FnOnce(&A, &mut A::State, Time) -> Decision,
    ) -> Option<Decision> {
        let mut start = self.start(ask.now);
        let before = start.state.clone();
        let decision = decide(&self.algorithm, &mut start.state, start.now);
        let decision = later(decision, start.lag);
        if start.state == before {
            return Some(decision); // nothing to remember
        }
        if !self.make_room(ask.key.len(), budget) {
            return None;
        }
        self.insert(K::new(ask.key), ask.hash, start.state);
        let hand = self.hand;
        self.sweep(ask.now, SWEPT_PER_INSERT, budget);
        let round_ended = self.hand > hand;
        if round_ended {
            self.shrink(budget); // what is small stays in the cache
        }
        Some(decision)
    }

    /// What `decide` would say.
    pub(super) fn look(&mut self, ask: &Ask<'_>) -> Decision {
        if let Some(entry) = self.find(ask).and_then(|at| self.entries.get(at)) {
            return self.algorithm.look(&entry.state, ask.now, ask.cost);
        }
        let start = self.start(ask.now);
        let decision = self.algorithm.look(&start.state, start.now, ask.cost);
        later(decision, start.lag)
    }

    /// Forgets a key; says whether it was in debt.
    pub(super) fn reset(&mut self, ask: &Ask<'_>, budget: &Budget) -> bool {
        let removed = self.find(ask).and_then(|at| self.remove(at, budget));
        removed.is_some_and(|state| self.algorithm.expires_at(&state, ask.now) > ask.now)
    }

    /// The state of a key that is here and in debt.
    pub(super) fn standing(&self, ask: &Ask<'_>) -> Option<Decision> {
        let entry = self.entries.get(self.find(ask)?)?;
        self.standing_of(&entry.state, ask.now)
    }

    /// Shows all keys in debt.
    pub(super) fn show_live(&self, now: Time, mut show: impl FnMut(&[u8], Decision)) {
        for entry in self.entries.iter() {
            if let Some(standing) = self.standing_of(&entry.state, now) {
                entry.key.show(|key| show(key, standing));
            }
        }
    }

    fn standing_of(&self, state: &A::State, now: Time) -> Option<Decision> {
        let live = self.algorithm.expires_at(state, now) > now;
        live.then(|| self.algorithm.look(state, now, Permits::ZERO))
    }

    /// Where a key that is not here starts at `now`.
    fn start(&mut self, now: Time) -> Start<A::State> {
        if self.floor != A::State::default() && self.algorithm.expires_at(&self.floor, now) <= now {
            self.floor = A::State::default();
            self.forgotten = self.forgotten.max(now);
        }
        let lag = self.forgotten.since(now);
        let now = now.max(self.forgotten);
        let state = if self.lends || self.floor == A::State::default() {
            self.floor.clone()
        } else {
            let used = self.used(&self.floor, now) - forgiven(self.algorithm.capacity());
            self.used_up(used, now)
        };
        Start { state, now, lag }
    }

    #[inline]
    fn find(&self, ask: &Ask<'_>) -> Option<usize> {
        let probe = K::probe(ask.key);
        self.entries.find(ask.hash, |entry| entry.key.is(&probe))
    }
}

/// Taking back.
impl<A: Refund, K: StoredKey> Table<A, K> {
    /// Gives back; what is not here any more is not given back.
    pub(super) fn refund(&mut self, ask: &Ask<'_>) {
        if let Some(entry) = self.find(ask).and_then(|at| self.entries.get_mut(at)) {
            self.algorithm.refund(&mut entry.state, ask.now, ask.cost);
        }
    }
}

/// Changing the algorithm.
impl<A: Algorithm, K: StoredKey> Table<A, K> {
    /// Takes the new numbers, if the states mean the same under them and, should they take
    /// more bytes, there is room.
    pub(super) fn adopt(&mut self, new: &A, now: Time, budget: &Budget) -> bool
    where
        A: Clone,
    {
        if !new.keeps_state_of(&self.algorithm) || !self.resize_states(new, budget) {
            return false;
        }
        let old = std::mem::replace(&mut self.algorithm, new.clone());
        let now = now.max(self.forgotten);
        for entry in self.entries.iter_mut() {
            new.rescale(&mut entry.state, &old, now);
        }
        new.rescale(&mut self.floor, &old, now);
        true
    }

    pub(super) fn history(&self, now: Time) -> History {
        History {
            evicted: self.evicted,
            forgotten: self.forgotten,
            floor: self.used(&self.floor, now),
        }
    }

    /// Gives the table up: each key, and how much it has used.
    pub(super) fn drain_used(
        &mut self,
        now: Time,
        budget: &Budget,
        each: &mut dyn FnMut(K, Permits),
    ) {
        let bytes = self.bytes();
        for entry in std::mem::replace(&mut self.entries, Flat::new()).into_entries() {
            each(entry.key, self.used(&entry.state, now));
        }
        self.heap_bytes = 0;
        budget.give(bytes);
    }

    /// Takes over what a table of `len` keys leaves behind.
    pub(super) fn inherit(&mut self, history: History, len: usize, now: Time, budget: &Budget) {
        self.evicted = history.evicted;
        self.forgotten = history.forgotten;
        let floor = self.used_up(history.floor, now);
        self.algorithm.stricter(&mut self.floor, &floor);
        self.resize(flat::slots_for(len), Purpose::Move, budget);
    }

    /// Takes over a key that had used `used` under another algorithm; pushes it out if there
    /// is no room for it.
    pub(super) fn carry(&mut self, key: K, used: Permits, now: Time, budget: &Budget) {
        let state = self.used_up(used, now);
        if state == A::State::default() {
            return;
        }
        let heap = self.heap_of(key.length());
        if !self.entries.is_full() && budget.take(heap, Purpose::Move) {
            let hash = key.rehash(&self.hasher);
            self.insert(key, hash, state);
        } else {
            self.algorithm.stricter(&mut self.floor, &state);
            self.evicted.budget += 1;
        }
    }

    /// How much of the limit `state` takes.
    fn used(&self, state: &A::State, now: Time) -> Permits {
        used(&self.algorithm, state, now.max(self.forgotten))
    }

    /// A state of which `used` is gone. What passes the capacity cannot be carried: then
    /// nothing is left.
    fn used_up(&self, used: Permits, now: Time) -> A::State {
        let mut state = A::State::default();
        let used = used.min(self.algorithm.capacity());
        let now = now.max(self.forgotten);
        let charged = self.algorithm.decide(&mut state, now, used);
        debug_assert!(charged.verdict.allows(), "a fresh state holds its capacity");
        state
    }
}

/// How much of the limit `state` takes.
fn used<A: Algorithm>(algorithm: &A, state: &A::State, now: Time) -> Permits {
    algorithm.capacity() - algorithm.look(state, now, Permits::ZERO).remaining
}

/// What a key that comes back is forgiven of a limit of `capacity` permits.
fn forgiven(capacity: Permits) -> Permits {
    let capacity = capacity.get();
    let most = capacity.div_ceil(2); // up: a limit of one permit serves newcomers too
    Permits::new((capacity / FORGIVEN_PART).max(LEAST_FORGIVEN).min(most))
}

/// As seen from `lag` earlier.
fn later(decision: Decision, lag: Nanos) -> Decision {
    if lag == Nanos::ZERO {
        return decision;
    }
    Decision {
        verdict: match decision.verdict {
            Verdict::Deny { retry_after } => Verdict::Deny {
                retry_after: retry_after + lag,
            },
            verdict => verdict,
        },
        reset_after: decision.reset_after + lag,
        more_after: match decision.more_after {
            Nanos::ZERO => Nanos::ZERO,
            wait => wait + lag,
        },
        ..decision
    }
}
