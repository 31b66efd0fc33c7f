//! Sketch: the keys with the highest counts of a stream, in few counters, with a bound on the
//! error.
//!
//! ```text
//!   counters:  a 90  b 41+-3  c 7+-6     a new key `d` takes the counter with the lowest count:
//!              a 90  b 41+-3  d 8+-7     its count is 8, of which 7 may be those of others
//! ```
//!
//! For each key, with `n` keys noted in `m` counters:
//!
//! * `count - error <= number of times it was noted <= count`;
//! * a key without a counter was noted at most [`floor`](KeySketch::floor) times, which is at most
//!   `n / m`: each key noted more often has a counter.
//!
//! The counters are searched one by one: [`COUNTERS`] tags of 4 bytes are two cache lines, so a map
//! would be no faster. More counters are more sketches, each for a part of the keys. A counter with
//! the lowest count is searched from where the last search ended, because counts never fall: only
//! once a round a new lowest count is computed.
//!
//! Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in
//! Data Streams" (2005), the algorithm Space-Saving.

use std::sync::Arc;

use derive_more::Add;
use serde::Serialize;

use super::distinct::DistinctKeys;
use crate::byte_budget::{ByteBudget, HeldBytes};

/// Number of counters of a sketch.
pub(super) const COUNTERS: usize = 32;
/// Number of counters that are allocated at a time.
const STEP: usize = 4;

/// A key and its hash.
#[derive(Clone, Copy, Debug)]
pub(super) struct HashedKey<'a> {
    /// A key that a sketch returns has the lower half only.
    pub(super) hash: u64,
    pub(super) bytes: &'a [u8],
}

impl HashedKey<'_> {
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    const fn tag(self) -> u32 {
        self.hash as u32
    }
}

/// A count that is too high by `error` at most, and never too low.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Add, Serialize)]
pub(crate) struct Estimate {
    pub(crate) count: u64,
    pub(crate) error: u64,
}

/// The counters of a part of the keys.
#[derive(Debug)]
pub(super) struct KeySketch {
    /// By counter, apart from the entries so that a search reads little memory.
    tags: [u32; COUNTERS],
    counts: [u64; COUNTERS],
    entries: Vec<KeyEntry>,
    /// Number of keys noted.
    total: u64,
    /// Lowest count when a key last took the counter of another; 0 before.
    floor: u64,
    /// No counter before this one has the count `floor`.
    hand: usize,
    distinct: DistinctKeys,
    share: HeldBytes,
}

/// The key of a counter.
#[derive(Debug)]
struct KeyEntry {
    key: Vec<u8>,
    error: u64,
}

/// The counter of a key that was counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CountedKey {
    pub(super) index: usize,
    /// Number of times that the key surely was noted since it got the counter: 1 if just now.
    pub(super) sure: u64,
}

impl KeySketch {
    /// Creates a sketch without counters; `None` if the budget has no room for it.
    pub(super) fn new(budget: &Arc<ByteBudget>) -> Option<Box<Self>> {
        Some(Box::new(Self {
            tags: [0; COUNTERS],
            counts: [0; COUNTERS],
            entries: Vec::new(),
            total: 0,
            floor: 0,
            hand: 0,
            distinct: DistinctKeys::new(),
            share: budget.take(size_of::<Self>())?,
        }))
    }

    /// Takes bytes of the budget for as long as the sketch lives; returns false if it has fewer.
    pub(super) fn reserve(&mut self, bytes: usize) -> bool {
        self.share.grow(bytes)
    }

    /// Counts a key once. Returns `None`, and counts nothing, if the budget has no room for it.
    pub(super) fn add(&mut self, key: HashedKey<'_>) -> Option<CountedKey> {
        self.distinct.add(key.hash);
        let index = match self.find(key) {
            Some(index) => index,
            None => self.place(key)?,
        };
        self.counts[index] += 1;
        self.total += 1;
        let sure = self.counts[index] - self.entries.get(index)?.error;
        Some(CountedKey { index, sure })
    }

    /// Returns the counter of a key, if it has one.
    pub(super) fn find(&self, key: HashedKey<'_>) -> Option<usize> {
        let tag = key.tag();
        // All tags, without a branch, so that several are compared at once.
        let mut equal = 0_u32;
        for (index, other) in self.tags.iter().enumerate() {
            equal |= u32::from(*other == tag) << index;
        }
        while equal != 0 {
            let index = equal.trailing_zeros() as usize;
            let entry = self.entries.get(index);
            if entry.is_some_and(|entry| *entry.key == *key.bytes) {
                return Some(index);
            }
            equal &= equal - 1;
        }
        None
    }

    /// Returns a counter for a key that has none: a new one if there is room, or else one with the
    /// lowest count, which stays as the error.
    fn place(&mut self, key: HashedKey<'_>) -> Option<usize> {
        let length = key.bytes.len();
        let next = self.entries.len();
        let index = if next < COUNTERS && self.has_room() && self.share.grow(length) {
            let mut bytes = Vec::new();
            bytes.reserve_exact(length);
            self.entries.push(KeyEntry {
                key: bytes,
                error: 0,
            });
            next
        } else {
            let lowest = self.lowest()?;
            let entry = &mut self.entries[lowest];
            let more = length.saturating_sub(entry.key.capacity());
            if more > 0 && !self.share.grow(more) {
                return None;
            }
            entry.key.clear();
            entry.key.reserve_exact(length);
            self.floor = self.counts[lowest];
            lowest
        };
        (self.tags[index], self.counts[index]) = (key.tag(), self.floor);
        let entry = self.entries.get_mut(index)?;
        entry.key.extend_from_slice(key.bytes);
        entry.error = self.floor;
        Some(index)
    }

    /// Allocates counters if none is free; returns false if the budget has no room for them.
    fn has_room(&mut self) -> bool {
        let entries = &mut self.entries;
        if entries.len() == entries.capacity() {
            if !self.share.grow(STEP * size_of::<KeyEntry>()) {
                return false;
            }
            entries.reserve_exact(STEP);
        }
        true
    }

    /// Returns a counter with the lowest count.
    fn lowest(&mut self) -> Option<usize> {
        let counts = &self.counts[..self.entries.len()];
        let after = counts.get(self.hand..).unwrap_or_default();
        let next = after.iter().position(|count| *count == self.floor);
        let index = if let Some(next) = next {
            self.hand + next
        } else {
            let lowest = counts.iter().min()?;
            counts.iter().position(|count| count == lowest)?
        };
        self.hand = index;
        Some(index)
    }

    /// Returns the maximum number of times that a key without a counter was noted.
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the number of keys noted, each as often as it was.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Returns the different keys, of which one without room is one too.
    pub(super) fn distinct(&self) -> &DistinctKeys {
        &self.distinct
    }

    /// Returns the count of a key.
    pub(super) fn estimate(&self, key: HashedKey<'_>) -> Estimate {
        let floor = self.floor();
        let absent = Estimate {
            count: floor,
            error: floor,
        };
        self.find(key).map_or(absent, |index| Estimate {
            count: self.counts[index],
            error: self.entries[index].error,
        })
    }

    /// Returns the keys with a counter.
    pub(super) fn keys(&self) -> impl Iterator<Item = HashedKey<'_>> {
        let entries = self.tags.iter().zip(&self.entries);
        entries.map(|(tag, entry)| HashedKey {
            hash: u64::from(*tag),
            bytes: &entry.key,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Feeds `stream` to a sketch, and holds each count against the exact one.
    fn check(stream: &[u32], budget: usize) -> (usize, u64) {
        let budget = ByteBudget::new(budget);
        let mut sketch = KeySketch::new(&budget).unwrap();
        let mut exact: HashMap<u32, u64> = HashMap::new();
        let bytes = |key: u32| key.to_le_bytes();
        // Few hashes, so that keys with the same hash occur.
        let hash = |key: u32| u64::from(key) % 1_000;
        let mut counted = 0;
        for &key in stream {
            let bytes = bytes(key);
            let hashed = HashedKey {
                hash: hash(key),
                bytes: &bytes,
            };
            if sketch.add(hashed).is_some() {
                counted += 1;
                *exact.entry(key).or_default() += 1;
            }
        }
        assert_eq!(sketch.total(), counted);
        let places = sketch.entries.len();
        let floor = sketch.floor();
        assert!(floor <= counted / places.max(1) as u64, "{floor}");
        let mut listed = 0;
        for (&key, &count) in &exact {
            let bytes = bytes(key);
            let hashed = HashedKey {
                hash: hash(key),
                bytes: &bytes,
            };
            let estimate = sketch.estimate(hashed);
            assert!(estimate.count >= count, "{key}: {estimate:?}, {count}");
            assert!(
                estimate.count - estimate.error <= count,
                "{key}: {estimate:?}, {count}"
            );
            listed += usize::from(sketch.find(hashed).is_some());
            assert!(sketch.find(hashed).is_some() || count <= floor, "{key}");
        }
        assert_eq!(listed, sketch.keys().count(), "each counter has one key");
        (places, floor)
    }

    /// Draws keys of which the `k`-th is as frequent as `1/k`.
    fn zipf(seed: u64, keys: u32, length: usize) -> Vec<u32> {
        let mut state = seed | 1;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let part = f64::from(u32::try_from(state >> 32).unwrap_or_default()) / 2_f64.powi(32);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "1..=keys"
            )]
            let key = f64::from(keys).powf(part) as u32;
            key
        };
        (0..length).map(|_| draw()).collect()
    }

    const ROOMY: usize = 1 << 20;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn counts_of_any_stream_are_within_their_errors(
            stream in proptest::collection::vec(0_u32..200, 0..2_000),
            budget in (size_of::<KeySketch>() + 300)..8_000_usize,
        ) {
            check(&stream, ROOMY);
            check(&stream, budget);
        }

        #[test]
        fn counts_of_a_zipf_stream_are_within_their_errors(seed: u64) {
            let (places, _) = check(&zipf(seed, 5_000, 5_000), ROOMY);
            prop_assert_eq!(places, COUNTERS);
        }
    }

    #[test]
    fn adversarial_streams_stay_within_the_bound() {
        let counters = u32::try_from(COUNTERS).unwrap();
        // All different: each key takes the counter of another.
        check(&(0..5_000).collect::<Vec<_>>(), ROOMY);
        // A cycle of one key more than there are counters: each key was just replaced.
        let cycle: Vec<u32> = (0..5_000).map(|n| n % (counters + 1)).collect();
        let (_, floor) = check(&cycle, ROOMY);
        assert!(floor > 0);
        // A heavy key that comes after a flood of others, and one that stops before it.
        let mut late: Vec<u32> = vec![1; 1_000];
        late.extend(10..3_000);
        late.extend([2; 1_000]);
        check(&late, ROOMY);
    }

    #[test]
    fn a_sketch_without_room_for_a_key_counts_nothing() {
        let budget = ByteBudget::new(size_of::<KeySketch>());
        let mut sketch = KeySketch::new(&budget).unwrap();
        let key = HashedKey {
            hash: 1,
            bytes: b"key",
        };
        assert!(sketch.add(key).is_none());
        assert_eq!(sketch.total(), 0);
        assert!(KeySketch::new(&budget).is_none());
    }
}
