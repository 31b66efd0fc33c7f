//! Reservation: permits charged for a later moment.
//!
//! ```text
//!   now ------ mine ------ theirs ------> time     cancel mine: gives back nothing, since
//!                                                  theirs stands on it
//!   now ------ mine ---------------------> time    cancel mine: all is given back
//! ```

use std::convert::Infallible;
use std::fmt;

use ratekeeper_core::{Decision, Nanos, Permits, Refund, Time};

use super::{Limiter, LimiterAlgorithm, StateCell};
use crate::Clock;

/// Permits charged for a later moment, or a refusal; see [`Limiter::reserve`]. Dropping it
/// leaves the permits charged.
#[must_use = "a reservation is charged at once: wait for its moment, or cancel it"]
pub struct Reservation<'a, A: LimiterAlgorithm, C> {
    pub(super) limiter: &'a Limiter<A, C>,
    decision: Decision,
    made: Time,
    cost: Permits,
    /// The state that it left.
    state: Option<A::State>,
}

impl<'a, A: LimiterAlgorithm, C: Clock> Reservation<'a, A, C> {
    pub(super) const fn new(
        limiter: &'a Limiter<A, C>,
        decision: Decision,
        made: Time,
        cost: Permits,
        state: Option<A::State>,
    ) -> Self {
        Self {
            limiter,
            decision,
            made,
            cost,
            state,
        }
    }

    /// Returns the limit's decision.
    pub const fn decision(&self) -> Decision {
        self.decision
    }

    /// Returns how long to wait, from when it was made; `None` if it was refused.
    pub const fn wait(&self) -> Option<Nanos> {
        self.decision.verdict.wait()
    }

    /// Returns the moment from which the permits may be used, by the limiter's clock; `None` if it
    /// was refused.
    pub fn due(&self) -> Option<Time> {
        self.wait().map(|wait| self.made + wait)
    }

    /// Gives the permits back, if the limit was not charged after it; returns whether it did.
    /// Moments promised to later requests are kept, and this one cannot be given twice.
    ///
    /// ```
    /// use ratekeeper::core::{Nanos, Permits};
    /// use ratekeeper::Limiter;
    /// let limiter = Limiter::per("1/1h").unwrap();
    /// let first = limiter.reserve(Permits::ONE, Nanos::ZERO);
    /// assert!(first.cancel());
    /// assert!(limiter.check().is_ok());
    /// ```
    pub fn cancel(self) -> bool
    where
        A: Refund,
    {
        let refund = |algorithm: &A, state: &mut _, now, cost| {
            algorithm.refund(state, now, cost);
            Ok::<_, Infallible>(())
        };
        let Ok(cancelled) = self.cancel_by(refund);
        cancelled
    }

    /// Gives back by `refund`, if the limit was not charged since.
    pub(super) fn cancel_by<E>(
        &self,
        refund: impl Fn(&A, &mut A::State, Time, Permits) -> Result<(), E>,
    ) -> Result<bool, E> {
        let (Some(_), Some(mine)) = (self.wait(), &self.state) else {
            return Ok(false);
        };
        let (limiter, now) = (self.limiter, self.limiter.clock.now());
        let cancelled = limiter.place.update(|state| {
            if state != mine {
                return Ok(false);
            }
            limiter.with(|algorithm| refund(algorithm, state, now, self.cost))?;
            Ok(true)
        })?;
        if cancelled {
            limiter.line.wake_first();
        }
        Ok(cancelled)
    }
}

impl<A: LimiterAlgorithm, C> fmt::Debug for Reservation<'_, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("decision", &self.decision)
            .field("made", &self.made)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}
