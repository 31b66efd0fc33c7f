//! Parsed: limiters in the words of the policy language.

use ratekeeper_core::{AnyAlgorithm, Nanos};
use ratekeeper_policy::config::{Context, LimitTextError, parse_limit};
use ratekeeper_store::MemoryConfig;

use crate::{Clock, KeyedLimiter, Limiter, SystemClock};

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
        self.set_limit(limit_of(words, self.clock())?);
        Ok(())
    }
}

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
        self.set_limit(limit_of(words, self.clock())?);
        Ok(())
    }
}

/// Parses the text of a limit, for this clock; GCRA promises moments as far ahead as it can.
fn limit_of(text: &str, clock: &impl Clock) -> Result<AnyAlgorithm, LimitTextError> {
    let context = Context::from(clock.origin());
    Ok(parse_limit(text, context)?.with_patience(Nanos::MAX))
}
