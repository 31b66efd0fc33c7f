//! Configured: a limiter for each key, with an algorithm that is chosen at run time.

use ratekeeper_core::{AnyAlgorithm, Call, Unsupported};

use super::{KeyLimit, KeyedLimiter, KeyedReservation, LimitKey};
use crate::{Clock, Grant};

impl<K: LimitKey, C: Clock> KeyLimit<'_, K, AnyAlgorithm, C> {
    /// Like [`refund`](KeyLimit::refund), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let limiter = KeyedLimiter::parse("10/1h").unwrap();
    /// let grant = limiter.check_n("ann", 4).unwrap();
    /// limiter.key("ann").try_refund(grant).unwrap();
    /// assert_eq!(limiter.key("ann").peek().remaining.get(), 10);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_refund(&self, grant: Grant) -> Result<(), Unsupported> {
        let limit = &self.limiter.limit;
        limit.with(|limit| limit.algorithm.supports(Call::Refund))?;
        self.limiter
            .settle(self.key.key_bytes().as_ref(), &grant.used(0));
        Ok(())
    }
}

impl<C: Clock> KeyedLimiter<AnyAlgorithm, C> {
    /// Like [`cancel`](KeyedLimiter::cancel), if the algorithm can take back a charge.
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_cancel(&self, reservation: KeyedReservation) -> Result<bool, Unsupported> {
        self.take_reservation_back(reservation)
    }
}
