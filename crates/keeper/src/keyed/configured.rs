//! Configured: a limiter for each key, with an algorithm that is chosen at run time.

use ratekeeper_core::{AnyAlgorithm, Call, Unsupported};
#[cfg(feature = "policy")]
use ratekeeper_policy::config::LimitTextError;
#[cfg(feature = "policy")]
use ratekeeper_store::MemoryConfig;

use super::{KeyLimit, KeyedLimiter, KeyedReservation, LimitKey};
use crate::{Clock, Grant};
#[cfg(feature = "policy")]
use crate::{SystemClock, limiter::limit_of};

#[cfg(feature = "policy")]
impl KeyedLimiter<AnyAlgorithm> {
    /// A limit for each key, in the form that
    /// [`Limiter::parse`](crate::Limiter::parse) reads.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let limiter = KeyedLimiter::parse("{ limit = \"2/1h\", algorithm = \"fixed-window\" }")?;
    /// let ask = || limiter.check("ann").is_ok();
    /// assert_eq!([ask(), ask(), ask()], [true, true, false]);
    /// # Ok::<(), ratekeeper::policy::config::LimitTextError>(())
    /// ```
    ///
    /// # Errors
    /// All errors in the text, each with its place and an edit.
    pub fn parse(words: &str) -> Result<Self, LimitTextError> {
        let clock = SystemClock::new();
        let limit = limit_of(words, &clock)?;
        Ok(Self::with_clock(limit, MemoryConfig::default(), clock))
    }
}

#[cfg(feature = "policy")]
impl<C: Clock> KeyedLimiter<AnyAlgorithm, C> {
    /// Like [`set_limit`](KeyedLimiter::set_limit), from a text that
    /// [`parse`](KeyedLimiter::parse) reads.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let limiter = KeyedLimiter::parse("10/1h").unwrap();
    /// limiter.set_limit_text("{ limit = \"20/1h\", algorithm = \"sliding-window-log\" }").unwrap();
    /// assert_eq!(limiter.key("ann").peek().remaining.get(), 20);
    /// ```
    ///
    /// # Errors
    /// Those of [`parse`](KeyedLimiter::parse); then nothing is changed.
    pub fn set_limit_text(&self, words: &str) -> Result<(), LimitTextError> {
        self.set_limit(limit_of(words, &self.clock)?);
        Ok(())
    }
}

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
