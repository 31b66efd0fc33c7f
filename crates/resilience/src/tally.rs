//! Tally: number of recent events, and how many of them bear a mark.
//!
//! The window is cut into ten slots, one atomic word each. A word says which slot of all
//! time it counts, so a stale one is recognised and needs no clearing: after an idle week
//! the next call costs what any call costs.
//!
//! ```text
//!                  |<----------- window: 10 slots ---------->|
//!   all time  ...| 42 | 43 | 44 | 45 | 46 | 47 | 48 | 49 | 50 | 51 |
//!                                                               now
//!   word n of 10 holds slot number n, 10 + n, ...:   | slot | marked | all |
//!                                                     24 bit  20 bit  20 bit
//! ```
//!
//! * Sees the last 9 to 10 tenths of the window: the present slot is not yet full.
//! * A slot with more than 2^20 events halves both its counts: shares stay as they are.
//! * Slot numbers repeat after 2^24 slots: a word is mistaken for a present one only if its
//!   tally slept for that long to the slot (at 1 s a slot 2.7 years: five times 2^24, the
//!   first multiple that falls on the same word).

use ratekeeper_core::{Nanos, Time};

use crate::sync::{AtomicU64, Ordering};

/// Number of slots of the window. More slots cost memory and time; with ten, a tenth of the
/// window is forgotten at once.
pub(crate) const SLOTS: usize = 10;
const SLOTS_U64: u64 = SLOTS as u64;

const COUNT_BITS: u32 = 20;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const STAMP_BITS: u32 = 24;
const STAMP_MASK: u64 = (1 << STAMP_BITS) - 1;

/// Events, and those among them that bear the mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MarkedCount {
    pub(crate) all: u64,
    pub(crate) marked: u64,
}

/// Counts of the recent past, shared by threads.
#[derive(Debug)]
pub(crate) struct RecentTally {
    slots: [AtomicU64; SLOTS],
    /// Nanoseconds; above 0.
    slot_width: u64,
}

impl RecentTally {
    /// Returns `None` if a tenth of `window` is less than a nanosecond.
    pub(crate) fn new(window: Nanos) -> Option<Self> {
        let slot_width = window.as_nanos() / SLOTS_U64; // down: remembers at most the window
        (slot_width > 0).then(|| Self {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            slot_width,
        })
    }

    /// Returns the slot of all time in which `now` lies.
    pub(crate) fn slot(&self, now: Time) -> u64 {
        now.as_nanos() / self.slot_width
    }

    /// Counts events at `now`: at most 2^20 - 1 at once.
    pub(crate) fn add(&self, now: Time, events: MarkedCount) {
        let slot = self.slot(now);
        let word = &self.slots[(slot % SLOTS_U64) as usize];
        let add = |old| counted(old, slot, events);
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add); // or its slot is gone
    }

    /// Takes back an event without the mark that was counted at `at`, unless its slot is gone.
    pub(crate) fn take_back(&self, at: Time) {
        let slot = self.slot(at);
        let word = &self.slots[(slot % SLOTS_U64) as usize];
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
            let counts = TallyWord(old).age(slot) == 0 && TallyWord(old).count().all > 0;
            counts.then(|| old - 1) // the lowest bits count all
        });
    }

    /// Returns the counts of the window that ends at `now`.
    pub(crate) fn sum(&self, now: Time) -> MarkedCount {
        let slot = self.slot(now);
        let mut sum = MarkedCount::default();
        for word in &self.slots {
            let word = TallyWord(word.load(Ordering::Relaxed));
            // Threads read clocks that differ a little: a slot ahead is present too.
            if word.age(slot).unsigned_abs() < SLOTS_U64 {
                sum.all += word.count().all;
                sum.marked += word.count().marked;
            }
        }
        sum
    }

    /// Clears all counts. Events that other threads count meanwhile may stay.
    pub(crate) fn clear(&self) {
        for word in &self.slots {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Returns the word `old` with the events added; `None` if it counts a later slot, because a
/// thread that held a clock reading for a whole window comes too late.
fn counted(old: u64, slot: u64, events: MarkedCount) -> Option<u64> {
    let word = TallyWord(old);
    let mut count = match word.age(slot) {
        0 => word.count(),
        age if age < 0 && age.unsigned_abs() <= SLOTS_U64 => return None,
        _ => MarkedCount::default(),
    };
    count.all += events.all.min(COUNT_MAX);
    count.marked += events.marked.min(COUNT_MAX);
    while count.all.max(count.marked) > COUNT_MAX {
        count.all /= 2; // down, both: the share stays within one event
        count.marked /= 2;
    }
    Some(TallyWord::new(slot, count).0)
}

/// `slot | marked | all`.
#[derive(Clone, Copy)]
struct TallyWord(u64);

impl TallyWord {
    fn new(slot: u64, count: MarkedCount) -> Self {
        Self(((slot & STAMP_MASK) << (2 * COUNT_BITS)) | (count.marked << COUNT_BITS) | count.all)
    }

    fn count(self) -> MarkedCount {
        MarkedCount {
            all: self.0 & COUNT_MAX,
            marked: (self.0 >> COUNT_BITS) & COUNT_MAX,
        }
    }

    /// Returns by how many slots the word lies behind `slot`; negative if ahead.
    fn age(self, slot: u64) -> i64 {
        let behind = slot.wrapping_sub(self.0 >> (2 * COUNT_BITS)) & STAMP_MASK;
        // The upper half of the circle is the future.
        (behind << (64 - STAMP_BITS)).cast_signed() >> (64 - STAMP_BITS)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    const MARKED: MarkedCount = MarkedCount { all: 1, marked: 1 };
    const PLAIN: MarkedCount = MarkedCount { all: 1, marked: 0 };

    fn secs(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn tally() -> RecentTally {
        RecentTally::new(Nanos::from_secs(10)).unwrap()
    }

    #[test]
    fn events_older_than_the_window_are_gone() {
        let tally = tally();
        tally.add(secs(3), MARKED);
        tally.add(secs(3), PLAIN);
        tally.add(secs(9), PLAIN);
        for (at, all, marked) in [(9, 3, 1), (12, 3, 1), (13, 1, 0), (18, 1, 0), (19, 0, 0)] {
            assert_eq!(
                tally.sum(secs(at)),
                MarkedCount { all, marked },
                "at {at} s"
            );
        }
        tally.add(secs(13), PLAIN); // the same word as 3 s
        assert_eq!(tally.sum(secs(13)), MarkedCount { all: 2, marked: 0 });
    }

    #[test]
    fn late_reports_do_not_erase_newer_ones() {
        let tally = tally();
        tally.add(secs(13), MARKED);
        tally.add(secs(3), PLAIN);
        assert_eq!(tally.sum(secs(13)), MARKED);
        tally.add(secs(12), PLAIN);
        assert_eq!(tally.sum(secs(13)), MarkedCount { all: 2, marked: 1 });
    }

    #[test]
    fn a_clock_set_back_counts_anew() {
        let tally = tally();
        tally.add(secs(1_000), MARKED);
        tally.add(secs(0), PLAIN);
        assert_eq!(tally.sum(secs(0)), PLAIN);
    }

    #[test]
    fn shares_survive_any_number_of_events() {
        let tally = tally();
        for _ in 0..3 * COUNT_MAX {
            tally.add(secs(1), MARKED);
            tally.add(secs(1), PLAIN);
        }
        let sum = tally.sum(secs(1));
        let share = sum.marked * 1_000 / sum.all;
        assert!((499..=501).contains(&share), "{sum:?}");
    }
}
