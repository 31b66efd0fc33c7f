//! Sample: the measurements of one window of work, from which a law moves the limit.

use ratekeeper_core::Nanos;

/// Measurements of one window of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Average time of the work done; zero if none was done.
    pub mean: Nanos,
    /// 90th percentile of the times.
    pub p90: Nanos,
    /// Time of the slowest work.
    pub slowest: Nanos,
    /// Maximum number of permits in use at once.
    pub in_flight: u32,
    /// Number of pieces of work that were dropped.
    pub dropped: u32,
}
