//! Pace: how a moment of the workload is reached, at once or by waiting for it.

use std::time::Duration;

use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{Origin, Time};

/// A way to reach the moments of a workload.
pub trait Pace {
    /// Comes to `moment`, and returns the time then: `moment`, or later.
    fn reach(&mut self, moment: Time) -> Time;
}

/// Virtual time: every moment is reached at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct VirtualTime;

impl Pace for VirtualTime {
    fn reach(&mut self, moment: Time) -> Time {
        moment
    }
}

/// The machine's clock, on which moments are waited for.
#[derive(Clone, Debug, Default)]
pub struct RealTime(SystemClock);

impl RealTime {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self(SystemClock::new())
    }

    /// Returns the Unix time of the clock's zero.
    pub fn origin(&self) -> Origin {
        self.0.origin()
    }
}

impl Pace for RealTime {
    #[expect(
        clippy::disallowed_methods,
        reason = "the user asked for real time, so later moments are waited for"
    )]
    fn reach(&mut self, moment: Time) -> Time {
        loop {
            let now = self.0.now();
            if now >= moment {
                return now;
            }
            std::thread::sleep(Duration::from(moment.since(now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Nanos;

    #[test]
    fn reach_never_returns_before_the_moment() {
        let moment = Time::ZERO + Nanos::from_millis(2);
        assert_eq!(VirtualTime.reach(moment), moment);
        assert!(RealTime::new().reach(moment) >= moment);
        let past = Time::ZERO;
        assert!(RealTime::new().reach(past) >= past);
    }
}
