//! Flat: entries in one array, found by hash with linear probing.
//!
//! A hash's home is proportional to it, so entries are nearly in order of hash, and the slots
//! that a probe reads are adjacent: mostly one cache line, seldom three.
//!
//! ```text
//!   hash   0 .................................................. 2^32
//!   slot   | a | b |   | c | d | e |   |   | f |   |     home = hash x slots / 2^32
//!                        |   |   '- probed on, home taken
//! ```
//!
//! It is at most 4/5 full and grows by a quarter, reading the old and writing the new array front
//! to back: 1.25 to 1.6 slots a key. Removal shifts the next entries back into the gap: there are
//! no tombstones, and the array never ages.
//!
//! Each slot has a *tag*, a byte: 0 for an empty slot, else seven bits of the hash. A
//! look-up compares eight tags at once and goes to the one slot that matches. Without tags, every
//! probe would have to read an entry, which is a cache miss.
//!
//! ```text
//!   tag    | 9c | e1 |  0 | 85 | 9c | d2 |  0 |  0 | f7 |  0 | 9c | e1 ...   first 7 again
//!            '------- one read of eight: which is 85? ----'
//! ```

use std::hint::black_box;
use std::ops::RangeInclusive;

/// The smallest array that holds anything.
const MIN_SLOTS: usize = 5;
/// Tags compared at once.
const GROUP: usize = size_of::<u64>();
/// The lowest bit of each tag of a group.
const LOW: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each tag of a group.
const HIGH: u64 = LOW << 7;

/// Room for another entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    Full,
}

/// A part of all hashes.
pub(super) type HashSpan = RangeInclusive<u64>;

/// How full an array is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) len: usize,
    /// Number of slots, including empty ones.
    pub(super) slots: usize,
}

impl Fill {
    /// Returns true if no entry fits without growing.
    pub(super) fn is_full(self) -> bool {
        self.len >= most(self.slots)
    }

    /// Returns the number of slots to grow to.
    pub(super) fn grown(self) -> usize {
        (self.slots + (self.slots / 4).max(2)).max(MIN_SLOTS)
    }

    /// Returns a smaller sufficient size, if at most a quarter of the room is used.
    pub(super) fn shrunk(self) -> Option<usize> {
        let wanted = slots_for(self.len);
        (self.len <= most(self.slots) / 4 && wanted < self.slots).then_some(wanted)
    }
}

/// Written with plain loops: it is compiled for each algorithm and size of key, some forty times,
/// and a chain of iterators would add ten functions each time.
#[derive(Debug)]
pub(super) struct Flat<T> {
    /// As long as it has room for.
    slots: Vec<Option<T>>,
    /// One for each slot, then the first slots' again, so that a group can be read
    /// at any slot.
    tags: Box<[u8]>,
    len: usize,
}

impl<T> Flat<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            tags: Box::default(),
            len: 0,
        }
    }

    #[inline]
    pub(super) fn fill(&self) -> Fill {
        Fill {
            len: self.len,
            slots: self.slots.len(),
        }
    }

    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<&T> {
        reads::note();
        self.slots.get(at)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots.get_mut(at)?.as_mut()
    }

    pub(super) fn as_slots(&self) -> &[Option<T>] {
        &self.slots
    }

    /// Returns the slot where an entry with this hash most likely is, if it is here; the slot may
    /// hold another, or none, or not exist. Does not branch on the contents of memory.
    #[expect(clippy::inline_always, reason = "see `MemoryStore::decide_one`")]
    #[inline(always)]
    pub(super) fn likely(&self, hash: u64) -> Option<usize> {
        let at = home(hash, self.slots.len());
        // The home itself is read along with the tags, not after them: the entry is there, or
        // beside it on the same cache line, more often than not.
        black_box(self.slots.get(at).map(Option::is_some));
        let group = u64::from_le_bytes(*self.tags.get(at..)?.first_chunk()?);
        Some(at + equal(group, hash).trailing_zeros() as usize / 8)
    }

    /// Returns the slot of the entry with this hash for which `is_it` is true.
    pub(super) fn find(&self, hash: u64, mut is_it: impl FnMut(&T) -> bool) -> Option<usize> {
        let slots = self.slots.len();
        let mut at = home(hash, slots);
        loop {
            reads::note();
            let group = self.tags.get(at..)?.first_chunk()?;
            let group = u64::from_le_bytes(*group);
            let empty = !group & HIGH;
            let before = empty.wrapping_sub(1) & !empty; // all, if none is empty
            let mut candidates = equal(group, hash) & before;
            while candidates != 0 {
                let found = wrap(at + candidates.trailing_zeros() as usize / 8, slots);
                if self.get(found).is_some_and(&mut is_it) {
                    return Some(found);
                }
                candidates &= candidates - 1;
            }
            if empty != 0 {
                return None; // there is always an empty one
            }
            at = wrap(at + GROUP, slots);
        }
    }

    /// Sets the tag of a slot, and its copy past the end if it has one.
    fn set_tag(&mut self, at: usize, tag: u8) {
        let slots = self.slots.len();
        let mut place = at;
        while let Some(here) = self.tags.get_mut(place) {
            *here = tag;
            place += slots;
        }
    }

    /// Adds an entry. The caller has made room.
    pub(super) fn insert(&mut self, hash: u64, entry: T) {
        debug_assert!(!self.fill().is_full());
        let mut at = home(hash, self.slots.len());
        while self.slots[at].is_some() {
            reads::note();
            at = next(at, self.slots.len());
        }
        self.slots[at] = Some(entry);
        self.set_tag(at, tag(hash));
        self.len += 1;
    }

    /// Takes an entry out; the next entries move back into the gap.
    pub(super) fn remove(&mut self, at: usize, hash_of: impl Fn(&T) -> u64) -> Option<T> {
        let slots = self.slots.len();
        let removed = self.slots.get_mut(at)?.take()?;
        self.len -= 1;
        let (mut gap, mut at) = (at, next(at, slots));
        while let Some(entry) = &self.slots[at] {
            reads::note();
            // It may move unless its home lies behind the gap.
            let hash = hash_of(entry);
            if distance(home(hash, slots), at, slots) >= distance(gap, at, slots) {
                self.slots[gap] = self.slots[at].take();
                self.set_tag(gap, tag(hash));
                gap = at;
            }
            at = next(at, slots);
        }
        self.set_tag(gap, 0);
        Some(removed)
    }

    /// Changes the number of slots. `keep` receives each entry, its hash, and whether the new array
    /// has room; the entries for which it returns true stay.
    pub(super) fn resize(
        &mut self,
        slots: usize,
        hash_of: impl Fn(&T) -> u64,
        mut keep: impl FnMut(&mut T, u64, Room) -> bool,
    ) {
        let mut empty = Vec::with_capacity(slots);
        empty.resize_with(slots, || None);
        let mut old = std::mem::replace(&mut self.slots, empty);
        self.tags = vec![0; tags_for(slots)].into();
        self.len = 0;
        let most = most(slots);
        for slot in &mut old {
            reads::note();
            let Some(mut entry) = slot.take() else {
                continue;
            };
            let room = if self.len >= most {
                Room::Full
            } else {
                Room::Free
            };
            let hash = hash_of(&entry);
            if keep(&mut entry, hash, room) {
                self.insert(hash, entry);
            }
        }
    }

    /// Bytes of an array with `slots` slots.
    pub(super) const fn bytes_of(slots: usize) -> usize {
        slots
            .saturating_mul(size_of::<Option<T>>())
            .saturating_add(tags_for(slots))
    }
}

/// Calls `each` with the slots of entries that have a hash in `span`: the slots from the home of its
/// start to the first empty one behind the home of its end are read. An entry is in one span,
/// wherever it moves.
pub(super) fn each_in(
    slots: usize,
    span: &HashSpan,
    hash_at: &dyn Fn(usize) -> Option<u64>,
    each: &mut dyn FnMut(usize),
) {
    let (start, end) = (home(*span.start(), slots), home(*span.end(), slots));
    for step in start..start + slots {
        let at = wrap(step, slots);
        match hash_at(at) {
            Some(hash) if span.contains(&hash) => each(at),
            None if step >= end => return,
            _ => {}
        }
    }
}

/// Number of tags for `slots` slots.
const fn tags_for(slots: usize) -> usize {
    if slots == 0 { 0 } else { slots + GROUP - 1 }
}

/// Bits of the hash that choose neither slot nor shard; the highest marks a full slot.
#[expect(clippy::cast_possible_truncation, reason = "only seven bits are used")]
#[inline]
fn tag(hash: u64) -> u8 {
    (hash >> 16) as u8 | 0x80
}

/// Returns the highest bit of each tag of a group that equals the tag of `hash`; a different tag
/// behind an equal one may be taken for equal.
#[inline]
fn equal(group: u64, hash: u64) -> u64 {
    let differ = group ^ (LOW * u64::from(tag(hash)));
    differ.wrapping_sub(LOW) & !differ & HIGH
}

/// Wraps `at`, which is at most a few times `slots`, to the start of the array.
#[inline]
fn wrap(at: usize, slots: usize) -> usize {
    if at < slots { at } else { at % slots }
}

/// Maximum number of entries in `slots` slots: 4/5, so that probing stays short.
pub(super) fn most(slots: usize) -> usize {
    slots - slots.div_ceil(5) // rounded down: at least one is empty
}

/// Slots that hold `len` entries, with room for half as many again.
pub(super) fn slots_for(len: usize) -> usize {
    match len {
        0 => 0,
        len => (len * 2).max(MIN_SLOTS),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the result is below the number of slots"
)]
#[inline]
fn home(hash: u64, slots: usize) -> usize {
    ((u128::from(hash) * slots as u128) >> 64) as usize
}

#[inline]
pub(super) fn next(at: usize, slots: usize) -> usize {
    if at + 1 == slots { 0 } else { at + 1 }
}

/// Returns the slot before `at`, the last one before the first; `at` may be out of range.
#[inline]
pub(super) fn before(at: usize, slots: usize) -> usize {
    match at.min(slots) {
        0 => slots.saturating_sub(1),
        at => at - 1,
    }
}

fn distance(from: usize, to: usize, slots: usize) -> usize {
    if to >= from {
        to - from
    } else {
        to + slots - from
    }
}

/// Counts the slots that a test's calls read, and groups of tags.
pub(super) mod reads {
    #[cfg(test)]
    thread_local!(static COUNT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) });

    #[inline]
    pub(super) fn note() {
        #[cfg(test)]
        COUNT.set(COUNT.get() + 1);
    }

    /// Returns the count since the last call.
    #[cfg(test)]
    pub(in crate::memory) fn take() -> usize {
        COUNT.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        /// Few distinct hashes, so that runs collide and wrap.
        #[test]
        fn a_flat_map_behaves_like_a_hash_map(
            steps in prop::collection::vec((0_u64..40, 0_u8..4), 0..400)
        ) {
            let hash_of = |entry: &(u64, usize)| entry.0;
            let mut flat = Flat::new();
            let mut model: HashMap<usize, u64> = HashMap::new();
            for (number, (hash, action)) in steps.into_iter().enumerate() {
                let hash = hash * 0x0640_0000_0000_0000;
                if action < 3 {
                    if flat.fill().is_full() {
                        flat.resize(flat.fill().grown(), hash_of, |_, _, _| true);
                    }
                    flat.insert(hash, (hash, number));
                    model.insert(number, hash);
                } else if let Some((&it, &of)) = model.iter().min() {
                    let at = flat.find(of, |entry| entry.1 == it).unwrap();
                    prop_assert_eq!(flat.remove(at, hash_of), Some((of, it)));
                    model.remove(&it);
                    if let Some(smaller) = flat.fill().shrunk() {
                        flat.resize(smaller, hash_of, |_, _, _| true);
                    }
                }
                prop_assert_eq!(flat.fill().len, model.len());
                prop_assert_eq!(flat.as_slots().iter().flatten().count(), model.len());
                for (&it, &of) in &model {
                    prop_assert!(flat.find(of, |entry| entry.1 == it).is_some());
                }
                prop_assert_eq!(flat.find(hash, |_| false), None);
                let mut seen = Vec::new();
                for span in [0..=hash / 2, hash / 2 + 1..=u64::MAX] {
                    let hash_at = |at| flat.get(at).map(hash_of);
                    each_in(flat.fill().slots, &span, &hash_at, &mut |at| {
                        seen.extend(flat.get(at).map(|entry| entry.1));
                    });
                }
                seen.sort_unstable();
                let mut all: Vec<_> = model.keys().copied().collect();
                all.sort_unstable();
                prop_assert_eq!(seen, all);
            }
        }

        #[test]
        fn entries_that_do_not_fit_are_handed_out(count in 1_usize..200, slots in 5_usize..100) {
            let hash_of = |entry: &u64| entry.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut flat = Flat::new();
            for number in 0..count as u64 {
                if flat.fill().is_full() {
                    flat.resize(flat.fill().grown(), hash_of, |_, _, _| true);
                }
                flat.insert(hash_of(&number), number);
            }
            let mut out = Vec::new();
            flat.resize(slots, hash_of, |number, _, room| {
                let stays = *number % 3 > 0 && room == Room::Free;
                if !stays {
                    out.push(*number);
                }
                stays
            });
            prop_assert_eq!(out.len() + flat.fill().len, count);
            prop_assert!(flat.fill().len <= most(slots));
            prop_assert!(flat.as_slots().iter().flatten().all(|number| number % 3 > 0));
        }
    }
}
