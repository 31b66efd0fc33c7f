//! Table: the keys of one limit in one shard.
//!
//! ```text
//!   hash --index--> position --slab--> | key 32 | state 8 (GCRA) |
//!
//!   key never seen, or forgotten:  starts from the floor
//!   floor: the strictest of all states pushed out for want of room; fresh once it expires
//! ```
//!
//! # Why a full table never admits more
//!
//! A key that is pushed out leaves `floor = stricter(floor, its state)` behind. When it comes
//! back it starts from the floor, which allows only what its own state would have allowed.
//! In between it cannot have been charged, and states only get better with time, by law as
//! fast for both. So at every moment a key's state here is at least as strict as it would be
//! with endless memory. An entry that left because it had expired was fresh by law.
//!
//! A clock that steps back would make what was forgotten as expired matter again. So a key
//! that is not in the table is judged no earlier than the moment at which something was
//! last forgotten.

use foldhash::quality::RandomState;
use ratekeeper_core::{Algorithm, Decision, Nanos, Permits, Refund, Time, Verdict};

use super::index::{Index, MOST_ENTRIES};
use super::key::{StoredKey, block};
use super::slab::Slab;
use super::{EvictionCounts, hash_of};

/// Entries looked at for a victim: enough to find one with little debt, few enough to be quick.
const SAMPLE: usize = 16;
/// Entries looked at on each insert, to forget those that have expired. Two for one: the
/// table is walked through by the time it has grown by half.
const SWEPT_PER_INSERT: usize = 2;

#[derive(Debug)]
struct Entry<S> {
    key: StoredKey,
    state: S,
}

#[derive(Debug)]
pub(super) struct Table<A: Algorithm> {
    pub(super) algorithm: A,
    index: Index,
    entries: Slab<Entry<A::State>>,
    /// Where a key that is not here starts.
    floor: A::State,
    /// What has expired by now may have been forgotten.
    forgotten: Time,
    /// Bytes of keys on the heap.
    key_bytes: usize,
    /// Entries below it are still to be swept in this round.
    hand: usize,
    pub(super) evicted: EvictionCounts,
    hasher: RandomState,
}

/// A request as a table sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) now: Time,
    pub(super) cost: Permits,
}

/// What became of a request that wants to charge.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome {
    /// Decided; the table is as large as before.
    Decided(Decision),
    /// Decided, and the table has grown or shrunk.
    Resized(Decision),
    /// The key is new and does not fit into `room` bytes; nothing was done.
    NoRoom,
}

/// A key that is not in the table is judged at `now` or later; see the module.
struct Start<S> {
    state: S,
    now: Time,
    lag: Nanos,
}

impl<A: Algorithm> Table<A> {
    pub(super) fn new(algorithm: A, hasher: RandomState) -> Self {
        Self {
            algorithm,
            index: Index::default(),
            entries: Slab::new(),
            floor: A::State::default(),
            forgotten: Time::ZERO,
            key_bytes: 0,
            hand: 0,
            evicted: EvictionCounts::default(),
            hasher,
        }
    }

    /// Decides and charges; a new key may take up to `room` bytes.
    #[inline]
    pub(super) fn decide(&mut self, ask: &Ask<'_>, room: usize) -> Outcome {
        match self
            .find(ask.key, ask.hash)
            .and_then(|at| self.entries.get_mut(at))
        {
            Some(entry) => {
                Outcome::Decided(self.algorithm.decide(&mut entry.state, ask.now, ask.cost))
            }
            None => self.decide_new(ask, room),
        }
    }

    #[inline(never)]
    fn decide_new(&mut self, ask: &Ask<'_>, room: usize) -> Outcome {
        let mut start = self.start(ask.now);
        let decision = self.algorithm.decide(&mut start.state, start.now, ask.cost);
        let decision = later(decision, start.lag);
        if start.state == self.floor {
            return Outcome::Decided(decision); // nothing to remember
        }
        if self.growth(ask.key.len()) > room {
            return Outcome::NoRoom;
        }
        self.insert(StoredKey::new(ask.key), ask.hash, start.state);
        self.sweep(ask.now, SWEPT_PER_INSERT);
        Outcome::Resized(decision)
    }

    /// What `decide` would say.
    pub(super) fn look(&mut self, ask: &Ask<'_>) -> Decision {
        if let Some(entry) = self
            .find(ask.key, ask.hash)
            .and_then(|at| self.entries.get(at))
        {
            return self.algorithm.look(&entry.state, ask.now, ask.cost);
        }
        let start = self.start(ask.now);
        later(
            self.algorithm.look(&start.state, start.now, ask.cost),
            start.lag,
        )
    }

    /// Forgets a key; says whether it was in debt.
    pub(super) fn reset(&mut self, ask: &Ask<'_>) -> bool {
        let Some(at) = self.find(ask.key, ask.hash) else {
            return false;
        };
        let removed = self.remove(at);
        removed.is_some_and(|entry| self.algorithm.expires_at(&entry.state) > ask.now)
    }

    /// The state of a key that is here and in debt.
    pub(super) fn standing(&self, key: &[u8], hash: u64, now: Time) -> Option<Decision> {
        let entry = self.entries.get(self.find(key, hash)?)?;
        let live = self.algorithm.expires_at(&entry.state) > now;
        live.then(|| self.algorithm.look(&entry.state, now, Permits::ZERO))
    }

    /// All keys in debt.
    pub(super) fn live(&self, now: Time) -> impl Iterator<Item = (&[u8], Decision)> {
        let live = move |entry: &&Entry<A::State>| self.algorithm.expires_at(&entry.state) > now;
        self.entries.iter().filter(live).map(move |entry| {
            let standing = self.algorithm.look(&entry.state, now, Permits::ZERO);
            (entry.key.as_bytes(), standing)
        })
    }

    /// Looks at up to `count` entries and forgets those that have expired.
    pub(super) fn sweep(&mut self, now: Time, count: usize) {
        for _ in 0..count.min(self.entries.len()) {
            self.hand = match self.hand.min(self.entries.len()) {
                0 => self.entries.len(),
                hand => hand,
            };
            // Downwards: what moves into a gap comes from above and has been looked at.
            self.hand -= 1;
            let expired = self
                .entries
                .get(self.hand)
                .map(|e| self.algorithm.expires_at(&e.state));
            if expired.is_some_and(|at| at <= now) {
                self.forget(self.hand, now);
            }
        }
    }

    /// Pushes out the entry with the least debt of a sample.
    pub(super) fn evict(&mut self, now: Time) -> bool {
        let length = self.entries.len();
        let victim = (0..SAMPLE.min(length))
            .map(|step| (self.hand + step) % length)
            .filter_map(|at| Some((self.algorithm.expires_at(&self.entries.get(at)?.state), at)))
            .min();
        let Some((expires_at, at)) = victim else {
            return false;
        };
        // The next sample is another one.
        self.hand = (self.hand + SAMPLE) % length;
        if expires_at <= now {
            self.forget(at, now);
        } else if let Some(entry) = self.remove(at) {
            self.algorithm.stricter(&mut self.floor, &entry.state);
            self.evicted.budget += 1;
        }
        true
    }

    /// Takes one entry out of a table that is given up: its key, and how much it has used.
    pub(super) fn pop_used(&mut self, now: Time) -> Option<(StoredKey, Permits)> {
        self.index = Index::default();
        let entry = self.entries.pop()?;
        self.key_bytes -= StoredKey::heap_bytes(entry.key.as_bytes().len());
        Some((entry.key, self.used(&entry.state, now)))
    }

    /// How much of the limit the floor takes from a new key.
    pub(super) fn floor_used(&self, now: Time) -> Permits {
        self.used(&self.floor, now)
    }

    /// Takes over a key that had used `used` under another algorithm.
    pub(super) fn carry(&mut self, key: StoredKey, used: Permits, now: Time, room: usize) {
        let state = self.used_up(used, now);
        if state == A::State::default() {
            return;
        }
        if self.growth(key.as_bytes().len()) <= room {
            let hash = hash_of(&self.hasher, key.as_bytes());
            self.insert(key, hash, state);
        } else {
            self.algorithm.stricter(&mut self.floor, &state);
            self.evicted.budget += 1;
        }
    }

    /// Takes over the floor of another algorithm, of which it takes `used`.
    pub(super) fn raise_floor(&mut self, used: Permits, now: Time) {
        let state = self.used_up(used, now);
        self.algorithm.stricter(&mut self.floor, &state);
    }

    /// Takes over what goes with the limit when its algorithm changes.
    pub(super) fn inherit_history(&mut self, evicted: EvictionCounts, forgotten: Time) {
        self.evicted = evicted;
        self.forgotten = forgotten;
    }

    pub(super) fn forgotten(&self) -> Time {
        self.forgotten
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes in use beside the table itself.
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes()
            + self.entries.bytes()
            + self.key_bytes
            + (self.entries.len() + 1) * block(self.algorithm.heap_bytes()) // 1: the floor
    }

    /// Bytes that one more key needs beyond those in use, while the index moves.
    fn growth(&self, key_length: usize) -> usize {
        if self.entries.len() >= MOST_ENTRIES {
            return usize::MAX;
        }
        let index = if self.index.is_full() {
            Index::bytes_of(self.index.grown())
        } else {
            0
        };
        index
            + self.entries.growth()
            + StoredKey::heap_bytes(key_length)
            + block(self.algorithm.heap_bytes())
    }

    /// Where a new key starts at `now`.
    fn start(&mut self, now: Time) -> Start<A::State> {
        if self.floor != A::State::default() && self.algorithm.expires_at(&self.floor) <= now {
            self.floor = A::State::default();
            self.forgotten = self.forgotten.max(now);
        }
        Start {
            state: self.floor.clone(),
            now: now.max(self.forgotten),
            lag: self.forgotten.since(now),
        }
    }

    /// How much of the limit `state` takes.
    fn used(&self, state: &A::State, now: Time) -> Permits {
        let now = now.max(self.forgotten);
        let left = self.algorithm.look(state, now, Permits::ZERO).remaining;
        self.algorithm.capacity() - left
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

    #[inline]
    fn find(&self, key: &[u8], hash: u64) -> Option<usize> {
        let is_it = |at| {
            let entry: Option<&Entry<_>> = self.entries.get(at);
            entry.is_some_and(|entry| entry.key.as_bytes() == key)
        };
        self.index.find(hash, is_it)
    }

    fn insert(&mut self, key: StoredKey, hash: u64, state: A::State) {
        if self.index.is_full() {
            self.index.resize(self.index.grown());
        }
        self.index.insert(hash, self.entries.len());
        self.key_bytes += StoredKey::heap_bytes(key.as_bytes().len());
        self.entries.push(Entry { key, state });
    }

    fn forget(&mut self, at: usize, now: Time) {
        if self.remove(at).is_some() {
            self.forgotten = self.forgotten.max(now);
            self.evicted.idle += 1;
        }
    }

    fn remove(&mut self, at: usize) -> Option<Entry<A::State>> {
        let hash = |entry: &Entry<A::State>| hash_of(&self.hasher, entry.key.as_bytes());
        let last = self.entries.len().checked_sub(1)?;
        self.index.remove(hash(self.entries.get(at)?), at);
        if at != last {
            self.index.renumber(hash(self.entries.get(last)?), last, at);
        }
        let entry = self.entries.swap_remove(at)?;
        self.key_bytes -= StoredKey::heap_bytes(entry.key.as_bytes().len());
        if self.entries.len() == 0 {
            self.index = Index::default();
        }
        Some(entry)
    }

    /// Gives back what the index has too much, if the move fits into `room` bytes.
    pub(super) fn shrink(&mut self, room: usize) {
        if let Some(slots) = self.index.shrunk()
            && Index::bytes_of(slots) <= room
        {
            self.index.resize(slots);
        }
    }
}

impl<A: Refund> Table<A> {
    /// Gives back; what is not here any more is not given back.
    pub(super) fn refund(&mut self, ask: &Ask<'_>) {
        if let Some(entry) = self
            .find(ask.key, ask.hash)
            .and_then(|at| self.entries.get_mut(at))
        {
            self.algorithm.refund(&mut entry.state, ask.now, ask.cost);
        }
    }
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
        ..decision
    }
}
