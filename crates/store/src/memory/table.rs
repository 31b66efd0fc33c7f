//! Table: the keys of one limit, of one size, in one shard.
//!
//! ```text
//!   hash --> slot | key 8, 16 or 32 | state 8 (GCRA) |
//!
//!   a key that is not here:  starts with the usage of the floor, less the forgiven part
//!   the floor:               the strictest of all evicted states; fresh once it expires
//! ```
//!
//! A table is compiled for each algorithm, so loops are plain (a chain of iterators would add
//! functions each time) and closures are passed as `dyn`. [`Entries`] are compiled for each size of
//! key, too.
//!
//! # Gain of an evicted key
//!
//! An evicted key leaves `floor = stricter(floor, its state)` behind. Until it comes back it cannot
//! be charged, and both recover alike. So when it comes back, the floor has used at least as much
//! as the key's own state would have. The key starts with the floor's usage less the forgiven part,
//! as if it were charged at this moment, which recovers no sooner. So it gains at most the forgiven
//! part. An entry that was removed because it had expired was equal to a fresh one.
//!
//! The floor has used at most the whole limit, so a new key finds at least the forgiven part. A
//! new key that uses less than that ends below the floor, and does not raise it when it is
//! evicted: the usage that new keys inherit does not grow from one to the next.
//!
//! If the clock steps back, a state that was removed as expired would matter again. So a key that
//! is not in the table is judged no earlier than the moment at which a state was last removed.

mod loans;
mod moves;
mod promise;
mod room;
mod saved;

use ratekeeper_core::{
    Algorithm, Decision, GrantId, Granted, Lend, Listed, Nanos, Permits, Receipt, Time,
};

use super::EvictionCounts;
use super::budget::MemoryBudget;
use super::entries::{Entries, FlatEntries};
use super::key::{KeyHasher, SizeClass, StoredKey};
pub(super) use moves::MovedState;
pub(super) use promise::Ahead;
pub use promise::Reserved;

/// Slots looked at on each insert, to forget expired states: the table is walked through by the
/// time it has grown by a quarter.
const SWEPT_PER_INSERT: usize = 7;
/// Divisor of the limit: a key that comes back is forgiven that part of it.
const FORGIVEN_PART: u64 = 8;
/// Minimum number of permits forgiven; the maximum is half of the limit.
const MIN_FORGIVEN: u64 = 2;

pub(super) struct StateTable<A: Listed, E: ?Sized = dyn Entries<A>> {
    pub(super) algorithm: A,
    /// The strictest of all evicted states.
    floor: A::State,
    /// States that have expired by now may have been forgotten.
    forgotten: Time,
    /// The latest moment that a reservation was promised.
    promised: Time,
    /// Bytes of keys and states on the heap.
    heap_bytes: usize,
    /// Walks downwards, for expired entries and for one to evict: slots below it are still to be
    /// looked at in this round of the table.
    hand: usize,
    pub(super) evicted: EvictionCounts,
    /// Permits that came back because their lease ran out.
    pub(super) lapsed: u64,
    entries: E,
}

/// The table for keys of one size.
pub(super) type SizedTable<A, K> = StateTable<A, FlatEntries<K, <A as Algorithm>::State>>;

/// A request as a table sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableAsk<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) now: Time,
    pub(super) cost: Permits,
    /// How concurrency limits lend.
    pub(super) lend: Lend,
    /// Of a charge that is given back.
    pub(super) receipt: Option<Receipt>,
    /// Where the bytes of a new key are taken.
    pub(super) budget: &'a MemoryBudget,
}

impl<'a> TableAsk<'a> {
    #[inline]
    pub(super) const fn new(key: &'a [u8], hash: u64, now: Time, budget: &'a MemoryBudget) -> Self {
        Self {
            key,
            hash,
            now,
            cost: Permits::ZERO,
            lend: Lend::Unnamed,
            receipt: None,
            budget,
        }
    }
}

/// A key that is not in the table.
struct NewKey<S> {
    /// The state with which it starts.
    state: S,
    /// The moment at which it is judged: not before the last removal of a state; see the module.
    now: Time,
    /// How much later that is than the moment of the request.
    lag: Nanos,
}

/// Facts that a table passes to its successor under another algorithm.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableHistory {
    /// Size of its keys.
    pub(super) size: SizeClass,
    evicted: EvictionCounts,
    forgotten: Time,
    /// Usage of the floor.
    floor: Permits,
    /// Keys that will be carried over.
    keys: usize,
}

impl<A: Listed, K: StoredKey> SizedTable<A, K> {
    pub(super) fn new(algorithm: A, hasher: KeyHasher) -> Self {
        Self {
            algorithm,
            floor: A::State::default(),
            forgotten: Time::ZERO,
            promised: Time::ZERO,
            heap_bytes: 0,
            hand: 0,
            evicted: EvictionCounts::default(),
            lapsed: 0,
            entries: FlatEntries::new(hasher),
        }
    }

    /// Returns the state of a key that is here, if the first guess finds it, and the algorithm.
    #[expect(clippy::inline_always, reason = "see `MemoryStore::decide_one`")]
    #[inline(always)]
    pub(super) fn likely(
        &mut self,
        hash: u64,
        probe: &K::Probe<'_>,
    ) -> Option<(&A, &mut A::State)> {
        let state = self.entries.likely(hash, probe)?;
        Some((&self.algorithm, state))
    }
}

/// Deciding, looking, giving back.
impl<A: Listed> StateTable<A> {
    /// Decides and charges. Returns `None` if the key is new and there is no room for it: then
    /// nothing was done.
    pub(super) fn decide(&mut self, ask: &TableAsk<'_>) -> Option<Decision> {
        match self.entries.find(ask.hash, ask.key) {
            Some((_, state)) => {
                let algorithm = &self.algorithm;
                self.lapsed += algorithm.lapse(state, ask.now);
                Some(algorithm.lend(state, ask.now, ask.cost, ask.lend))
            }
            None => self.decide_new(ask, &mut |algorithm, state, now| {
                algorithm.lend(state, now, ask.cost, ask.lend)
            }),
        }
    }

    /// Decides about a key that is not here, and inserts its state if that has changed. Returns
    /// `None` if there is no room for it.
    fn decide_new(
        &mut self,
        ask: &TableAsk<'_>,
        decide: &mut dyn FnMut(&A, &mut A::State, Time) -> Decision,
    ) -> Option<Decision> {
        let mut new = self.new_key(ask.now);
        let before = new.state.clone();
        let decision = decide(&self.algorithm, &mut new.state, new.now);
        let decision = later(decision, new.lag);
        if new.state == before {
            return Some(decision); // nothing to remember
        }
        if !self.make_room(ask) {
            return None;
        }
        self.insert(ask, new.state);
        let hand = self.hand;
        self.sweep(ask.now, SWEPT_PER_INSERT, ask.budget);
        let round_ended = self.hand > hand;
        if round_ended {
            self.shrink(ask.now, ask.budget); // a small table stays in the cache
        }
        Some(decision)
    }

    /// Returns the decision that `decide` would make.
    pub(super) fn look(&mut self, ask: &TableAsk<'_>) -> Decision {
        if let Some((algorithm, state)) = self.here(ask) {
            return algorithm.look(state, ask.now, ask.cost);
        }
        let new = self.new_key(ask.now);
        later(self.algorithm.look(&new.state, new.now, ask.cost), new.lag)
    }

    /// Bans a key for `span`, or lifts its ban if that is zero; returns the decision afterwards, or
    /// `None` if the key is new and there is no room for it.
    pub(super) fn ban(&mut self, ask: &TableAsk<'_>, span: Nanos) -> Option<Decision> {
        let mut ban = |algorithm: &A, state: &mut A::State, now| {
            let _ = algorithm.try_ban(state, now, span); // checked by the act
            algorithm.look(state, now, Permits::ZERO)
        };
        match self.here(ask) {
            Some((algorithm, state)) => Some(ban(algorithm, state, ask.now)),
            None => self.decide_new(ask, &mut ban),
        }
    }

    /// Adds the cost to the balance of a key, unless a grant with this id was made before; returns
    /// the result and the decision afterwards, or `None` if the key is new and there is no room for
    /// it.
    pub(super) fn grant(
        &mut self,
        ask: &TableAsk<'_>,
        id: GrantId,
    ) -> Option<(Option<Granted>, Decision)> {
        let mut granted = None;
        let mut grant = |algorithm: &A, state: &mut A::State, now| {
            granted = algorithm.try_grant(state, ask.cost, id); // checked by the act
            algorithm.look(state, now, Permits::ZERO)
        };
        let decision = match self.here(ask) {
            Some((algorithm, state)) => grant(algorithm, state, ask.now),
            None => self.decide_new(ask, &mut grant)?,
        };
        Some((granted, decision))
    }

    /// Forgets a key; returns true if it was in debt.
    pub(super) fn reset(&mut self, ask: &TableAsk<'_>) -> bool {
        let here = self.entries.find(ask.hash, ask.key);
        let at = here.map(|(at, _)| at);
        let removed = at.and_then(|at| self.remove(at, ask.budget));
        removed.is_some_and(|state| self.algorithm.expires_at(&state, ask.now) > ask.now)
    }

    /// Returns the state of a key that is here and in debt.
    pub(super) fn standing(&mut self, ask: &TableAsk<'_>) -> Option<Decision> {
        let (algorithm, state) = self.here(ask)?;
        standing_of(algorithm, state, ask.now)
    }

    /// Shows all keys in debt.
    pub(super) fn show_live(&self, now: Time, show: &mut dyn FnMut(&[u8], Decision)) {
        for at in 0..self.slots() {
            let state = self.entries.state(at);
            if let Some(standing) = state.and_then(|state| standing_of(&self.algorithm, state, now))
            {
                self.entries.show(at, &mut |key| show(key, standing));
            }
        }
    }

    /// Returns a key that is not here, as it starts at `now`.
    fn new_key(&mut self, now: Time) -> NewKey<A::State> {
        if self.floor != A::State::default() && self.algorithm.expires_at(&self.floor, now) <= now {
            self.floor = A::State::default();
            self.forgotten = self.forgotten.max(now);
        }
        let lag = self.forgotten.since(now);
        let now = now.max(self.forgotten);
        // Permits on loan and credits are never evicted for a new key, so nothing is forgiven.
        let state = if A::KEEPS || self.floor == A::State::default() {
            self.floor.clone()
        } else {
            let used = self.algorithm.usage(&self.floor, now);
            let used = used - forgiven(self.algorithm.capacity());
            self.algorithm.state_with_usage(used, now)
        };
        NewKey { state, now, lag }
    }

    /// Returns the algorithm, and the state of a key that is here.
    fn here(&mut self, ask: &TableAsk<'_>) -> Option<(&A, &mut A::State)> {
        let (_, state) = self.entries.find(ask.hash, ask.key)?;
        Some((&self.algorithm, state))
    }
}

/// Changing the algorithm.
impl<A: Listed> StateTable<A> {
    /// Takes the new parameters, if the states mean the same under them and, should they take
    /// more bytes, there is room. Returns false if not.
    pub(super) fn adopt(&mut self, new: &A, now: Time, budget: &MemoryBudget) -> bool {
        if !new.keeps_state_of(&self.algorithm) || !self.resize_states(new, budget) {
            return false;
        }
        let old = std::mem::replace(&mut self.algorithm, new.clone());
        self.algorithm.succeed(&old);
        let now = now.max(self.forgotten);
        let promised = self.promised.since(now);
        for at in 0..self.slots() {
            if let Some(state) = self.entries.state_mut(at) {
                new.rescale(state, &old, now, promised);
            }
        }
        new.rescale(&mut self.floor, &old, now, promised);
        true
    }
}

fn standing_of<A: Algorithm>(algorithm: &A, state: &A::State, now: Time) -> Option<Decision> {
    let live = algorithm.expires_at(state, now) > now;
    live.then(|| algorithm.look(state, now, Permits::ZERO))
}

/// Returns the forgiven part of a limit of `capacity` permits.
fn forgiven(capacity: Permits) -> Permits {
    let capacity = capacity.get();
    let half = capacity.div_ceil(2); // rounded up: a limit of one permit serves new keys too
    Permits::new((capacity / FORGIVEN_PART).max(MIN_FORGIVEN).min(half))
}

/// Returns the decision as seen from `lag` earlier.
fn later(decision: Decision, lag: Nanos) -> Decision {
    if lag == Nanos::ZERO {
        return decision;
    }
    Decision {
        verdict: match decision.verdict.retry_after() {
            Some(wait) => decision.verdict.with_retry_after(wait + lag),
            None => decision.verdict,
        },
        reset_after: decision.reset_after + lag,
        more_after: match decision.more_after {
            Nanos::ZERO => Nanos::ZERO,
            wait => wait + lag,
        },
        ..decision
    }
}
