//! AIMD: one more while all goes well, a tenth less when work is dropped.
//!
//! ```text
//!   limit |     /|    /|    /|       L := 0.9 L     if work was dropped, or took 5 s
//!         |    / |   / |   / |            L + 1     else
//!         |   /  |  /  |  /  |
//!         |  /   | /   | /   |/      converges to a fair share among clients with this law
//!         +------------------------ windows
//! ```
//!
//! * Choose it where the server signals overload: it refuses, or times out. It needs no times,
//!   so work of any length is welcome.
//! * Trade-off: it goes up until something breaks, again and again.
//! * Source: D.-M. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for
//!   congestion avoidance in computer networks" (1989).

use std::time::Duration;

use super::Sample;

/// Additive increase, multiplicative decrease; see the [module](super) on how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aimd {
    /// Share of the limit that is kept when work is dropped, in percent; 1 to 99. Default 90.
    pub back_off_percent: u32,
    /// Work that took longer counts as dropped. Default 5 s.
    pub timeout: Duration,
}

impl Default for Aimd {
    fn default() -> Self {
        Self {
            back_off_percent: 90,
            timeout: Duration::from_secs(5),
        }
    }
}

impl Aimd {
    /// Returns true if work was dropped, or took longer than the time-out.
    pub(super) fn backs_off(&self, sample: &Sample) -> bool {
        sample.dropped > 0 || sample.slowest > self.timeout.into()
    }

    pub(super) fn next(&self, limit: f64, sample: &Sample) -> f64 {
        if self.backs_off(sample) {
            return limit * f64::from(self.back_off_percent) / 100.0;
        }
        limit + 1.0
    }

    pub(super) fn is_valid(&self) -> bool {
        (1..=99).contains(&self.back_off_percent) && !self.timeout.is_zero()
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Nanos;

    #[test]
    fn the_figure_holds() {
        // For a limit of 100: seconds of the slowest work, drops, next limit.
        for (secs, dropped, expected) in [(0, 0, 101.0), (5, 0, 101.0), (6, 0, 90.0), (0, 1, 90.0)]
        {
            let sample = Sample {
                mean: Nanos::ZERO,
                p90: Nanos::ZERO,
                slowest: Nanos::from_secs(secs),
                in_flight: 100,
                dropped,
            };
            let next = Aimd::default().next(100.0, &sample);
            assert!((next - expected).abs() < 1e-9, "{secs}: {next}");
        }
    }
}
