//! Room: how a table keeps within the budget.
//!
//! ```text
//!   make_room   grows by a quarter, before it is more than 4/5 full, if the budget allows
//!   sweep       removes expired keys, a few slots at a time, downwards
//!   forget_some removes the expired keys of a sample: the next entries downwards
//!   evict       moves one key to the floor, the one that used least of the sample
//!   squeeze     gives up a third of the array, and moves the keys that used least to the floor
//!   shrink      when at most a quarter of the room is used, at the end of a round of sweeping
//!               by inserts, or by `MemoryStore::sweep`
//! ```

use ratekeeper_core::{Listed, Permits, Time};

use super::{StateTable, TableAsk};
use crate::memory::budget::{MemoryBudget, Purpose};
use crate::memory::flat::{self, Room};
use crate::memory::key::{block, key_heap};

/// Entries looked at for the key to evict: enough to find one that used little, few enough to be
/// quick.
const SAMPLE: usize = 16;
/// Entries looked at to estimate how much the lower third used.
const QUANTILE_SAMPLE: usize = 64;

/// Rank of a key: the lowest is the first to be evicted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    used: Permits,
    expires_at: Time,
}

/// A rank, and the hash, which decides between equals; reversed: its high bits are their order in
/// the array.
type HashedRank = (Rank, u64);

impl Rank {
    fn of<A: Listed>(algorithm: &A, state: &A::State, now: Time) -> Self {
        Self {
            used: algorithm.usage(state, now),
            expires_at: algorithm.expires_at(state, now),
        }
    }

    const fn hashed(self, hash: u64) -> HashedRank {
        (self, hash.reverse_bits())
    }
}

impl<A: Listed> StateTable<A> {
    pub(in crate::memory) fn len(&self) -> usize {
        self.entries.fill().len
    }

    /// Returns the bytes taken from the budget.
    pub(in crate::memory) fn bytes(&self) -> usize {
        self.entries.bytes_of(self.slots()) + self.heap_bytes
    }

    /// Takes the bytes that one more key like `ask`'s needs; grows if necessary.
    pub(super) fn make_room(&mut self, ask: &TableAsk<'_>) -> bool {
        let heap = self.heap_of(ask.key.len());
        if !ask.budget.take(heap, Purpose::Grow) {
            return false;
        }
        let fill = self.entries.fill();
        let room = !fill.is_full() || self.resize(fill.grown(), ask.now, Purpose::Grow, ask.budget);
        if !room {
            ask.budget.give(heap);
        }
        room
    }

    /// Looks at up to `count` slots, and forgets entries that have expired.
    pub(in crate::memory) fn sweep(&mut self, now: Time, count: usize, budget: &MemoryBudget) {
        let (mut hand, mut left) = (self.hand, count);
        while self
            .entries
            .is_next_expired(&self.algorithm, now, &mut hand, &mut left)
        {
            self.forget(hand, now, budget);
        }
        self.hand = hand;
    }

    /// Shrinks the array if at most a quarter of its room is used.
    pub(in crate::memory) fn shrink(&mut self, now: Time, budget: &MemoryBudget) {
        if let Some(slots) = self.entries.fill().shrunk() {
            self.resize(slots, now, Purpose::Move, budget);
        }
    }

    /// Shrinks the array if it is nearly empty. Looks at the next [`SAMPLE`] entries, and forgets
    /// those that have expired; returns true if there were any. Counts entries and not slots, so that
    /// evictions thin out all parts of the array alike: where they did not, probes would grow long.
    pub(in crate::memory) fn forget_some(&mut self, ask: &TableAsk<'_>) -> bool {
        self.shrink(ask.now, ask.budget); // so that samples are found in a few steps
        let (len, slots, mut seen) = (self.len(), self.slots(), 0);
        for _ in 0..slots {
            self.hand = flat::before(self.hand, slots);
            seen += usize::from(self.forget_expired(self.hand, ask.now, ask.budget));
            if seen == SAMPLE {
                break;
            }
        }
        self.len() < len
    }

    /// Evicts the key that has used least of the [`SAMPLE`] that were looked at last; returns false
    /// if none may go.
    pub(in crate::memory) fn evict(&mut self, ask: &TableAsk<'_>) -> bool {
        let (now, budget) = (ask.now, ask.budget);
        let Some((rank, at)) = self.least_used(now.max(self.forgotten)) else {
            return false;
        };
        let lends_none = A::LENDS && rank.used == Permits::ZERO;
        if rank.expires_at <= now || lends_none {
            self.forget(at, now, budget);
        } else if A::KEEPS {
            return false; // permits on loan and credits would be lost
        } else if let Some(state) = self.remove(at, budget) {
            self.algorithm.stricter(&mut self.floor, &state);
            self.evicted.budget += 1;
        }
        true
    }

    /// Returns the slot of the key that has used least of those above the hand, and its rank.
    fn least_used(&self, judged_at: Time) -> Option<(Rank, usize)> {
        let slots = self.slots();
        let mut at = self.hand.min(slots.saturating_sub(1));
        let mut found = 0;
        let mut least: Option<(Rank, usize)> = None;
        for _ in 0..slots {
            if let Some(state) = self.entries.state(at) {
                let rank = Rank::of(&self.algorithm, state, judged_at);
                if least.is_none_or(|(least, _)| rank < least) {
                    least = Some((rank, at));
                }
                found += 1;
                if found == SAMPLE {
                    break;
                }
            }
            at = flat::next(at, slots);
        }
        least
    }

    /// Gives up a third of the array; evicts the keys that have used least, judged by a sample. One
    /// pass.
    pub(in crate::memory) fn squeeze(&mut self, now: Time, budget: &MemoryBudget) -> bool {
        let slots = self.slots() / 3 * 2;
        if slots == 0 || !budget.take(self.entries.bytes_of(slots), Purpose::Move) {
            return false;
        }
        let highest_evicted = self.lower_third(now.max(self.forgotten));
        self.rebuild(slots, now, highest_evicted, budget);
        true
    }

    /// Moves to an array of `slots`; returns false if that is too small, or over the budget.
    pub(super) fn resize(
        &mut self,
        slots: usize,
        now: Time,
        purpose: Purpose,
        budget: &MemoryBudget,
    ) -> bool {
        let fits = flat::most(slots) >= self.len();
        let resized = fits && budget.take(self.entries.bytes_of(slots), purpose);
        if resized {
            self.rebuild(slots, now, None, budget);
        }
        resized
    }

    /// Moves to an array of `slots`, the bytes of which have been taken. Evicts the keys up to a
    /// rank and those that do not fit. Forgets expired keys, which lie more densely the longer
    /// ago the hand was there: a smaller array would make long runs of them.
    fn rebuild(
        &mut self,
        slots: usize,
        now: Time,
        highest_evicted: Option<HashedRank>,
        budget: &MemoryBudget,
    ) {
        let (algorithm, judged_at) = (&self.algorithm, now.max(self.forgotten));
        let (before, per_state) = (self.bytes(), block(algorithm.heap_bytes()));
        let (floor, evicted) = (&mut self.floor, &mut self.evicted);
        let (heap_bytes, forgotten) = (&mut self.heap_bytes, &mut self.forgotten);
        let lapsed = &mut self.lapsed;
        let key_heap = self.entries.resize(slots, &mut |state, hash, room| {
            let expired = algorithm.expires_at(state, now) <= now;
            let rank = || Rank::of(algorithm, state, judged_at).hashed(hash);
            let stays = |highest| rank() > highest;
            if !expired && room == Room::Free && highest_evicted.is_none_or(stays) {
                return true;
            }
            *heap_bytes -= per_state;
            if expired {
                *forgotten = (*forgotten).max(now);
                *lapsed += algorithm.lapse(state, now);
                evicted.idle += 1;
            } else {
                algorithm.stricter(floor, state);
                evicted.budget += 1;
            }
            false
        });
        self.heap_bytes -= key_heap;
        // The bytes of the new array were taken on top of those in use before.
        budget.give(before + self.entries.bytes_of(slots) - self.bytes());
    }

    /// Adds a key for which room has been made.
    pub(super) fn insert(&mut self, ask: &TableAsk<'_>, state: A::State) {
        self.heap_bytes += self.heap_of(ask.key.len());
        self.entries.insert(ask.hash, ask.key, state);
    }

    /// Removes the key in a slot if it has expired; returns true if there was a key. Callers walk
    /// downwards: entries that move into the gap come from above, and have been looked at.
    fn forget_expired(&mut self, at: usize, now: Time, budget: &MemoryBudget) -> bool {
        let Some(state) = self.entries.state(at) else {
            return false;
        };
        if self.algorithm.expires_at(state, now) <= now {
            self.forget(at, now, budget);
        }
        true
    }

    /// Removes a key that has expired, or holds no permits.
    fn forget(&mut self, at: usize, now: Time, budget: &MemoryBudget) {
        if let Some(mut state) = self.remove(at, budget) {
            self.lapsed += self.algorithm.lapse(&mut state, now);
            self.forgotten = self.forgotten.max(now);
            self.evicted.idle += 1;
        }
    }

    /// Takes a key out, and gives its bytes back to the budget.
    pub(super) fn remove(&mut self, at: usize, budget: &MemoryBudget) -> Option<A::State> {
        let (state, key_heap, array) = self.entries.remove(at)?;
        let heap = key_heap + block(self.algorithm.heap_bytes());
        self.heap_bytes -= heap;
        budget.give(heap + array);
        Some(state)
    }

    /// Changes the account of all states to the size of states of `new`.
    pub(super) fn resize_states(&mut self, new: &A, budget: &MemoryBudget) -> bool {
        let bytes = |algorithm: &A| block(algorithm.heap_bytes()) * self.len();
        let (old, new) = (bytes(&self.algorithm), bytes(new));
        if !budget.take(new.saturating_sub(old), Purpose::Move) {
            return false;
        }
        budget.give(old.saturating_sub(new));
        self.heap_bytes = self.heap_bytes + new - old;
        true
    }

    /// Heap bytes of an entry with a key of this length.
    pub(super) fn heap_of(&self, key_length: usize) -> usize {
        key_heap(key_length) + block(self.algorithm.heap_bytes())
    }

    /// Returns the rank at which the lower third of the entries ends, estimated by a sample.
    fn lower_third(&self, judged_at: Time) -> Option<HashedRank> {
        let mut sample = Vec::with_capacity(QUANTILE_SAMPLE);
        for at in 0..self.slots() {
            let (Some(state), Some(hash)) = (self.entries.state(at), self.entries.hash(at)) else {
                continue;
            };
            if sample.len() == QUANTILE_SAMPLE {
                break;
            }
            let rank = Rank::of(&self.algorithm, state, judged_at).hashed(hash);
            sample.insert(sample.partition_point(|other| *other < rank), rank);
        }
        sample.get(sample.len() / 3).copied()
    }
}
