//! Base: the time that work takes without waiting, and its repeated measurement.
//!
//! ```text
//!   limit |~~~~~~~~~~~~~~~~~~~.            .~~~~~~~~      after 300 windows that were all
//!         |                   |            |              slower than the base: for two
//!         |                   |____________|              windows, the limit less its
//!         |                    drains  measures           tolerance, and half of that
//! ```
//!
//! Half, so that a base that was measured too high is found out: a limit that rests at
//! `tolerance x base` is seen without waiting, unless the base was twice its true value, and
//! then it is halved. The first measurement comes soon, within 20 windows, because the first
//! limit may be too high.
//!
//! A server at capacity is never seen without waiting, so its base is unknown once it changes. A
//! window as fast as the base makes measuring needless for another 300, so that a server that is
//! not busy is not disturbed.

/// Windows for which the base is kept without a window as fast.
const BELIEVED_FOR: u32 = 300;
/// Windows from the start until it is measured for the first time, at most.
const FIRST_WITHIN: u32 = 20;
/// Windows at a low limit: one to drain, one to measure.
const PROBED_FOR: u32 = 2;
/// Share of the difference to a slower window that is learnt: an average of 600 windows.
const LEARNT: f64 = 2.0 / 601.0;
/// Share of the difference to a faster window that is learnt.
const LEARNT_FASTER: f64 = 0.2;

/// The time without waiting, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Base {
    /// Zero: not known yet.
    nanos: f64,
    /// Windows since it was last seen.
    age: u32,
    /// Age after a measurement: spreads a fleet's measurements.
    spread: u32,
    /// While it is measured: the limit before, and the windows left.
    probe: Option<(f64, u32)>,
}

/// How a law treats a window.
pub(super) enum WindowVerdict {
    /// Move the limit: the base.
    Known(f64),
    /// Leave the law out of it: the limit.
    Probing(f64),
}

impl Base {
    /// Unknown; `random` spreads the measurements of a fleet.
    pub(super) fn new(random: u64) -> Self {
        let below = |most: u32| u32::try_from(random % u64::from(most)).unwrap_or_default();
        Self {
            age: BELIEVED_FOR - below(FIRST_WITHIN),
            spread: below(BELIEVED_FOR / 2),
            ..Self::default()
        }
    }

    /// Records a window that took `time`; windows slower than `tolerance` times the base are not
    /// learnt.
    pub(super) fn see(&mut self, limit: f64, time: f64, tolerance: f64) -> WindowVerdict {
        if let Some((before, left)) = self.probe {
            if left > 1 {
                self.probe = Some((before, left - 1));
                return WindowVerdict::Probing(limit);
            }
            self.probe = None;
            self.age = std::mem::take(&mut self.spread);
            self.nanos = time;
            return WindowVerdict::Probing(before);
        }
        if self.nanos <= 0.0 {
            self.nanos = time;
        } else if time <= self.nanos {
            self.nanos += (time - self.nanos) * LEARNT_FASTER;
            self.age = 0;
        } else if time <= self.nanos * tolerance {
            self.nanos += (time - self.nanos) * LEARNT;
        }
        self.age += 1;
        if self.age > BELIEVED_FOR {
            self.probe = Some((limit, PROBED_FOR));
            return WindowVerdict::Probing(limit / (2.0 * tolerance));
        }
        WindowVerdict::Known(self.nanos)
    }
}
