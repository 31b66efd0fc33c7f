//! Why a piece cannot be constructed. Nothing fails later.

use std::fmt;

/// Why a piece cannot be constructed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A window too short to be cut into its ten slots of whole nanoseconds; of an adaptive
    /// limit, shorter than 1 us or of no samples, or of more than 512.
    Window,
    /// A share outside 1 to 100 percent.
    Percent,
    /// No rounds of probes, or more than can be counted (16).
    ProbeRounds,
    /// The shortest time open is zero or above the longest.
    OpenFor,
    /// No time for a probe to end.
    ProbePatience,
    /// A retry budget of more than 1,000 percent.
    Ratio,
    /// A multiplier of less than 100 percent.
    Multiplier,
    /// A gap of zero, or above an hour.
    Gap,
    /// Bounds of a limit out of order, or beyond 1 to 1,000,000.
    Bounds,
    /// Numbers of a law outside their range.
    Law,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Window => {
                "a window must last at least 10 ns (adaptive limits: 1 us, with 1 to 512 samples)"
            }
            Self::Percent => "a share must be 1 to 100 percent",
            Self::ProbeRounds => "the number of rounds of probes must be 1 to 16",
            Self::OpenFor => "the shortest time open must be above zero and at most the longest",
            Self::ProbePatience => "the patience with a probe must be above zero",
            Self::Ratio => "retries must be at most 1,000 percent of requests",
            Self::Multiplier => {
                "a multiplier must be at least 100 percent; less would refuse accepted requests"
            }
            Self::Gap => "a gap must be above zero and at most an hour",
            Self::Bounds => {
                "the bounds of a limit must be 1 <= least <= initial <= most <= 1,000,000"
            }
            Self::Law => "a parameter of the law is outside the range that its field documents",
        })
    }
}

impl std::error::Error for Error {}
