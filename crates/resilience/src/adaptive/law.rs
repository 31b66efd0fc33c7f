//! Law: moves the limit from one window to the next, as a pure function.
//!
//! ```text
//!   (level, sample) --> level'       level: the limit, not rounded, and the base of times
//!
//!   less than half the limit at work, nothing dropped: the limit stays
//!   a window without times (all was dropped):          the base stays
//!   always: least <= limit <= most, and never not a number
//! ```

use ratekeeper_core::Nanos;

use super::base::{Base, WindowVerdict};
use super::{Aimd, Gradient, Sample, Vegas};
use crate::Error;

/// Highest upper bound of a limit, whatever the settings.
const MAX_LIMIT: u32 = 1_000_000;

/// Initial value and bounds of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bounds {
    /// Lower bound; at least 1.
    pub least: u32,
    /// Upper bound; at most 1,000,000.
    pub most: u32,
    /// Initial limit, between the two.
    pub initial: u32,
}

impl Default for Bounds {
    /// 20 to 200, from 20: lower `least` for servers that bear less.
    fn default() -> Self {
        Self {
            least: 20,
            most: 200,
            initial: 20,
        }
    }
}

impl Bounds {
    pub(super) fn validate(self) -> Result<(), Error> {
        let ordered = 1 <= self.least && self.least <= self.initial && self.initial <= self.most;
        if ordered && self.most <= MAX_LIMIT {
            Ok(())
        } else {
            Err(Error::Bounds)
        }
    }
}

/// Rule that moves the limit; see the [module](super) on which to choose.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Law {
    /// By the ratio of times.
    Gradient(Gradient),
    /// By the length of the queue.
    Vegas(Vegas),
    /// By dropped work.
    Aimd(Aimd),
}

impl Default for Law {
    fn default() -> Self {
        Self::Gradient(Gradient::default())
    }
}

/// State of a limit between two windows.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Level {
    /// At least 1, and never not a number.
    limit: f64,
    base: Base,
}

impl Level {
    /// Returns the limit in whole permits.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "1 to 1,000,000, rounded down"
    )]
    pub fn limit(&self) -> u32 {
        self.limit as u32
    }

    pub(super) fn within(mut self, bounds: Bounds) -> Self {
        let (least, most) = (f64::from(bounds.least), f64::from(bounds.most));
        self.limit = self.limit.clamp(least, most);
        self
    }

    /// Returns the next limit of a law that uses times.
    fn by_times(
        &mut self,
        time: f64,
        tolerance: f64,
        sample: &Sample,
        next: impl Fn(f64, f64) -> f64,
    ) -> f64 {
        if sample.mean == Nanos::ZERO {
            // No work was done. Dropped work counts as infinitely slow.
            return if sample.dropped > 0 {
                next(1.0, f64::MAX)
            } else {
                self.limit
            };
        }
        let time = time.max(1.0);
        match self.base.see(self.limit, time, tolerance) {
            WindowVerdict::Probing(limit) => limit,
            WindowVerdict::Known(base) if is_conclusive(self.limit, sample) => next(base, time),
            WindowVerdict::Known(_) => self.limit,
        }
    }
}

impl Law {
    /// Returns the level before any window; `random` keeps the limits of a fleet apart.
    ///
    /// ```
    /// use ratekeeper_resilience::{Bounds, Law};
    /// assert_eq!(Law::default().start(Bounds::default(), 7).limit(), 20);
    /// ```
    pub fn start(&self, bounds: Bounds, random: u64) -> Level {
        Level {
            limit: f64::from(bounds.initial),
            base: Base::new(random),
        }
    }

    /// Returns the level after a window that showed `sample`.
    ///
    /// ```
    /// use ratekeeper_core::Nanos;
    /// use ratekeeper_resilience::{Aimd, Bounds, Law, Sample};
    /// let (law, bounds) = (Law::Aimd(Aimd::default()), Bounds::default());
    /// let (mean, p90, slowest) = (Nanos::from_millis(5), Nanos::from_millis(9), Nanos::SECOND);
    /// let mut sample = Sample { mean, p90, slowest, in_flight: 20, dropped: 0 };
    /// let mut level = law.next(bounds, law.start(bounds, 0), &sample);
    /// assert_eq!(level.limit(), 21);
    /// sample.in_flight = 10;
    /// level = law.next(bounds, level, &sample);
    /// assert_eq!(level.limit(), 21, "half of it was not used");
    /// sample.slowest = Nanos::from_secs(6);
    /// level = law.next(bounds, level, &sample);
    /// assert!(level.limit() < 21, "slower than the time-out, however little is used");
    /// ```
    pub fn next(&self, bounds: Bounds, mut level: Level, sample: &Sample) -> Level {
        let limit = level.limit;
        let next = match self {
            Self::Aimd(aimd) if aimd.backs_off(sample) || is_conclusive(limit, sample) => {
                aimd.next(limit, sample)
            }
            Self::Aimd(_) => limit,
            Self::Gradient(gradient) => {
                let move_by = |base, time| gradient.next(limit, base, time, sample);
                level.by_times(nanos(sample.p90), gradient.tolerance(), sample, move_by)
            }
            Self::Vegas(vegas) => {
                let move_by = |base, time| vegas.next(limit, base, time, sample);
                level.by_times(nanos(sample.mean), 1.0, sample, move_by)
            }
        };
        let next = if next.is_finite() { next } else { limit };
        level.limit = next;
        level.within(bounds)
    }

    pub(super) fn validate(&self) -> Result<(), Error> {
        let valid = match self {
            Self::Gradient(gradient) => gradient.is_valid(),
            Self::Vegas(vegas) => vegas.is_valid(),
            Self::Aimd(aimd) => aimd.is_valid(),
        };
        if valid { Ok(()) } else { Err(Error::Law) }
    }
}

/// Returns true if the limit was used, or was too high.
fn is_conclusive(limit: f64, sample: &Sample) -> bool {
    sample.dropped > 0 || f64::from(sample.in_flight) * 2.0 >= limit
}

/// Converts to a float; exact up to 104 days.
#[expect(clippy::cast_precision_loss, reason = "a ratio of times needs no more")]
fn nanos(span: Nanos) -> f64 {
    span.as_nanos() as f64
}
