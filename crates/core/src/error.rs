//! Why a limit cannot be constructed. Deciding never fails.

use core::fmt;

/// Why a limit cannot be constructed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A span is not a whole number with a unit.
    Span,
    /// A span does not fit 584 years.
    SpanTooLong,
    /// A quota is not `N/span`.
    Quota,
    /// A quota of zero permits.
    NoPermits,
    /// More permits than a limit can count (9,007,199,254,740,991).
    TooManyPermits,
    /// A quota over a span of zero.
    NoSpan,
    /// More than 64 permits a nanosecond.
    TooFast,
    /// The time to refill burst and queue passes 2^61 ticks of 1/64 ns (1.1 years).
    TooLong,
    /// A number of sub-buckets outside 1 to 60, or longer than the span in nanoseconds.
    SubBuckets,
    /// A window with counts that stay in sight for more than 2^62 ns (146 years).
    WindowTooLong,
    /// A bucket that takes more than 146 years to fill.
    RefillTooLong,
    /// A sliding window log of more than 10,000 permits.
    LogTooLarge,
    /// An exponential counter of more than 8,796,093,022,207 permits.
    LevelTooLarge,
    /// A counter that takes more than 4.5 years to fade to a third.
    DecayTooLong,
    /// A rate, cold factor or burst time that is not a number in its range.
    Rate,
    /// More than 10,000 permits on loan.
    TooManyLeases,
    /// Terms of a ban that are out of their bounds, or a limit that counts denials under a ban.
    Ban,
    /// A balance that starts above its maximum.
    Balance,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Span => "not a duration: write a whole number and a unit (ns, us, ms, s, m, h, d, w), as in `90s`",
            Self::SpanTooLong => "duration is longer than 584 years",
            Self::Quota => "not a quota: write permits and period, as in `100/1m`; the calendar's `20/day` is for policies",
            Self::NoPermits => "a quota of `0` permits nothing",
            Self::TooManyPermits => "more than 9,007,199,254,740,991 permits cannot be counted",
            Self::NoSpan => "a period must be longer than zero",
            Self::TooFast => "more than 64 permits a nanosecond",
            Self::TooLong => "the time to refill the whole burst exceeds the maximum of 1.1 years",
            Self::SubBuckets => "sub-buckets must number 1 to 60, each at least 1 ns long",
            Self::WindowTooLong => "window is longer than 73 years",
            Self::RefillTooLong => "the time to refill the empty bucket exceeds 146 years",
            Self::LogTooLarge => "a sliding window log keeps 8 bytes a permit for each key, so at most 10,000 permits (80,000 bytes); take sub-buckets for more",
            Self::LevelTooLarge => "an exponential limit holds at most 8,796,093,022,207 permits",
            Self::DecayTooLong => "the time in which the quota grants its burst exceeds 4.5 years",
            Self::Rate => "a rate must be above 0 per second, a cold factor at least 1, a burst time at least 0",
            Self::TooManyLeases => "permits on loan take 32 bytes each for each key, so at most 10,000 of them (320,000 bytes)",
            Self::Ban => "a ban takes 1 to 100 strikes, lasts longer than zero and at most 365 days, and stands on a limit with free denials",
            Self::Balance => "a balance cannot start above its maximum",
        })
    }
}

impl core::error::Error for Error {}
