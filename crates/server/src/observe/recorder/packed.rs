//! Packed: requests in the order in which they were noted, 8 bytes each.
//!
//! ```text
//!   request     | key: 38 bits of its hash | microseconds since the last: 22 | cost 1..=15: 4 |
//!   extension   | the time in microseconds, or the cost: 59 bits       | kind: 1 | 0: 4       |
//! ```
//!
//! A request whose cost or time does not fit has an extension for it before it, so that every cost
//! is exact. Two of 131,072 keys have the same 38 bits, and are taken for one key, in one of 32
//! such records.

use std::collections::VecDeque;

use ratekeeper_core::{Nanos, Permits, Time};

/// Bytes of a word.
pub(super) const WORD_BYTES: usize = size_of::<u64>();
const COST_BITS: u32 = 4;
const GAP_BITS: u32 = 22;
const KEY_MASK: u64 = u64::MAX << (COST_BITS + GAP_BITS);
const COST_MASK: u64 = (1 << COST_BITS) - 1;
const GAP_MASK: u64 = (1 << GAP_BITS) - 1;
/// Bits of an extension below its value: its kind, and a cost of 0.
const KIND_BITS: u32 = COST_BITS + 1;
const IS_COST: u64 = 1 << COST_BITS;
/// Gaps begin at this number of microseconds before the last request: threads note out of order.
const EARLIER: u64 = 1 << 16;
/// Maximum number of words of a request.
const MAX_WORDS: usize = 3;

/// A request of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordedRequest {
    /// The upper bits of the hash of its key.
    pub(crate) key: u64,
    /// In whole microseconds.
    pub(crate) at: Time,
    pub(crate) cost: Permits,
}

impl RecordedRequest {
    /// Creates the request of a key with that hash.
    pub(super) const fn new(hash: u64, at: Time, cost: Permits) -> Self {
        Self {
            key: hash & KEY_MASK,
            at,
            cost,
        }
    }
}

/// Requests, from the first to the last noted.
#[derive(Clone, Debug, Default)]
pub(super) struct PackedRequests {
    words: VecDeque<u64>,
    /// Number of requests.
    count: usize,
    /// Microseconds of the request before the first one, and of the last one.
    before: u64,
    last: u64,
}

impl PackedRequests {
    /// Adds a request at the end.
    pub(super) fn push(&mut self, request: RecordedRequest) {
        let (at, cost) = (micros(request.at), request.cost.get());
        let mut gap = at.wrapping_sub(self.last).wrapping_add(EARLIER);
        if gap > GAP_MASK {
            self.words.push_back(at << KIND_BITS);
            gap = 0;
        }
        let mut small = cost;
        if !(1..=COST_MASK).contains(&cost) {
            self.words.push_back((cost << KIND_BITS) | IS_COST);
            small = 1;
        }
        let word = (request.key & KEY_MASK) | (gap << COST_BITS) | small;
        self.words.push_back(word);
        self.count += 1;
        self.last = at;
    }

    /// Removes the first request.
    pub(super) fn pop(&mut self) -> Option<RecordedRequest> {
        let words = std::iter::from_fn(|| self.words.pop_front());
        let first = unpacked(words, self.before)?;
        self.count -= 1;
        self.before = micros(first.at);
        Some(first)
    }

    /// Returns the first request.
    pub(super) fn first(&self) -> Option<RecordedRequest> {
        unpacked(self.words.iter().copied(), self.before)
    }

    /// Returns the requests, the first one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = RecordedRequest> {
        let mut words = self.words.iter().copied();
        let mut before = self.before;
        std::iter::from_fn(move || {
            let next = unpacked(&mut words, before)?;
            before = micros(next.at);
            Some(next)
        })
    }

    /// Keeps the requests of some keys, within the memory that they have.
    ///
    /// The first may need a word more than before, for its time; a later one only if one between
    /// was left out.
    pub(super) fn retain(&mut self, stays: impl Fn(u64) -> bool) {
        for _ in 0..self.count {
            let first = self.pop();
            if let Some(first) = first.filter(|first| stays(first.key)) {
                self.push(first);
            }
        }
    }

    /// Returns the number of requests.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns true if any request fits in `most` words of memory, beside those that are in it; and
    /// [`retain`](Self::retain) does.
    pub(super) fn has_room(&self, most: usize) -> bool {
        self.words.len() + MAX_WORDS < most
    }

    /// Returns the number of bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.words.capacity() * WORD_BYTES
    }

    /// Gives memory back if most of it is not used.
    pub(super) fn shrink(&mut self) {
        let used = self.words.len();
        if used < self.words.capacity() / 4 {
            self.words.shrink_to(used * 2);
        }
    }

    /// Gives the memory beyond `most` words back.
    pub(super) fn shrink_to(&mut self, most: usize) {
        self.words.shrink_to(most);
    }
}

/// Returns the request that begins with the next word; `before` is the time of the one before it.
fn unpacked(mut words: impl Iterator<Item = u64>, before: u64) -> Option<RecordedRequest> {
    let (mut time, mut large) = (None, None);
    loop {
        let word = words.next()?;
        let small = word & COST_MASK;
        if small > 0 {
            let gap = (word >> COST_BITS) & GAP_MASK;
            let at = time.unwrap_or_else(|| (before + gap).saturating_sub(EARLIER));
            return Some(RecordedRequest {
                key: word & KEY_MASK,
                at: Time::ZERO + Nanos::from_micros(at),
                cost: Permits::new(large.unwrap_or(small)),
            });
        }
        let value = word >> KIND_BITS;
        if word & IS_COST == 0 {
            time = Some(value);
        } else {
            large = Some(value);
        }
    }
}

/// Returns whole microseconds; fewer than 2^55.
const fn micros(at: Time) -> u64 {
    at.as_nanos() / 1_000
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(key: u64, at_micros: u64, cost: u64) -> RecordedRequest {
        let at = Time::ZERO + Nanos::from_micros(at_micros);
        RecordedRequest::new(key << 26, at, Permits::new(cost))
    }

    fn filled(requests: &[RecordedRequest]) -> PackedRequests {
        let mut packed = PackedRequests::default();
        for request in requests {
            packed.push(*request);
        }
        packed
    }

    #[test]
    fn a_request_takes_8_bytes_and_an_extension_8_more() {
        let last = 1_000_000_000;
        for (at, cost, words) in [
            (last, 1, 1),
            (last + 4_000_000, 15, 1),
            (last - 60_000, 15, 1),
            (last + 4_200_000, 1, 2),
            (last - 70_000, 1, 2),
            (last, 16, 2),
            (0, (1 << 53) - 1, 3),
        ] {
            let requests = [request(1, last, 1), request((1 << 38) - 1, at, cost)];
            let packed = filled(&requests);
            assert_eq!(packed.words.len(), 2 + words, "{at} {cost}");
            assert_eq!(packed.iter().collect::<Vec<_>>(), requests);
        }
    }

    proptest! {
        #[test]
        fn requests_come_out_as_they_went_in(
            noted in proptest::collection::vec(
                (
                    0_u64..8,
                    prop_oneof![0_u64..1_000, 0_u64..10_000_000, 0_u64..1 << 54],
                    prop_oneof![1_u64..20, 1_u64..1 << 53],
                ),
                0..200,
            ),
            popped in 0_usize..20,
        ) {
            let mut noted: Vec<_> =
                noted.into_iter().map(|(key, at, cost)| request(key, at, cost)).collect();
            let mut packed = filled(&noted);
            for _ in 0..popped.min(noted.len()) {
                prop_assert_eq!(packed.pop(), Some(noted.remove(0)));
            }
            prop_assert_eq!(packed.first(), noted.first().copied());
            prop_assert_eq!(packed.count(), noted.len());
            let words = packed.words.len();
            let is_kept = |key: u64| key >> 26 & 1 == 0;
            packed.retain(is_kept);
            prop_assert!(packed.words.len() <= words + 1);
            noted.retain(|request| is_kept(request.key));
            prop_assert_eq!(packed.iter().collect::<Vec<_>>(), noted);
        }
    }
}
