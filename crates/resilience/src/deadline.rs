//! Deadline: do not start calls that cannot end in time, and pass the deadline on.
//!
//! An overloaded system should first of all avoid work for callers that have gone. One point in
//! time is fixed where a request enters, and every call made for it is limited to the remaining
//! time.
//!
//! ```text
//!   now                                              deadline
//!    |------ wait ------|-- half --|== service ==|-- half --|
//!                        `------- round trip + service ----'
//!   send iff deadline - now - wait - round trip >= service
//! ```
//!
//! * Defaults: 10 s if no deadline was set (no caller waits for ever); round trip and service
//!   are medians that the caller measured, zero if it did not.
//! * Passed on as `grpc-timeout` (at most eight digits and a unit) or as whole milliseconds
//!   in a header. Both round down: the server gives up no later than its client. A deadline
//!   is passed on as a *span*, since clocks of two machines differ.
//! * Source: Google, "Site Reliability Engineering" (2016), chapter 22, "Deadline
//!   propagation"; gRPC over HTTP/2 (2023), "Timeout".

use std::time::Duration;

use ratekeeper_core::{Nanos, Time};

/// Time that a call may take if no deadline was set.
const DEFAULT: Nanos = Nanos::from_secs(10);

/// Typical times of a call; zero if unknown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Typical {
    /// Median of the way to the server and back.
    pub round_trip: Duration,
    /// Median of the time in the server.
    pub service: Duration,
}

/// Moment after which the answer to a call is of no use.
///
/// ```
/// use std::time::Duration;
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::{Deadline, Typical};
///
/// let typical = Typical {
///     round_trip: Duration::from_millis(20),
///     service: Duration::from_millis(100),
/// };
/// let deadline = Deadline::within(Time::ZERO, Duration::from_millis(500));
/// let now = Time::ZERO + Nanos::from_millis(300);
/// assert_eq!(deadline.remaining(now, typical), Nanos::from_millis(180));
/// assert_eq!(deadline.grpc_timeout(now, typical), "180000u");
/// assert!(deadline.allows(now, Nanos::ZERO, typical));
/// assert!(!deadline.allows(now, Nanos::from_millis(100), typical), "too late after a wait");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Deadline(Time);

impl Deadline {
    /// Creates a deadline: the answer is of no use after `at`.
    pub const fn at(at: Time) -> Self {
        Self(at)
    }

    /// Creates a deadline `span` from `now`.
    pub fn within(now: Time, span: impl Into<Nanos>) -> Self {
        Self(now + span.into())
    }

    /// Creates a deadline ten seconds from `now`, for work without one.
    pub fn unset(now: Time) -> Self {
        Self::within(now, DEFAULT)
    }

    /// Returns the moment itself.
    pub const fn time(self) -> Time {
        self.0
    }

    /// Returns the time remaining for the server at `now`, less the round trip.
    pub fn remaining(self, now: Time, typical: Typical) -> Nanos {
        self.0.since(now).saturating_sub(typical.round_trip.into())
    }

    /// Returns true if a call that is sent after `wait` can end in time. It cannot if no time
    /// remains for the server, even if the service time is unknown.
    pub fn allows(self, now: Time, wait: Nanos, typical: Typical) -> bool {
        let remaining = self.remaining(now + wait, typical);
        remaining > Nanos::ZERO && remaining >= typical.service.into()
    }

    /// Returns the time remaining for the server, as the value of `grpc-timeout`.
    pub fn grpc_timeout(self, now: Time, typical: Typical) -> String {
        let nanos = self.remaining(now, typical).as_nanos();
        // The finest unit in which it fits eight digits; hours always fit.
        let (unit, count) = GRPC_UNITS
            .iter()
            .map(|(unit, width)| (unit, nanos / width)) // down, see the module
            .find(|(_, count)| *count <= GRPC_COUNT_MAX)
            .unwrap_or((&'H', GRPC_COUNT_MAX));
        format!("{count}{unit}")
    }

    /// Returns the time remaining for the server in whole milliseconds, for a custom header.
    pub fn header_ms(self, now: Time, typical: Typical) -> u64 {
        self.remaining(now, typical).as_nanos() / 1_000_000 // down, see the module
    }

    /// Returns the deadline set by the `grpc-timeout` of a request that arrives at `now`; `None`
    /// if it is malformed.
    pub fn from_grpc_timeout(now: Time, value: &str) -> Option<Self> {
        let (count, unit) = value.split_at_checked(value.len().checked_sub(1)?)?;
        let (_, width) = GRPC_UNITS
            .iter()
            .find(|(name, _)| unit.chars().eq([*name]))?;
        let digits = (1..=8).contains(&count.len()) && count.bytes().all(|b| b.is_ascii_digit());
        let count: u64 = digits.then(|| count.parse().ok())??;
        let span = Nanos::from_nanos(count.saturating_mul(*width));
        Some(Self::within(now, span))
    }

    /// Returns the deadline set by a header in whole milliseconds; `None` if it is malformed.
    pub fn from_header_ms(now: Time, value: &str) -> Option<Self> {
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let millis = digits.then(|| value.parse().unwrap_or(u64::MAX))?;
        Some(Self::within(now, Nanos::from_millis(millis)))
    }

    /// Returns the earlier of the two: an existing deadline is never extended.
    #[must_use]
    pub fn cut(self, other: Self) -> Self {
        self.min(other)
    }
}

const GRPC_COUNT_MAX: u64 = 99_999_999;

/// Finest first, with their nanoseconds.
const GRPC_UNITS: [(char, u64); 6] = [
    ('n', 1),
    ('u', 1_000),
    ('m', 1_000_000),
    ('S', 1_000_000_000),
    ('M', 60_000_000_000),
    ('H', 3_600_000_000_000),
];

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_finest_unit_that_fits() {
        for (nanos, text) in [
            (0, "0n"),
            (99_999_999, "99999999n"),
            (100_000_000, "100000u"),
            (10_000_000_000, "10000000u"),
            (100_000_000_000, "100000m"),
            (100_000_000_000_000, "100000S"),
            (100_000_000_000_000_000, "1666666M"),
            (u64::MAX, "5124095H"),
        ] {
            let deadline = Deadline::at(Time::from_nanos(nanos));
            let written = deadline.grpc_timeout(Time::ZERO, Typical::default());
            assert_eq!(written, text);
        }
    }

    #[test]
    fn untrusted_values_are_read_or_refused() {
        for (text, millis) in [
            ("5S", Some(5_000)),
            ("100m", Some(100)),
            ("00000001H", Some(3_600_000)),
            ("2M", Some(120_000)),
            ("", None),
            ("S", None),
            ("5", None),
            ("5s", None),
            ("-5S", None),
            ("123456789n", None),
            ("5\u{b5}", None),
        ] {
            let read = Deadline::from_grpc_timeout(Time::ZERO, text);
            let expected = millis.map(|ms| Deadline::at(Time::ZERO + Nanos::from_millis(ms)));
            assert_eq!(read, expected, "{text:?}");
        }
        for (text, millis) in [
            ("0", Some(0)),
            ("1500", Some(1_500)),
            ("", None),
            ("1.5", None),
        ] {
            let read = Deadline::from_header_ms(Time::ZERO, text);
            let expected = millis.map(|ms| Deadline::at(Time::ZERO + Nanos::from_millis(ms)));
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn a_call_that_cannot_end_in_time_is_not_sent() {
        let millis = Nanos::from_millis;
        let deadline = Deadline::within(Time::ZERO, millis(1_000));
        for (round_trip, service, wait, sent) in [
            (0, 0, 0, true),
            (0, 0, 999, true),
            (0, 0, 1_000, false),
            (200, 800, 0, true),
            (200, 801, 0, false),
            (201, 800, 0, false),
            (200, 0, 799, true),
            (200, 0, 800, false),
            (200, 0, 900, false),
            (200, 500, 300, true),
            (200, 500, 301, false),
        ] {
            let typical = Typical {
                round_trip: millis(round_trip).into(),
                service: millis(service).into(),
            };
            assert_eq!(deadline.allows(Time::ZERO, millis(wait), typical), sent);
        }
        assert_eq!(Deadline::unset(Time::ZERO).cut(deadline), deadline);
    }

    proptest! {
        #[test]
        fn the_server_gives_up_no_later(at: u64, now: u64) {
            let (deadline, now) = (Deadline::at(Time::from_nanos(at)), Time::from_nanos(now));
            let written = deadline.grpc_timeout(now, Typical::default());
            let read = Deadline::from_grpc_timeout(now, &written).expect("it is well formed");
            prop_assert!(read <= deadline.max(Deadline::at(now)));
        }

        #[test]
        fn anything_may_be_sent(text: String) {
            let _ = Deadline::from_grpc_timeout(Time::ZERO, &text);
            let _ = Deadline::from_header_ms(Time::ZERO, &text);
        }
    }
}
