//! Quota: permits per span, as written in a policy. Nothing is rounded here: each algorithm
//! counts the time of a permit in its own units (`algorithms/gcra/grid.rs` for the bucket).

use core::fmt;
use core::num::NonZeroU32;
use core::ops::{Add, Sub};
use core::str::FromStr;

use crate::{Error, Nanos};

/// A number of permits: the cost of a request, or the remaining quota of a limit.
///
/// ```
/// use ratekeeper_core::Permits;
/// assert_eq!(Permits::new(3) - Permits::new(5), Permits::ZERO, "saturating");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Permits(u32);

impl Permits {
    /// Zero: a request of this cost only looks.
    pub const ZERO: Self = Self(0);
    /// The default cost of a request.
    pub const ONE: Self = Self(1);
    /// The largest number.
    pub const MAX: Self = Self(u32::MAX);

    /// `count` permits.
    pub const fn new(count: u32) -> Self {
        Self(count)
    }

    /// `count` permits, or [`Permits::MAX`] if `count` is larger.
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

impl From<u32> for Permits {
    fn from(count: u32) -> Self {
        Self(count)
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

/// Permits per span, with a burst: `100/1m`, burst 100 unless set otherwise.
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

    /// The same rate with another burst: the number of permits that may be saved up.
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
}
