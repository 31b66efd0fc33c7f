//! Grant: a request that passes.

use std::num::NonZeroU64;
use std::time::Duration;

use ratekeeper_core::{Decision, Receipt, Refused, Time};

use super::Settlement;

/// A request that passes; its cost is charged. Dropping it changes nothing: permits of
/// [`Concurrency`](ratekeeper_core::Concurrency) come back by
/// [`refund`](crate::Limiter::refund) or at the end of their lease, and by drop from the guard of
/// [`check_owned`](crate::Limiter::check_owned).
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
    pub(crate) made: GrantOrigin,
}

/// Where and when a grant was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GrantOrigin {
    pub(crate) at: Time,
    /// The limiter that made it.
    pub(crate) limiter: u64,
    /// See [`Receipt::mark`].
    pub(crate) mark: Option<NonZeroU64>,
}

impl Grant {
    /// Splits a decision about `cost` into the request that passes and the refusal.
    #[inline]
    pub(crate) fn of(decision: Decision, cost: u64, made: GrantOrigin) -> Result<Self, Refused> {
        match decision.verdict.refused() {
            None => Ok(Self {
                cost,
                decision,
                made,
            }),
            Some(refused) => Err(refused),
        }
    }

    /// Returns its receipt, for the limiter that made it.
    pub(crate) fn receipt(&self) -> Receipt {
        Receipt {
            mark: self.made.mark,
            ..Receipt::of(&self.decision, self.made.at)
        }
    }

    /// Returns the cost that was charged.
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Returns the largest cost that would still be allowed at the moment of the decision.
    pub fn remaining(&self) -> u64 {
        self.decision.remaining.get()
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
    /// let queue = Gcra::leaky_queue("1/1s".parse()?, 3)?;
    /// let limiter = Limiter::with_clock(queue, ManualClock::default());
    /// let delays = [0, 1, 2].map(|_| limiter.check().map(|grant| grant.delay()));
    /// assert_eq!(delays, [0, 1, 2].map(|seconds| Ok(Duration::from_secs(seconds))));
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn delay(&self) -> Duration {
        let wait = self.decision.verdict.wait();
        wait.map_or(Duration::ZERO, Duration::from)
    }

    /// Returns the settlement of work that cost `used`, for
    /// [`Limiter::settle`](super::Limiter::settle).
    #[must_use = "a settlement changes nothing until it is given to the limiter"]
    pub const fn used(self, used: u64) -> Settlement {
        Settlement { grant: self, used }
    }
}
