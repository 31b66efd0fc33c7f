//! Quota: permits per span, as written in a policy. Nothing is rounded here: each algorithm
//! counts the time of a permit in its own units (`algorithms/gcra/grid.rs` for the bucket).

use core::fmt;
use core::num::NonZeroU64;
use core::ops::{Add, Sub};
use core::str::FromStr;

use crate::{Error, Nanos};

/// A number of permits: the cost of a request, or the remaining quota of a limit.
///
/// ```
/// use ratekeeper_core::Permits;
/// assert_eq!(Permits::new(3) - Permits::new(5), Permits::ZERO, "saturating");
/// assert_eq!(Permits::new(u64::MAX), Permits::MAX, "saturating");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Permits(u64);

impl Permits {
    /// Zero: a request of this cost is judged, and charges nothing.
    pub const ZERO: Self = Self(0);
    /// The default cost of a request.
    pub const ONE: Self = Self(1);
    /// The largest number, 2^53 (9.0e15). A larger one counts as this one.
    ///
    /// No quota holds so many: the largest has one permit less, [`Quota::MAX_PERMITS`]. So a cost
    /// that was cut to this number never fits, and a quota that was cut to it is refused.
    ///
    /// Scripts of a shared store and many readers of JSON count in doubles, which hold every whole
    /// number up to 2^53.
    pub const MAX: Self = Self(1 << 53);

    /// `count` permits, or [`Permits::MAX`] if `count` is larger.
    pub const fn new(count: u64) -> Self {
        if count > Self::MAX.0 {
            Self::MAX
        } else {
            Self(count)
        }
    }

    /// `count` permits, which are known to be at most [`Permits::MAX`]: saves a comparison.
    pub(crate) const fn bounded(count: u64) -> Self {
        debug_assert!(count <= Self::MAX.0, "more permits than can be counted");
        Self(count)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as a double, which is exact.
    #[expect(clippy::cast_precision_loss, reason = "at most 2^53")]
    pub const fn as_f64(self) -> f64 {
        self.0 as f64
    }
}

impl Add for Permits {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::new(self.0 + other.0) // at most 2^54
    }
}

impl Sub for Permits {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// As [`Permits::new`].
impl From<u64> for Permits {
    fn from(count: u64) -> Self {
        Self::new(count)
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

/// Permits per span, with a burst: `100/1m`, burst 100 unless set otherwise.
///
/// ```
/// use ratekeeper_core::{Nanos, Permits, Quota};
/// let quota: Quota = "3/1s".parse().unwrap();
/// assert_eq!(quota.burst_size(), Permits::new(3));
/// assert_eq!(quota.time_for(Permits::ONE), Nanos::from_nanos(333_333_334), "rounded up");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Quota {
    permits: NonZeroU64,
    per: Nanos,
    burst: NonZeroU64,
}

impl Quota {
    /// Maximum number of permits of a quota, and of a burst: 2^53 - 1, one below
    /// [`Permits::MAX`].
    pub const MAX_PERMITS: u64 = Permits::MAX.get() - 1;

    /// `permits` every `per`, all of them at once if they were saved up.
    ///
    /// ```
    /// use core::time::Duration;
    /// use ratekeeper_core::Quota;
    /// assert_eq!(Quota::new(3, Duration::from_secs(2)), "3/2s".parse());
    /// ```
    ///
    /// # Errors
    /// [`Error::NoPermits`] and [`Error::NoSpan`] for zeros, [`Error::TooManyPermits`] for more
    /// than [`Quota::MAX_PERMITS`].
    pub fn new(permits: impl Into<Permits>, per: impl Into<Nanos>) -> Result<Self, Error> {
        let (permits, per) = (countable(permits.into())?, per.into());
        if per == Nanos::ZERO {
            return Err(Error::NoSpan);
        }
        Ok(Self {
            permits,
            per,
            burst: permits,
        })
    }

    /// `permits` a second. For constants: a zero does not compile there.
    ///
    /// ```
    /// use ratekeeper_core::Quota;
    /// const PACE: Quota = Quota::per_second(50).burst(100);
    /// assert_eq!(PACE, "50/1s burst 100".parse().unwrap());
    /// ```
    ///
    /// # Panics
    /// If `permits` is zero, or above [`Quota::MAX_PERMITS`]; [`Quota::new`] returns an error.
    pub const fn per_second(permits: u64) -> Self {
        Self::every(permits, Nanos::SECOND)
    }

    /// `permits` a minute.
    ///
    /// # Panics
    /// As [`Quota::per_second`].
    pub const fn per_minute(permits: u64) -> Self {
        Self::every(permits, Nanos::from_secs(60))
    }

    /// `permits` an hour.
    ///
    /// # Panics
    /// As [`Quota::per_second`].
    pub const fn per_hour(permits: u64) -> Self {
        Self::every(permits, Nanos::from_secs(3_600))
    }

    /// `permits` in 24 hours.
    ///
    /// # Panics
    /// As [`Quota::per_second`].
    pub const fn per_day(permits: u64) -> Self {
        Self::every(permits, Nanos::from_secs(86_400))
    }

    const fn every(permits: u64, per: Nanos) -> Self {
        let Ok(permits) = countable(Permits::new(permits)) else {
            panic!("a quota has 1 to 2^53 - 1 permits");
        };
        Self {
            permits,
            per,
            burst: permits,
        }
    }

    /// The same rate with another burst: the number of permits that may be saved up.
    ///
    /// # Panics
    /// If `permits` is zero, or above [`Quota::MAX_PERMITS`]; [`Quota::with_burst`] returns an
    /// error.
    #[must_use]
    pub const fn burst(self, permits: u64) -> Self {
        Self {
            burst: Self::every(permits, self.per).burst,
            ..self
        }
    }

    /// The same rate with another burst: the number of permits that may be saved up.
    ///
    /// # Errors
    /// [`Error::NoPermits`] for a burst of zero, [`Error::TooManyPermits`] for more than
    /// [`Quota::MAX_PERMITS`].
    pub fn with_burst(self, burst: impl Into<Permits>) -> Result<Self, Error> {
        let burst = countable(burst.into())?;
        Ok(Self { burst, ..self })
    }

    /// Permits per span.
    pub fn permits(self) -> Permits {
        Permits::new(self.permits.get())
    }

    /// The span.
    pub fn per(self) -> Nanos {
        self.per
    }

    /// Permits that may be saved up.
    pub fn burst_size(self) -> Permits {
        Permits::new(self.burst.get())
    }

    /// Permits in a second, to the nearest float.
    pub fn permits_per_second(self) -> f64 {
        self.permits().as_f64() / self.per.as_secs_f64()
    }

    /// How long the quota takes to grant `cost`, rounded up; saturating.
    pub fn time_for(self, cost: Permits) -> Nanos {
        let exact = u128::from(cost.get()) * u128::from(self.per.as_nanos());
        let nanos = exact.div_ceil(u128::from(self.permits.get())); // up: never early
        Nanos::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
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

/// Reads `100/1m` and `100/1m burst 20`: the texts that it writes. Words of the calendar, as in
/// `20/day`, are for policies, because they need a time zone.
impl FromStr for Quota {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (rate, burst) = match text.split_once(" burst ") {
            Some((rate, burst)) => (rate, Some(burst)),
            None => (text, None),
        };
        let (permits, per) = rate.split_once('/').ok_or(Error::Quota)?;
        let per = per.parse::<Nanos>().map_err(|error| match error {
            Error::Span => Error::Quota,
            other => other,
        })?;
        let quota = Self::new(count(permits)?, per)?;
        burst.map_or(Ok(quota), |burst| quota.with_burst(count(burst)?))
    }
}

/// The number, unless it is zero or too large for a quota.
pub(crate) const fn countable(permits: Permits) -> Result<NonZeroU64, Error> {
    match NonZeroU64::new(permits.get()) {
        None => Err(Error::NoPermits),
        Some(count) if count.get() > Quota::MAX_PERMITS => Err(Error::TooManyPermits),
        Some(count) => Ok(count),
    }
}

fn count(digits: &str) -> Result<Permits, Error> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Error::Quota);
    }
    let count = digits.parse().map_err(|_| Error::TooManyPermits)?;
    Ok(Permits::new(count))
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
        for text in [
            "100/1m",
            "50/1s burst 100",
            "1/24h burst 2",
            "10000000000/1d",
            "9007199254740991/1s burst 9007199254740991",
        ] {
            let quota = quota(text).unwrap();
            assert_eq!(quota.to_string().parse(), Ok(quota), "{text}");
        }
        assert_eq!(quota("100/1m").unwrap().to_string(), "100/1m");
        for (text, error) in [
            ("100", Error::Quota),
            ("/1m", Error::Quota),
            ("-1/1m", Error::Quota),
            ("0/1m", Error::NoPermits),
            ("9007199254740992/1m", Error::TooManyPermits),
            ("18446744073709551616/1m", Error::TooManyPermits),
            ("5/1m burst 9007199254740992", Error::TooManyPermits),
            ("5/0s", Error::NoSpan),
            ("5/minute", Error::Quota),
            ("20/day", Error::Quota),
            ("5/1m burst", Error::Quota),
            ("5/999999999d", Error::SpanTooLong),
            ("5/1m burst 0", Error::NoPermits),
            ("5/1m burst -1", Error::Quota),
        ] {
            assert_eq!(quota(text), Err(error), "{text}");
        }
    }
    #[test]
    fn a_number_that_is_too_large_is_above_every_quota() {
        let most = Quota::per_day(Quota::MAX_PERMITS);
        assert!(Permits::new(Quota::MAX_PERMITS) < Permits::MAX);
        assert_eq!(Permits::new(u64::MAX), Permits::MAX);
        assert_eq!(most.permits() + most.burst_size(), Permits::MAX);
        assert_eq!(
            Quota::new(Permits::MAX, Nanos::SECOND),
            Err(Error::TooManyPermits)
        );
        assert_eq!(most.with_burst(Permits::MAX), Err(Error::TooManyPermits));
        assert_eq!(most.time_for(most.permits()), most.per());
    }
}
