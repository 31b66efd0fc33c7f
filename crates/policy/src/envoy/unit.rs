//! Unit: length of a window.

use ratekeeper_core::{Nanos, Origin, Time};
use strum::{AsRefStr, Display, EnumString, VariantArray};

/// The units of a rate limit, shortest first. Their names are read in any case.
#[derive(AsRefStr, Display, EnumString, VariantArray)]
#[strum(serialize_all = "lowercase", ascii_case_insensitive)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Unit {
    /// 1 s.
    Second,
    /// 60 s.
    Minute,
    /// 3,600 s.
    Hour,
    /// 86,400 s: days turn at 00:00 UTC.
    Day,
    /// 7 days; as 1970 began on a Thursday, weeks turn on Thursdays at 00:00 UTC.
    Week,
    /// 30 days, counted from 1970.
    Month,
    /// 365 days, counted from 1970.
    Year,
}

impl Unit {
    /// Returns its length in seconds.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 7 * 86_400,
            Self::Month => 30 * 86_400,
            Self::Year => 365 * 86_400,
        }
    }
}

/// Number of units in one window; windows begin at whole multiples since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct WindowSpan {
    pub(super) unit: Unit,
    /// At least 1.
    pub(super) multiplier: u32,
}

impl WindowSpan {
    /// Returns its length in seconds: at most 2^57.
    pub(super) const fn seconds(self) -> u64 {
        self.unit.seconds() * self.multiplier as u64
    }

    /// Returns the number of the window that holds `now`, and the time to its end.
    pub(super) fn window_at(self, now: Time, origin: Origin) -> UnitWindow {
        let unix = u128::from(origin.unix_nanos(now));
        let width = u128::from(self.seconds()) * 1_000_000_000;
        let left = width - unix % width;
        UnitWindow {
            // Below 2^35: a second is the shortest window.
            number: u64::try_from(unix / width).unwrap_or(u64::MAX),
            left: Nanos::from_nanos(u64::try_from(left).unwrap_or(u64::MAX)),
        }
    }
}

/// One window of a [`WindowSpan`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnitWindow {
    /// Number of the window, counted from 1970.
    pub(super) number: u64,
    /// Time to its end; saturates at 584 years.
    pub(super) left: Nanos,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_counted_from_1970() {
        let at = |seconds| Time::ZERO + Nanos::from_secs(seconds);
        for (unit, multiplier, now, number, left) in [
            (Unit::Second, 1, 1_000_000, 1_000_000, 1),
            (Unit::Minute, 1, 1_000_000, 16_666, 20),
            (Unit::Hour, 1, 1_000_000, 277, 800),
            (Unit::Day, 1, 1_000_000, 11, 36_800),
            (Unit::Week, 1, 1_000_000, 1, 209_600),
            (Unit::Month, 1, 1_000_000, 0, 1_592_000),
            (Unit::Year, 1, 1_000_000, 0, 30_536_000),
            (Unit::Minute, 10, 1_000_000, 1_666, 200),
            (Unit::Week, 1, 604_800, 1, 604_800),
        ] {
            let window = WindowSpan { unit, multiplier }.window_at(at(now), Origin::UNIX);
            assert_eq!(window.number, number, "{unit} x {multiplier}");
            assert_eq!(window.left, Nanos::from_secs(left), "{unit} x {multiplier}");
        }
        let origin = Origin::from_unix_nanos(999_999_500_000_000);
        let span = WindowSpan {
            unit: Unit::Minute,
            multiplier: 1,
        };
        let window = span.window_at(Time::ZERO, origin);
        assert_eq!(window.left, Nanos::from_millis(20_500));
    }

    #[test]
    fn the_longest_span_does_not_overflow() {
        let span = WindowSpan {
            unit: Unit::Year,
            multiplier: u32::MAX,
        };
        let window = span.window_at(Time::from_nanos(u64::MAX), Origin::UNIX);
        assert_eq!(
            (window.number, window.left),
            (0, Nanos::from_nanos(u64::MAX))
        );
    }

    #[test]
    fn names_are_read_in_any_case() {
        for unit in Unit::VARIANTS {
            assert_eq!(unit.as_ref().parse(), Ok(*unit));
            assert_eq!(unit.to_string().to_uppercase().parse(), Ok(*unit));
        }
        assert!("unknown".parse::<Unit>().is_err());
        assert!("minutes".parse::<Unit>().is_err());
    }
}
