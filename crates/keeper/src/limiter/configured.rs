//! Configured: a limiter with an algorithm chosen at run time, by the policy's words.
//!
//! ```text
//!   Limiter::parse(words)  --->  Limiter<AnyAlgorithm>    check, acquire, peek, reset, set_limit:
//!                                                         as for every algorithm
//!                                                         try_reserve, try_refund: an answer, or
//!                                                         `Unsupported`
//! ```

use std::time::Duration;

#[cfg(feature = "policy")]
use ratekeeper_core::Nanos;
use ratekeeper_core::{AnyAlgorithm, Call, Permits, Unsupported};
#[cfg(feature = "policy")]
use ratekeeper_policy::config::{Context, LimitTextError, parse_limit};

use super::{Limiter, Reservation};
#[cfg(feature = "policy")]
use crate::SystemClock;
use crate::{Clock, Grant};

#[cfg(feature = "policy")]
/// Parses the text of a limit, for this clock; GCRA promises moments as far ahead as it can.
pub(crate) fn limit_of(text: &str, clock: &impl Clock) -> Result<AnyAlgorithm, LimitTextError> {
    let context = Context::from(clock.origin());
    Ok(parse_limit(text, context)?.with_patience(Nanos::MAX))
}

#[cfg(feature = "policy")]
impl Limiter<AnyAlgorithm> {
    /// A limiter in the policy's words: the fields of a `[[limit]]` that state how much it allows
    /// and how it counts. The number alone is the same limit as there, and as in [`Limiter::per`]:
    /// a token bucket.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// let texts = [
    ///     "100/1m",
    ///     "{ limit = \"100/1m\", algorithm = \"sliding-window-log\" }",
    ///     "bucket = { size = 100, refill = \"10/1s\" }",
    ///     "limit = \"100/1s\"\nwarmup = { period = \"10s\" }",
    /// ];
    /// for text in texts {
    ///     assert!(Limiter::parse(text)?.check().is_ok());
    /// }
    /// let error = Limiter::parse("{ limit = \"100/1m\", algorithm = \"magic\" }").unwrap_err();
    /// assert_eq!(error.findings()[0].code, "RK0106");
    /// # Ok::<(), ratekeeper::policy::config::LimitTextError>(())
    /// ```
    ///
    /// # Errors
    /// All errors in the text, each with its place and an edit.
    pub fn parse(words: &str) -> Result<Self, LimitTextError> {
        Self::parse_with_clock(words, SystemClock::new())
    }
}

#[cfg(feature = "policy")]
impl<C: Clock> Limiter<AnyAlgorithm, C> {
    /// Like [`parse`](Limiter::parse), on any clock.
    ///
    /// ```
    /// use ratekeeper::{Limiter, ManualClock};
    /// let limiter = Limiter::parse_with_clock("spacing = \"1s\"", ManualClock::default()).unwrap();
    /// assert!(limiter.check().is_ok() && limiter.check().is_err());
    /// ```
    ///
    /// # Errors
    /// Those of [`parse`](Limiter::parse).
    pub fn parse_with_clock(words: &str, clock: C) -> Result<Self, LimitTextError> {
        Ok(Self::with_clock(limit_of(words, &clock)?, clock))
    }

    /// Like [`set_limit`](Limiter::set_limit), from the text that [`parse`](Limiter::parse) reads.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// let limiter = Limiter::parse("{ limit = \"10/1h\", algorithm = \"sliding-window-log\" }").unwrap();
    /// let _ = limiter.check_n(4);
    /// limiter.set_limit_text("{ limit = \"20/1h\", algorithm = \"token-bucket\" }").unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 16, "used permits stay used");
    /// ```
    ///
    /// # Errors
    /// Those of [`parse`](Limiter::parse); then nothing is changed.
    pub fn set_limit_text(&self, words: &str) -> Result<(), LimitTextError> {
        self.set_limit(limit_of(words, &self.clock)?);
        Ok(())
    }
}

impl<C: Clock> Limiter<AnyAlgorithm, C> {
    /// Like [`refund`](Limiter::refund), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// let limiter = Limiter::parse("10/1h").unwrap();
    /// let grant = limiter.check_n(4).unwrap();
    /// limiter.try_refund(grant).unwrap();
    /// assert_eq!(limiter.peek().remaining.get(), 10);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn try_refund(&self, grant: Grant) -> Result<(), Unsupported> {
        self.with(|algorithm| algorithm.supports(Call::Refund))?;
        let back = Permits::new(grant.cost()); // as in `refund`
        self.give_back(&grant, back, |limit, state, now, receipt| {
            limit.try_give_back(state, now, back, receipt)
        })
    }

    /// Like [`reserve`](Limiter::reserve), if the algorithm can promise a later moment.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use std::time::Duration;
    /// let minute = Duration::from_secs(60);
    /// let pace = Limiter::parse("spacing = \"10s\"").unwrap();
    /// let reserved = pace.try_reserve(1, minute).unwrap();
    /// assert_eq!(reserved.wait(), Some(Duration::ZERO));
    /// let window = Limiter::parse("{ limit = \"10/1m\", algorithm = \"fixed-window\" }").unwrap();
    /// assert!(window.try_reserve(1, minute).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA and post-paid ones can promise.
    pub fn try_reserve(
        &self,
        cost: u64,
        max_wait: Duration,
    ) -> Result<Reservation<AnyAlgorithm>, Unsupported> {
        self.with(|algorithm| algorithm.supports(Call::Reserve))?; // also while others wait
        self.reserve_by(cost, |algorithm, state, now, cost| {
            algorithm.try_reserve(state, now, cost, max_wait.into())
        })
    }
}

impl<C: Clock> Limiter<AnyAlgorithm, C> {
    /// Like [`cancel`](Limiter::cancel), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    /// use std::time::Duration;
    /// let limiter = Limiter::parse("spacing = \"1h\"").unwrap();
    /// let reserved = limiter.try_reserve(1, Duration::ZERO).unwrap();
    /// assert_eq!(limiter.try_cancel(reserved), Ok(true));
    /// assert!(limiter.check().is_ok());
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_cancel(&self, reservation: Reservation<AnyAlgorithm>) -> Result<bool, Unsupported> {
        self.with(|algorithm| algorithm.supports(Call::Refund))?; // refused ones too
        self.cancel_by(reservation, AnyAlgorithm::try_refund)
    }
}
