//! Window: work that began and ended within it, as one sample.
//!
//! ```text
//!   |-------- window: at least 100 ms, and ten pieces of work --------|
//!      a ====x         b ======x                  c ======x             count
//!   d ===x                                                    e ====    began before; not over
//! ```
//!
//! The mean is exact. Every `2^k`-th time is kept, so that at most 512 are: enough for a 90th
//! percentile.

use ratekeeper_core::{Nanos, Time};

use super::{AdaptiveSettings, End, Sample};
use crate::sync::SET_BACK;

/// Times kept of one window.
pub(super) const MAX_KEPT: u32 = 512;

/// Work that has ended since the window began.
#[derive(Debug, Default)]
pub(super) struct WorkWindow {
    /// `None` before the first piece of work.
    began: Option<Time>,
    kept: Vec<u64>,
    /// One of `mask + 1` times is kept: a power of two, less one.
    mask: u64,
    done: u64,
    sum: u128,
    slowest: u64,
    dropped: u32,
}

impl WorkWindow {
    pub(super) fn add(&mut self, began: Time, now: Time, end: End) {
        let start = *self.began.get_or_insert(began);
        if start.since(now) > SET_BACK {
            // The clock was set back: the window begins anew, with this work.
            self.began = Some(now);
        } else if began < start {
            return; // under the limit before this one
        }
        let nanos = now.since(began).as_nanos();
        if end == End::Dropped {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        if self.done & self.mask == 0 {
            if self.kept.len() == MAX_KEPT as usize {
                let mut keep = false;
                self.kept.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.mask = self.mask << 1 | 1;
            }
            if self.done & self.mask == 0 {
                self.kept.push(nanos);
            }
        }
        self.done += 1;
        self.sum += u128::from(nanos);
        self.slowest = self.slowest.max(nanos);
    }

    pub(super) fn is_over(&self, now: Time, settings: &AdaptiveSettings) -> bool {
        let enough = self.done + u64::from(self.dropped) >= u64::from(settings.least_samples);
        let Some(began) = self.began else {
            return false;
        };
        enough && now.since(began) >= settings.window.into()
    }

    /// Returns the sample of the window; the next one begins at `now`.
    pub(super) fn close(&mut self, now: Time, in_flight: u32) -> Sample {
        let mean = self.sum / u128::from(self.done.max(1)); // down: a nanosecond is no matter
        let at = self.kept.len() * 9 / 10; // down: an index
        let p90 = if self.kept.is_empty() {
            0
        } else {
            *self.kept.select_nth_unstable(at).1
        };
        let sample = Sample {
            mean: Nanos::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)),
            p90: Nanos::from_nanos(p90),
            slowest: Nanos::from_nanos(self.slowest),
            in_flight,
            dropped: self.dropped,
        };
        self.kept.clear();
        *self = Self {
            began: Some(now),
            kept: std::mem::take(&mut self.kept),
            ..Self::default()
        };
        sample
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::ZERO + Nanos::from_micros(micros)
    }

    #[test]
    fn thinned_times_give_the_same_figures() {
        for count in [10, 512, 513, 1_024, 5_000, 100_000_u64] {
            let mut window = WorkWindow::default();
            for number in 0..count {
                let micros = number * 7_919 % count; // each once, in no order
                window.add(Time::ZERO, at(1 + micros), End::Done);
                assert!(window.kept.len() <= MAX_KEPT as usize);
            }
            let sample = window.close(at(0), 3);
            let micros = |nanos: Nanos| nanos.as_nanos() / 1_000;
            let p90 = micros(sample.p90) * 100 / count;
            assert!((80..=100).contains(&p90), "{p90} % of {count}");
            assert_eq!(micros(sample.mean), u64::midpoint(1, count), "exact");
            assert_eq!(micros(sample.slowest), count);
            assert_eq!((sample.in_flight, sample.dropped), (3, 0));
        }
    }

    #[test]
    fn calls_that_began_before_the_window_do_not_count() {
        let settings = AdaptiveSettings {
            least_samples: 1,
            ..AdaptiveSettings::default()
        };
        let mut window = WorkWindow::default();
        window.add(at(0), at(50), End::Done);
        assert!(!window.is_over(at(99_999), &settings));
        assert!(window.is_over(at(100_000), &settings));
        let _ = window.close(at(100_000), 1);
        window.add(at(99_999), at(300_000), End::Dropped);
        assert!(
            !window.is_over(at(300_000), &settings),
            "no call began in the window"
        );
        window.add(at(100_000), at(300_000), End::Dropped);
        assert!(window.is_over(at(300_000), &settings));
        assert_eq!(window.close(at(300_000), 1).dropped, 1);
    }
}
