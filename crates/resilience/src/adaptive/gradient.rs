//! Gradient: the limit follows the ratio of the time without waiting to the time now.
//!
//! ```text
//!   g = clamp(tolerance x base / p90, 0.5, 1)        1: no more waiting than is tolerated
//!   L := 0.8 L + 0.2 (g L + 4)                       4: room to grow, and to fill gaps
//!
//!   time / base   1 ...... 1.5 ............ 3 ....
//!   limit         grows  | stands | falls, by a tenth a window at most
//! ```
//!
//! Where all of a server's capacity is asked for, it comes to rest at a time of 1.5 times the
//! base: at half more than the server can do at once, so that it never runs dry. Dropped work
//! counts as time without end.
//!
//! * Choose it in doubt.
//! * Trade-off: `tolerance` is the variation of times that is not held against the server, and
//!   the time that is added under load.
//! * Difference from the source: its base is an average of all times, which under lasting
//!   overload learns the waiting, and lets the limit drift to its upper bound. Here times beyond
//!   the tolerance are not learnt; the base is measured anew instead.
//! * Source: Netflix, concurrency-limits, `Gradient2Limit` (2018).

use super::Sample;

/// Limit by the gradient of times; see the [module](super) on how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gradient {
    /// Maximum tolerated time, in percent of the base; 100 to 1,000. Default 150.
    pub tolerance_percent: u32,
    /// Weight of each window's result, in percent; 1 to 100. Default 20.
    pub smoothing_percent: u32,
    /// Work that may queue even so; 1 to 1,000. Default 4.
    pub queue: u32,
}

impl Default for Gradient {
    fn default() -> Self {
        Self {
            tolerance_percent: 150,
            smoothing_percent: 20,
            queue: 4,
        }
    }
}

impl Gradient {
    /// `base` and the sample's time in nanoseconds, above zero.
    pub(super) fn next(&self, limit: f64, base: f64, time: f64, sample: &Sample) -> f64 {
        let tolerated = self.tolerance() * base / time;
        let gradient = if sample.dropped > 0 {
            0.5
        } else {
            tolerated.clamp(0.5, 1.0)
        };
        let smoothing = f64::from(self.smoothing_percent) / 100.0;
        let found = gradient * limit + f64::from(self.queue);
        limit * (1.0 - smoothing) + found * smoothing
    }

    /// Returns the tolerance as a factor of the base.
    pub(super) fn tolerance(&self) -> f64 {
        f64::from(self.tolerance_percent) / 100.0
    }

    pub(super) fn is_valid(&self) -> bool {
        (100..=1_000).contains(&self.tolerance_percent)
            && (1..=100).contains(&self.smoothing_percent)
            && (1..=1_000).contains(&self.queue)
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Nanos;

    #[test]
    fn the_figure_holds() {
        // For a limit of 100: time over base, drops, next limit.
        for (ratio, dropped, expected) in [
            (0.5, 0, 100.8),
            (1.0, 0, 100.8),
            (1.5, 0, 100.8),
            (2.0, 0, 95.8),
            (3.0, 0, 90.8),
            (10.0, 0, 90.8),
            (1.0, 1, 90.8),
        ] {
            let sample = Sample {
                mean: Nanos::ZERO,
                p90: Nanos::ZERO,
                slowest: Nanos::ZERO,
                in_flight: 100,
                dropped,
            };
            let next = Gradient::default().next(100.0, 1e6, 1e6 * ratio, &sample);
            assert!((next - expected).abs() < 1e-9, "{ratio}: {next}");
        }
    }
}
