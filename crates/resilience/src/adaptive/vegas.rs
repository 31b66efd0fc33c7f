//! Vegas: the limit keeps a short queue, as long as the logarithm of the limit says.
//!
//! ```text
//!   queue = L (1 - base / mean)          what waits at the server, by Little's law
//!   step  = max(1, log10 L)
//!
//!   queue    0 ... step ....... 3 step ......... 6 step ........
//!   L :=     + 6 step | + step         | stays          | - step       dropped: - step
//! ```
//!
//! * Choose it where times are even: it holds the limit closer to what the server can do at
//!   once than the gradient does (a few above it), at less waiting.
//! * Trade-off: times that swing look like a queue, and it gives way.
//! * Source: L. Brakmo, S. O'Malley, L. Peterson, "TCP Vegas: new techniques for congestion
//!   detection and avoidance" (1994); the logarithms from Netflix, concurrency-limits,
//!   `VegasLimit` (2018).

use super::Sample;

/// Limit by the length of the queue; see the [module](super) on how it is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Vegas {
    /// Steps of queue below which the limit grows; 1 to 100. Default 3.
    pub alpha: u32,
    /// Steps of queue above which it falls; at least `alpha`, at most 100. Default 6.
    pub beta: u32,
}

impl Default for Vegas {
    fn default() -> Self {
        Self { alpha: 3, beta: 6 }
    }
}

impl Vegas {
    /// `base` and the sample's time in nanoseconds, above zero.
    pub(super) fn next(self, limit: f64, base: f64, time: f64, sample: &Sample) -> f64 {
        let step = limit.log10().max(1.0);
        if sample.dropped > 0 {
            return limit - step;
        }
        let queue = (limit * (1.0 - base / time)).max(0.0);
        if queue <= step {
            limit + f64::from(self.beta) * step
        } else if queue < f64::from(self.alpha) * step {
            limit + step
        } else if queue > f64::from(self.beta) * step {
            limit - step
        } else {
            limit
        }
    }

    pub(super) fn is_valid(self) -> bool {
        1 <= self.alpha && self.alpha <= self.beta && self.beta <= 100
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use ratekeeper_core::Nanos;

    #[test]
    fn the_figure_holds() {
        // For a limit of 100 with a step of 2: queue, drops, next limit.
        for (queue, dropped, expected) in [
            (0.0, 0, 112.0),
            (1.9, 0, 112.0),
            (2.1, 0, 102.0),
            (5.9, 0, 102.0),
            (6.1, 0, 100.0),
            (11.9, 0, 100.0),
            (12.1, 0, 98.0),
            (0.0, 1, 98.0),
        ] {
            let sample = Sample {
                mean: Nanos::ZERO,
                p90: Nanos::ZERO,
                slowest: Nanos::ZERO,
                in_flight: 100,
                dropped,
            };
            let next = Vegas::default().next(100.0, 1e6 * (1.0 - queue / 100.0), 1e6, &sample);
            assert!((next - expected).abs() < 1e-9, "{queue}: {next}");
        }
    }
}
