//! Index: from a key's hash to the position of its entry.
//!
//! Open addressing with linear probing. A slot is one word: half of it hash, half of it
//! position, so probing reads one cache line or two and nothing else, and growing never
//! touches an entry. A hash's home is proportional to it, so slots lie nearly in order of
//! hash:
//!
//! ```text
//!   hash   0 .................................................. 2^32
//!   slot   | a | b |   | c | d | e |   |   | f |   |     home = hash x slots / 2^32
//!                        |   |   '- probed on, home taken
//! ```
//!
//! Growing and shrinking read the old slots and write the new ones front to back. The index
//! grows by half at 4/5 full: 10 to 15 bytes a key. Removal shifts what follows back into
//! the gap: there are no tombstones, and the index never ages.

/// The smallest index that holds anything.
const LEAST_SLOTS: usize = 8;
/// Positions take half a word; 0 marks an empty slot.
pub(super) const MOST_ENTRIES: usize = u32::MAX as usize - 1;

/// From hash to position; the hash's upper half is used.
#[derive(Debug, Default)]
pub(super) struct Index {
    slots: Box<[Slot]>,
    len: usize,
}

/// Upper half: upper half of the hash. Lower half: position + 1. 0: empty.
type Slot = u64;

fn slot(hash: u64, position: usize) -> Slot {
    (hash & !u64::from(u32::MAX)) | (position as u64 + 1)
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the lower half is the position"
)]
#[inline]
fn position(slot: Slot) -> usize {
    (slot as u32 - 1) as usize
}

impl Index {
    /// The position with this hash that `is_it`.
    #[inline]
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(usize) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let slot = self.slots[at];
            if slot == 0 {
                return None; // there is always an empty one
            }
            if slot >> 32 == hash >> 32 && is_it(position(slot)) {
                return Some(position(slot));
            }
            at = self.next(at);
        }
    }

    /// Adds a position. The caller has made room.
    pub(super) fn insert(&mut self, hash: u64, position: usize) {
        debug_assert!(!self.is_full() && position < MOST_ENTRIES);
        self.place(slot(hash, position));
        self.len += 1;
    }

    /// Removes a position that is there.
    pub(super) fn remove(&mut self, hash: u64, position: usize) {
        let Some(mut gap) = self.slot_of(hash, position) else {
            return;
        };
        let mut at = gap;
        loop {
            at = self.next(at);
            let slot = self.slots[at];
            if slot == 0 {
                break;
            }
            // It may move back to the gap unless its home lies behind the gap.
            if self.distance(self.home(slot), at) >= self.distance(gap, at) {
                self.slots[gap] = slot;
                gap = at;
            }
        }
        self.slots[gap] = 0;
        self.len -= 1;
    }

    /// The entry at `from` now lives at `to`.
    pub(super) fn renumber(&mut self, hash: u64, from: usize, to: usize) {
        if let Some(at) = self.slot_of(hash, from) {
            self.slots[at] = slot(hash, to);
        }
    }

    /// No more without growing.
    pub(super) fn is_full(&self) -> bool {
        self.len >= most(self.slots.len())
    }

    /// The size to grow to.
    pub(super) fn grown(&self) -> usize {
        (self.slots.len() + self.slots.len() / 2).max(LEAST_SLOTS)
    }

    /// A smaller size that would do, if a quarter of the room is used at most.
    pub(super) fn shrunk(&self) -> Option<usize> {
        let wanted = (self.len * 2).max(LEAST_SLOTS);
        (self.len <= most(self.slots.len()) / 4 && wanted < self.slots.len()).then_some(wanted)
    }

    /// Moves to `slots` slots, enough for all.
    pub(super) fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots].into());
        for &slot in old.iter().filter(|&&slot| slot != 0) {
            self.place(slot);
        }
    }

    /// Bytes of an index with that many slots.
    pub(super) fn bytes_of(slots: usize) -> usize {
        slots * size_of::<Slot>()
    }

    /// Bytes in use.
    pub(super) fn bytes(&self) -> usize {
        Self::bytes_of(self.slots.len())
    }

    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot);
        while self.slots[at] != 0 {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    fn slot_of(&self, hash: u64, position: usize) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let wanted = slot(hash, position);
        let mut at = self.home(hash);
        while self.slots[at] != 0 {
            if self.slots[at] == wanted {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    #[inline]
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.slots.len() as u64) >> 32) as usize
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() {
            0
        } else {
            at + 1
        }
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from {
            to - from
        } else {
            to + self.slots.len() - from
        }
    }
}

/// How many positions that many slots hold: 4/5, so that probing stays short.
fn most(slots: usize) -> usize {
    slots / 5 * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Few distinct hashes, so that runs collide and wrap.
        #[test]
        fn does_what_a_map_does(steps in prop::collection::vec((0_u64..40, 0_u8..4), 0..400)) {
            let mut index = Index::default();
            let mut model: HashMap<usize, u64> = HashMap::new();
            for (number, (hash, action)) in steps.into_iter().enumerate() {
                let hash = (hash * 0x0640_0000) << 32 | hash;
                match action {
                    0 | 1 => {
                        if index.is_full() {
                            index.resize(index.grown());
                        }
                        index.insert(hash, number);
                        model.insert(number, hash);
                    }
                    2 => {
                        if let Some((&at, &of)) = model.iter().min() {
                            index.remove(of, at);
                            model.remove(&at);
                        }
                        if let Some(smaller) = index.shrunk() {
                            index.resize(smaller);
                        }
                    }
                    _ => {
                        if let Some((&at, &of)) = model.iter().max() {
                            index.renumber(of, at, number + 1_000);
                            model.remove(&at);
                            model.insert(number + 1_000, of);
                        }
                    }
                }
                prop_assert_eq!(index.len, model.len());
                for (&at, &of) in &model {
                    prop_assert_eq!(index.find(of, |found| found == at), Some(at));
                }
                prop_assert_eq!(index.find(hash, |_| false), None);
            }
        }
    }
}
