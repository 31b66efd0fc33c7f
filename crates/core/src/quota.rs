//! Quota: permits per span. All rounding of rates is here.
//!
//! A rate limiter that rounds the interval between two permits *down* admits more than it
//! says (11 % more at 300 M/s in whole nanoseconds). So the interval is rounded *up*, to a
//! tick of 1/64 ns, and the loss is stated:
//!
//! ```text
//!   interval = ceil(span x 64 / permits)  ticks      1 tick = 1/64 ns
//!
//!   rate          3/s     1 M/s    7 M/s     300 M/s    1,000 M/s
//!   interval ns   333 M   1,000    142.859   3.34375    1.0
//!   lost          0       0        0.002 %   0.3 %      0
//! ```
//!
//! A rate at which rounding would lose more than 1 % is refused at construction.

use core::fmt;
use core::num::NonZeroU32;
use core::ops::{Add, Sub};
use core::str::FromStr;

use crate::{Error, Nanos};

/// Ticks in a nanosecond: intervals are kept to 1/64 ns.
pub(crate) const TICKS_PER_NANO_LOG2: u32 = 6;
/// Horizon of debts: no limit may owe longer than this (1.1 years), so sums cannot overflow.
pub(crate) const HORIZON_TICKS: u64 = 1 << 61;

/// A number of permits: what a request costs, what a limit has left.
///
/// ```
/// use ratekeeper_core::Permits;
/// assert_eq!(Permits::new(3) - Permits::new(5), Permits::ZERO, "saturating");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Permits(u32);

impl Permits {
    /// None: a request that costs nothing only looks.
    pub const ZERO: Self = Self(0);
    /// What a request costs unless it says otherwise.
    pub const ONE: Self = Self(1);
    /// The most that can be counted.
    pub const MAX: Self = Self(u32::MAX);

    /// `count` permits.
    pub const fn new(count: u32) -> Self {
        Self(count)
    }

    /// `count` permits, or [`Permits::MAX`] if that is more than can be counted.
    pub fn saturating_from(count: u64) -> Self {
        Self(u32::try_from(count).unwrap_or(u32::MAX))
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Add for Permits {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Permits {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl From<NonZeroU32> for Permits {
    fn from(count: NonZeroU32) -> Self {
        Self(count.get())
    }
}

impl fmt::Display for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}p", self.0)
    }
}

/// Permits per span, with a burst: `100/1m`, burst 100 unless told otherwise.
///
/// ```
/// use ratekeeper_core::{Nanos, Permits, Quota};
/// let quota: Quota = "3/1s".parse().unwrap();
/// assert_eq!(quota.burst(), Permits::new(3));
/// assert_eq!(quota.time_for(Permits::ONE), Nanos::from_nanos(333_333_334), "rounded up");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quota {
    permits: NonZeroU32,
    per: Nanos,
    burst: NonZeroU32,
}

impl Quota {
    /// `permits` every `per`, all of them at once if they were saved up.
    ///
    /// # Errors
    /// [`Error::NoPermits`] and [`Error::NoSpan`] for zeros.
    pub fn new(permits: Permits, per: Nanos) -> Result<Self, Error> {
        let permits = NonZeroU32::new(permits.get()).ok_or(Error::NoPermits)?;
        if per == Nanos::ZERO {
            return Err(Error::NoSpan);
        }
        Ok(Self {
            permits,
            per,
            burst: permits,
        })
    }

    /// The same rate with another burst: how many permits may be saved up.
    ///
    /// # Errors
    /// [`Error::NoPermits`] for a burst of zero.
    pub fn with_burst(self, burst: Permits) -> Result<Self, Error> {
        let burst = NonZeroU32::new(burst.get()).ok_or(Error::NoPermits)?;
        Ok(Self { burst, ..self })
    }

    /// Permits per span.
    pub fn permits(self) -> Permits {
        self.permits.into()
    }

    /// The span.
    pub fn per(self) -> Nanos {
        self.per
    }

    /// Permits that may be saved up.
    pub fn burst(self) -> Permits {
        self.burst.into()
    }

    /// Permits in a second, to the nearest float.
    pub fn per_second(self) -> f64 {
        f64::from(self.permits.get()) / self.per.as_secs_f64()
    }

    /// How long the quota takes to grant `cost`, rounded up; saturating.
    pub fn time_for(self, cost: Permits) -> Nanos {
        let exact = u128::from(cost.get()) * u128::from(self.per.as_nanos());
        let nanos = exact.div_ceil(u128::from(self.permits.get())); // up: never early
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The interval between two permits in ticks of 1/64 ns, rounded up.
    ///
    /// # Errors
    /// [`Error::TooFast`] if rounding would lose more than 1 % of the rate,
    /// [`Error::TooLong`] past the horizon.
    pub(crate) fn interval_ticks(self) -> Result<u64, Error> {
        let exact = u128::from(self.per.as_nanos()) << TICKS_PER_NANO_LOG2;
        let permits = u128::from(self.permits.get());
        let interval = exact.div_ceil(permits); // up: never more than the rate says
        let lost = interval * permits - exact;
        if lost * 100 > interval * permits {
            return Err(Error::TooFast);
        }
        u64::try_from(interval)
            .ok()
            .filter(|&ticks| ticks <= HORIZON_TICKS)
            .ok_or(Error::TooLong)
    }
}

/// Writes `100/1m`; a burst that differs follows as `100/1m burst 20`.
impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.permits, self.per)?;
        if self.burst != self.permits {
            write!(f, " burst {}", self.burst)?;
        }
        Ok(())
    }
}

/// Reads `100/1m`.
impl FromStr for Quota {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (permits, per) = text.split_once('/').ok_or(Error::Quota)?;
        if permits.is_empty() || !permits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(Error::Quota);
        }
        let permits = permits.parse().map_err(|_| Error::TooManyPermits)?;
        Self::new(Permits::new(permits), per.parse()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    fn quota(text: &str) -> Result<Quota, Error> {
        text.parse()
    }

    #[test]
    fn quotas_read_and_write() {
        assert_eq!(quota("100/1m").unwrap().to_string(), "100/1m");
        for (text, error) in [
            ("100", Error::Quota),
            ("/1m", Error::Quota),
            ("-1/1m", Error::Quota),
            ("0/1m", Error::NoPermits),
            ("5000000000/1m", Error::TooManyPermits),
            ("5/0s", Error::NoSpan),
            ("5/minute", Error::Span),
        ] {
            assert_eq!(quota(text), Err(error), "{text}");
        }
    }

    #[test]
    fn intervals_round_up_and_lose_little() {
        for (text, ticks) in [
            ("1/1s", 64_000_000_000),
            ("3/1s", 21_333_333_334),
            ("7000000/1s", 9_143), // 142.857 ns
            ("300000000/1s", 214), // 3.333 ns
            ("1000000000/1s", 64),
        ] {
            assert_eq!(quota(text).unwrap().interval_ticks(), Ok(ticks), "{text}");
        }
        assert_eq!(quota("4000000000/3s").unwrap().interval_ticks(), Ok(48));
        assert_eq!(
            quota("3000000000/1s").unwrap().interval_ticks(),
            Err(Error::TooFast)
        );
        assert_eq!(
            quota("1/99999d").unwrap().interval_ticks(),
            Err(Error::TooLong)
        );
    }
}
