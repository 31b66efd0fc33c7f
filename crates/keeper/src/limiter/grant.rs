//! Grant: a request that passes, or the refusal of one that does not.

use std::fmt;
use std::time::Duration;

use ratekeeper_core::{Decision, Nanos, Verdict};

use super::Settlement;

/// A request that passes; its cost is charged. Dropping it changes nothing.
///
/// ```
/// use ratekeeper::Limiter;
///
/// let tokens = Limiter::per("1000/24h")?;
/// let grant = tokens.check_n(400).expect("the day has just begun");
/// assert_eq!(grant.remaining(), 600);
/// tokens.settle(grant.used(150)); // the work cost less than the estimate
/// assert_eq!(tokens.peek().remaining.get(), 850);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(PartialEq, Eq, Debug)]
pub struct Grant {
    cost: u64,
    decision: Decision,
}

/// The refusal of a request: nothing is charged.
///
/// ```
/// use ratekeeper::{Limiter, Refused};
/// let limiter = Limiter::per("2/1m")?;
/// assert_eq!(limiter.check_n(3), Err(Refused::Never));
/// limiter.check_n(2).unwrap();
/// match limiter.check() {
///     Ok(_) => unreachable!("both are spent"),
///     Err(Refused::Until(wait)) => assert!(wait.as_secs() < 30),
///     Err(Refused::Never) => unreachable!("one fits"),
/// }
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The same request is allowed after this span, if no other request spends meanwhile. (Under a
    /// limit of concurrency it is an estimate.)
    Until(Duration),
    /// No wait helps: the cost is above the capacity of the limit.
    Never,
}

impl Grant {
    /// Splits a decision about `cost` into the request that passes and the refusal.
    #[inline]
    pub(crate) fn of(decision: Decision, cost: u64) -> Result<Self, Refused> {
        match decision.verdict {
            Verdict::Allow | Verdict::AllowAfter(_) => Ok(Self { cost, decision }),
            denied => Err(match denied.retry_after() {
                Some(wait) => Refused::Until(wait.into()),
                None => Refused::Never,
            }),
        }
    }

    /// Returns the cost that was charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the largest cost that would still be allowed at the moment of the decision.
    pub fn remaining(&self) -> u64 {
        self.decision.remaining.get().into()
    }

    /// Returns the span after which the limit acts as if it had never seen a request.
    pub fn reset_after(&self) -> Duration {
        self.decision.reset_after.into()
    }

    /// Returns how long to wait before going on: zero, but under a leaky queue, which promises a
    /// later moment.
    ///
    /// ```
    /// use ratekeeper::core::Gcra;
    /// use ratekeeper::{Limiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let queue = Gcra::leaky_queue("1/1s".parse()?, 3.into())?;
    /// let limiter = Limiter::with_clock(queue, ManualClock::default());
    /// let delays = [0, 1, 2].map(|_| limiter.check().map(|grant| grant.delay()));
    /// assert_eq!(delays, [0, 1, 2].map(|seconds| Ok(Duration::from_secs(seconds))));
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn delay(&self) -> Duration {
        match self.decision.verdict {
            Verdict::AllowAfter(wait) => wait.into(),
            _ => Duration::ZERO,
        }
    }

    /// Returns the settlement of work that cost `used`, for [`Limiter::settle`](super::Limiter::settle).
    #[must_use = "a settlement changes nothing until it is given to the limiter"]
    pub const fn used(self, used: u64) -> Settlement {
        Settlement {
            taken: self.cost,
            used,
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(wait) => write!(
                f,
                "the limit is used up; try again in {}",
                Rounded((*wait).into())
            ),
            Self::Never => f.write_str("the cost is above the capacity of the limit"),
        }
    }
}

impl std::error::Error for Refused {}

/// A wait for people: `250 ms`, `1.2 s`, `40 min`. Rounded up, so that it is never too short.
struct Rounded(Nanos);

impl fmt::Display for Rounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MILLI: u64 = 1_000_000;
        const TENTH: u64 = 100 * MILLI;
        const MINUTE: u64 = 600 * TENTH;
        let nanos = self.0.as_nanos();
        let tenths = nanos.div_ceil(TENTH);
        match nanos {
            0..TENTH => write!(f, "{} ms", nanos.div_ceil(MILLI)),
            _ if tenths < 100 && !tenths.is_multiple_of(10) => {
                write!(f, "{}.{} s", tenths / 10, tenths % 10)
            }
            _ if nanos <= 2 * MINUTE => write!(f, "{} s", tenths.div_ceil(10)),
            _ if nanos <= 120 * MINUTE => write!(f, "{} min", nanos.div_ceil(MINUTE)),
            _ => write!(f, "{} h", nanos.div_ceil(60 * MINUTE)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_rounded_up_for_people() {
        for (nanos, text) in [
            (1, "1 ms"),
            (99_000_001, "100 ms"),
            (100_000_001, "0.2 s"),
            (1_150_000_000, "1.2 s"),
            (1_950_000_000, "2 s"),
            (19_999_875_588, "20 s"),
            (120_000_000_000, "120 s"),
            (120_000_000_001, "3 min"),
            (7_200_000_000_001, "3 h"),
            (u64::MAX, "5124096 h"),
        ] {
            assert_eq!(
                Rounded(Nanos::from_nanos(nanos)).to_string(),
                text,
                "{nanos}"
            );
        }
    }
}
