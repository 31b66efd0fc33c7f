//! Reservation: permits of one key, charged for a later moment.
//!
//! ```text
//!   now ------ mine ------ theirs ------> time     cancel mine: gives back nothing, since
//!                                                  theirs stands on it
//! ```

use std::fmt;

use ratekeeper_core::{
    AnyAlgorithm, Call, Decision, Nanos, Permits, Refund, Reserve, Time, Unsupported,
};
use ratekeeper_store::Reserved;

use super::KeyedLimiter;
use super::LimitKey;
use crate::Clock;

/// Permits of a key, charged for a later moment, or a refusal; see [`KeyedLimiter::reserve`].
/// Dropping it leaves the permits charged.
#[must_use = "a reservation is charged at once: wait for its moment, or cancel it"]
pub struct KeyedReservation<'a, A, C> {
    limiter: &'a KeyedLimiter<A, C>,
    key: Box<[u8]>,
    cost: Permits,
    reserved: Reserved,
    /// The version of the limit that made it.
    version: u32,
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Reserves `cost` permits of `key` for a moment at most `max_wait` from now: they are charged,
    /// and the caller waits as it likes. A limit made by [`KeyedLimiter::per`] promises up to about
    /// a year ahead; others up to their patience, see
    /// [`Gcra::with_patience`](ratekeeper_core::Gcra::with_patience). Refused while a caller waits
    /// for the key.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::{Nanos, Permits};
    /// let limiter = KeyedLimiter::per("1/1m").unwrap();
    /// let hour = Nanos::from_secs(3_600);
    /// assert_eq!(limiter.reserve("ann", Permits::ONE, hour).wait(), Some(Nanos::ZERO));
    /// let later = limiter.reserve("ann", Permits::ONE, hour);
    /// assert!(later.wait().unwrap() > Nanos::from_secs(59));
    /// assert_eq!(limiter.reserve("ann", Permits::ONE, Nanos::SECOND).wait(), None);
    /// assert!(later.cancel());
    /// ```
    pub fn reserve(
        &self,
        key: impl LimitKey,
        cost: Permits,
        max_wait: Nanos,
    ) -> KeyedReservation<'_, A, C>
    where
        A: Reserve,
    {
        let key = key.key_bytes();
        let key = key.as_ref();
        // The algorithm can reserve, so it is not unsupported.
        self.promise(key, cost, max_wait)
            .unwrap_or_else(|_| self.refused(key, cost))
    }

    /// Like [`reserve`](Self::reserve), for any algorithm.
    pub(super) fn promise(
        &self,
        key: &[u8],
        cost: Permits,
        max_wait: Nanos,
    ) -> Result<KeyedReservation<'_, A, C>, Unsupported> {
        if self.lines.present() > 0 && self.lines.find(key).is_some() {
            return Ok(self.refused(key, cost));
        }
        let reserved = self.with(key, cost, |charge, now| {
            self.store.reserve(charge, now, max_wait)
        })?;
        Ok(self.reservation(key, cost, reserved))
    }

    fn refused(&self, key: &[u8], cost: Permits) -> KeyedReservation<'_, A, C> {
        let decision = self.behind_the_line(key, cost);
        let made = self.clock.now();
        self.reservation(key, cost, Reserved { decision, made })
    }

    fn reservation(
        &self,
        key: &[u8],
        cost: Permits,
        reserved: Reserved,
    ) -> KeyedReservation<'_, A, C> {
        KeyedReservation {
            limiter: self,
            key: key.into(),
            cost,
            reserved,
            version: self.limit.with(|limit| limit.version),
        }
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedReservation<'_, A, C> {
    /// Returns the limit's decision.
    pub const fn decision(&self) -> Decision {
        self.reserved.decision
    }

    /// Returns how long to wait, from when it was made; `None` if it was refused.
    pub const fn wait(&self) -> Option<Nanos> {
        self.reserved.decision.verdict.wait()
    }

    /// Returns the moment from which the permits may be used, by the limiter's clock; `None` if it
    /// was refused.
    pub fn due(&self) -> Option<Time> {
        self.wait().map(|wait| self.reserved.made + wait)
    }

    /// Gives the permits back, if the key was not charged after it and the limit is the same;
    /// returns whether it did. Moments promised to later requests of the key are kept.
    pub fn cancel(self) -> bool
    where
        A: Refund,
    {
        self.give_back().unwrap_or(false) // the algorithm takes back
    }

    pub(super) fn give_back(&self) -> Result<bool, Unsupported> {
        let limiter = self.limiter;
        let cancelled = limiter.with(&self.key, self.cost, |charge, now| {
            if charge.limit.version != self.version {
                return charge
                    .limit
                    .algorithm
                    .supports(Call::Refund)
                    .map(|()| false);
            }
            limiter.store.cancel(charge, self.reserved, now)
        })?;
        if cancelled {
            limiter.lines.wake(&self.key);
        }
        Ok(cancelled)
    }
}

impl<A, C> fmt::Debug for KeyedReservation<'_, A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedReservation")
            .field("reserved", &self.reserved)
            .field("cost", &self.cost)
            .finish_non_exhaustive()
    }
}
