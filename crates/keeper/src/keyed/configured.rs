//! Configured: a limiter for each key, with an algorithm that is chosen at run time.

use ratekeeper_core::{AnyAlgorithm, Call, Nanos, Permits, Unsupported};
#[cfg(feature = "policy")]
use ratekeeper_policy::config::LimitTextError;
use ratekeeper_store::GiveBack;
#[cfg(feature = "policy")]
use ratekeeper_store::MemoryConfig;

use super::LimitKey;
use super::{KeyedLimiter, KeyedReservation};
use crate::Clock;
#[cfg(feature = "policy")]
use crate::{SystemClock, limiter::limit_of};

#[cfg(feature = "policy")]
impl KeyedLimiter<AnyAlgorithm> {
    /// A limit for each key in the policy's words, in the form that
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
    /// All errors in the words, each with its place and an edit.
    pub fn parse(words: &str) -> Result<Self, LimitTextError> {
        let clock = SystemClock::new();
        let limit = limit_of(words, &clock)?;
        Ok(Self::with_clock(limit, MemoryConfig::default(), clock))
    }
}

#[cfg(feature = "policy")]
impl<C: Clock> KeyedLimiter<AnyAlgorithm, C> {
    /// Like [`set_limit`](KeyedLimiter::set_limit), in the policy's words.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let limiter = KeyedLimiter::parse("10/1h").unwrap();
    /// limiter.set_limit_text("{ limit = \"20/1h\", algorithm = \"sliding-window-log\" }").unwrap();
    /// assert_eq!(limiter.peek("ann").remaining.get(), 20);
    /// ```
    ///
    /// # Errors
    /// Those of [`parse`](KeyedLimiter::parse); then nothing is changed.
    pub fn set_limit_text(&self, words: &str) -> Result<(), LimitTextError> {
        self.set_limit(limit_of(words, &self.clock)?);
        Ok(())
    }
}

impl<C: Clock> KeyedLimiter<AnyAlgorithm, C> {
    /// Like [`refund`](KeyedLimiter::refund), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::Permits;
    /// let limiter = KeyedLimiter::parse("10/1h").unwrap();
    /// let _ = limiter.check_n("ann", Permits::new(4));
    /// limiter.try_refund("ann", Permits::new(3)).unwrap();
    /// assert_eq!(limiter.peek("ann").remaining.get(), 9);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_refund(&self, key: impl LimitKey, cost: Permits) -> Result<(), Unsupported> {
        let key = key.key_bytes();
        let key = key.as_ref();
        self.with(key, cost, |charge, now| {
            charge.limit.algorithm.supports(Call::Refund)?;
            self.store.settle_now(GiveBack, &[*charge], now);
            Ok(())
        })?;
        self.lines.wake(key);
        Ok(())
    }

    /// Like [`reserve`](KeyedLimiter::reserve), if the algorithm can promise a later moment.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::{Nanos, Permits};
    /// let minute = Nanos::from_secs(60);
    /// let limiter = KeyedLimiter::parse("spacing = \"10s\"").unwrap();
    /// let reserved = limiter.try_reserve("ann", Permits::ONE, minute).unwrap();
    /// assert_eq!(reserved.wait(), Some(Nanos::ZERO));
    /// assert_eq!(reserved.try_cancel(), Ok(true));
    /// let window = KeyedLimiter::parse("{ limit = \"10/1m\", algorithm = \"fixed-window\" }").unwrap();
    /// assert!(window.try_reserve("ann", Permits::ONE, minute).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA and post-paid ones can promise.
    pub fn try_reserve(
        &self,
        key: impl LimitKey,
        cost: Permits,
        max_wait: Nanos,
    ) -> Result<KeyedReservation<'_, AnyAlgorithm, C>, Unsupported> {
        self.limit
            .with(|limit| limit.algorithm.supports(Call::Reserve))?; // also while others wait
        self.promise(key.key_bytes().as_ref(), cost, max_wait)
    }
}

impl<C: Clock> KeyedReservation<'_, AnyAlgorithm, C> {
    /// Like [`cancel`](KeyedReservation::cancel), if the algorithm can take back a charge.
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_cancel(self) -> Result<bool, Unsupported> {
        self.give_back()
    }
}
