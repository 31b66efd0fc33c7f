//! Points and spans of time, in nanoseconds, saturating.
//!
//! ```text
//!   Time ----- Nanos ----> Time            Time - Time = Nanos (never below 0)
//! ```
//!
//! A [`Time`] counts from a zero that the clock chooses: the start of the process in memory, 1970
//! for a shared store, 0 in a test. Nothing in this crate depends on it. Arithmetic saturates: a
//! limit that runs for 584 years stops moving, it does not wrap.

use core::fmt;
use core::ops::{Add, Sub};
use core::str::FromStr;
use core::time::Duration;

use crate::Error;

/// A point in time: nanoseconds since a zero that the clock chooses.
///
/// ```
/// use ratekeeper_core::{Nanos, Time};
/// let t = Time::from_nanos(5) + Nanos::from_nanos(2);
/// assert_eq!(t.since(Time::from_nanos(5)), Nanos::from_nanos(2));
/// assert_eq!(Time::from_nanos(5).since(t), Nanos::ZERO, "never negative");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(u64);

impl Time {
    /// The clock's zero.
    pub const ZERO: Self = Self(0);
    /// The last point that can be expressed.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the clock's zero.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's zero.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span from `earlier` to `self`; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Nanos> for Time {
    type Output = Self;
    fn add(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Nanos> for Time {
    type Output = Self;
    fn sub(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}ns", self.0)
    }
}

/// A span of time in nanoseconds.
///
/// ```
/// use ratekeeper_core::Nanos;
/// let span: Nanos = "90s".parse().unwrap();
/// assert_eq!(span, Nanos::from_secs(90));
/// assert_eq!(Nanos::from_nanos(1).as_millis_ceil(), 1, "waits round up");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(u64);

impl Nanos {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// The longest span, 584 years.
    pub const MAX: Self = Self(u64::MAX);
    /// One second.
    pub const SECOND: Self = Self(1_000_000_000);

    /// A span of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// A span of `micros` microseconds, saturating.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// A span of `millis` milliseconds, saturating.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// A span of `secs` seconds, saturating.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Milliseconds, rounded up, so that sleeping this long is always enough.
    pub const fn as_millis_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000)
    }

    /// Seconds, rounded up, so that sleeping this long is always enough.
    pub const fn as_secs_ceil(self) -> u64 {
        self.0.div_ceil(1_000_000_000)
    }

    /// Seconds as a float, for display and metrics only.
    #[expect(
        clippy::cast_precision_loss,
        reason = "display only; 52 bits are plenty"
    )]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// `self - other`, zero if negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ns", self.0)
    }
}

/// The zero of a clock: nanoseconds since 1970, UTC, without leap seconds.
///
/// Only limits that follow the wall clock (grids, calendars) use it, and only when they are
/// constructed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Origin(u64);

impl Origin {
    /// The clock counts from 1970 itself.
    pub const UNIX: Self = Self(0);

    /// The clock's zero is `nanos` nanoseconds after 1970.
    pub const fn from_unix_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds from 1970 to the clock's zero.
    pub const fn as_unix_nanos(self) -> u64 {
        self.0
    }

    /// `time` as nanoseconds since 1970; saturating.
    pub const fn unix_nanos(self, time: Time) -> u64 {
        self.0.saturating_add(time.0)
    }

    /// The point on this clock that lies `nanos` nanoseconds after 1970; the clock's zero if
    /// earlier.
    pub const fn time_at(self, nanos: u64) -> Time {
        Time(nanos.saturating_sub(self.0))
    }

    /// The phase, on a clock of origin `other`, of a grid of `width` with `phase` on this clock:
    /// below `width`.
    #[expect(clippy::cast_possible_truncation, reason = "less than the width")]
    #[must_use]
    pub(crate) const fn phase_on(self, other: Self, phase: Nanos, width: Nanos) -> Nanos {
        if width.0 == 0 {
            return Nanos::ZERO;
        }
        let phase = self.0 as u128 + phase.0 as u128 + (width.0 - other.0 % width.0) as u128;
        Nanos((phase % width.0 as u128) as u64)
    }

    /// The phase of a grid of `width` with windows that begin at whole multiples since 1970.
    #[must_use]
    pub const fn phase(self, width: Nanos) -> Nanos {
        Self::UNIX.phase_on(self, Nanos::ZERO, width)
    }
}

/// The units a span may be written in, longest first, with their nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("w", 7 * 86_400_000_000_000),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Writes the span with the longest unit that divides it: `90s`, `1m`, `24h` as `1d`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        for (unit, nanos) in UNITS {
            if self.0.is_multiple_of(nanos) {
                return write!(f, "{}{unit}", self.0 / nanos);
            }
        }
        unreachable!("every duration is a whole number of nanoseconds")
    }
}

/// Reads a span: a whole number and a unit, `200ms`, `90s`, `1m`, `24h`, `7d`.
impl FromStr for Nanos {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| Error::Span)?;
        let (_, nanos) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or(Error::Span)?;
        number
            .checked_mul(*nanos)
            .map(Self)
            .ok_or(Error::SpanTooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn spans_read_and_write() {
        for (text, nanos) in [
            ("200ms", 200_000_000),
            ("90s", 90_000_000_000),
            ("1m", 60_000_000_000),
            ("7us", 7_000),
            ("3ns", 3),
        ] {
            let span: Nanos = text.parse().unwrap();
            assert_eq!(span.as_nanos(), nanos, "{text}");
            assert_eq!(span.to_string(), text);
        }
        assert_eq!("24h".parse::<Nanos>().unwrap().to_string(), "1d");
        for text in ["", "1", "s", "-1s", "1 s", "1.5s", "1M", "1day", "1m30s"] {
            assert_eq!(text.parse::<Nanos>(), Err(Error::Span), "{text:?}");
        }
        assert_eq!("999999999d".parse::<Nanos>(), Err(Error::SpanTooLong));
    }

    #[test]
    fn durations_round_up_to_coarser_units() {
        assert_eq!(Nanos::from_nanos(1_000_000_001).as_secs_ceil(), 2);
        assert_eq!(Nanos::from_secs(1).as_secs_ceil(), 1);
        assert_eq!(Nanos::ZERO.as_millis_ceil(), 0);
    }
}
