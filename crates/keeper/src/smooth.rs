//! Smooth: the limiters of Guava, call for call.
//!
//! ```text
//!   in Guava                          here
//!   RateLimiter.create(5.0)           SmoothRateLimiter::create(5.0)
//!   create(5.0, Duration)             create_warming_up(5.0, span)
//!   acquire(n), in seconds            acquire(n), as a span
//!   tryAcquire(n, timeout)            try_acquire(n, timeout)
//!   setRate, getRate                  set_rate, rate
//! ```
//!
//! Both are post-paid: a request goes as soon as those before it are paid for, and its own price is
//! paid by the wait of the next. Waits are equal to Guava's to the microsecond, but those of a
//! warm-up of zero, after whose first rest Guava never waits again. New code should prefer a
//! [`Limiter`](crate::Limiter), where each request pays for itself.
//!
//! * Source: D. Andreou, K. Bourrillion et al., Guava, `SmoothRateLimiter` (2012).

use std::time::Duration;

use ratekeeper_core::{Error, Nanos, Permits, Reserve, WarmUp, WarmUpState};
use ratekeeper_store::Lock;

use crate::{Block, Clock, SystemClock};

/// Seconds of permits that Guava's bursty limiter saves up.
const BURST_SECONDS: f64 = 1.0;

/// Guava's `RateLimiter`; see [`WarmUp`] for figure and formula.
///
/// ```
/// use ratekeeper::core::WarmUp;
/// use ratekeeper::{ManualClock, SmoothRateLimiter};
/// use std::time::Duration;
///
/// let five = WarmUp::bursty(5.0, 1.0)?;
/// let limiter = SmoothRateLimiter::with_clock(five, ManualClock::default());
/// assert_eq!(limiter.acquire(1), Duration::ZERO);
/// assert_eq!(limiter.acquire(1), Duration::from_millis(200), "it slept");
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Debug)]
pub struct SmoothRateLimiter<C = SystemClock> {
    clock: C,
    inner: Lock<SmoothInner>,
}

#[derive(Debug)]
struct SmoothInner {
    limit: WarmUp,
    state: WarmUpState,
}

impl SmoothRateLimiter {
    /// A limiter of `permits_per_second` that saves up for at most a second.
    ///
    /// ```
    /// use ratekeeper::SmoothRateLimiter;
    /// let limiter = SmoothRateLimiter::create(5.0).unwrap();
    /// assert!((limiter.rate() - 5.0).abs() < 1e-9);
    /// ```
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero.
    pub fn create(permits_per_second: f64) -> Result<Self, Error> {
        let limit = WarmUp::bursty(permits_per_second, BURST_SECONDS)?;
        Ok(Self::with_clock(limit, SystemClock::new()))
    }

    /// A limiter of `permits_per_second` that takes `warm_up` to get from cold, three times as
    /// slow, to warm.
    ///
    /// ```
    /// use ratekeeper::SmoothRateLimiter;
    /// use ratekeeper::core::Error;
    /// use std::time::Duration;
    /// assert!(SmoothRateLimiter::create_warming_up(2.0, Duration::from_secs(4)).is_ok());
    /// let error = SmoothRateLimiter::create_warming_up(0.0, Duration::from_secs(1)).unwrap_err();
    /// assert_eq!(error, Error::Rate);
    /// ```
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero.
    pub fn create_warming_up(permits_per_second: f64, warm_up: Duration) -> Result<Self, Error> {
        let limit = WarmUp::warming_up(permits_per_second, warm_up)?;
        Ok(Self::with_clock(limit, SystemClock::new()))
    }
}

impl<C: Clock> SmoothRateLimiter<C> {
    /// A limiter by other numbers, or on another clock. It starts as Guava's: cold, or with
    /// nothing saved up.
    ///
    /// ```
    /// use ratekeeper::core::WarmUp;
    /// use ratekeeper::{ManualClock, SmoothRateLimiter};
    /// let ten_seconds = WarmUp::bursty(2.0, 10.0).unwrap();
    /// let limiter = SmoothRateLimiter::with_clock(ten_seconds, ManualClock::default());
    /// ```
    pub fn with_clock(limit: WarmUp, clock: C) -> Self {
        let state = limit.start(clock.now());
        Self {
            clock,
            inner: Lock::new(SmoothInner { limit, state }),
        }
    }

    /// Takes permits for a later moment; returns how long to wait for it. It never sleeps, so it
    /// can be used in tasks and for planning.
    ///
    /// ```
    /// use ratekeeper::SmoothRateLimiter;
    /// use std::time::Duration;
    /// let limiter = SmoothRateLimiter::create(1.0).unwrap();
    /// assert_eq!(limiter.reserve(100), Duration::ZERO, "the next one pays");
    /// assert!(limiter.reserve(1) > Duration::from_secs(99));
    /// ```
    pub fn reserve(&self, permits: u64) -> Duration {
        self.ask(permits, Nanos::MAX).unwrap_or(Nanos::MAX).into() // patience is endless
    }

    /// Changes the rate: debts stay as they are, sleeping callers are not woken, and the saved
    /// permits stay the same share of the maximum.
    ///
    /// ```
    /// use ratekeeper::SmoothRateLimiter;
    /// let limiter = SmoothRateLimiter::create(5.0).unwrap();
    /// limiter.set_rate(8.0).unwrap();
    /// assert!((limiter.rate() - 8.0).abs() < 1e-9);
    /// assert!(limiter.set_rate(-1.0).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Rate`] unless the rate is above zero; then nothing is changed.
    pub fn set_rate(&self, permits_per_second: f64) -> Result<(), Error> {
        let inner = &mut *self.inner.lock();
        let now = self.clock.now();
        inner
            .limit
            .set_rate(&mut inner.state, now, permits_per_second)
    }

    /// Returns the permits per second.
    ///
    /// ```
    /// let limiter = ratekeeper::SmoothRateLimiter::create(0.5).unwrap();
    /// assert!((limiter.rate() - 0.5).abs() < 1e-9);
    /// ```
    pub fn rate(&self) -> f64 {
        self.inner.lock().limit.rate()
    }

    /// Returns the clock.
    ///
    /// ```
    /// use ratekeeper::{Clock, SmoothRateLimiter};
    /// let limiter = SmoothRateLimiter::create(1.0).unwrap();
    /// let _now = limiter.clock().now();
    /// ```
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Returns the wait; `None` if it is above `patience`, and nothing was taken.
    fn ask(&self, permits: u64, patience: Nanos) -> Option<Nanos> {
        let inner = &mut *self.inner.lock();
        let now = self.clock.now(); // under the lock: in the order of the callers
        let (limit, state) = (&inner.limit, &mut inner.state);
        let reserved = limit.reserve(state, now, Permits::new(permits), patience);
        reserved.verdict.wait()
    }
}

impl<C: Block> SmoothRateLimiter<C> {
    /// Takes permits, and sleeps until those before it are paid for; returns how long. Zero permits
    /// pass at once and cost nothing; in Guava they are an `IllegalArgumentException`.
    ///
    /// ```
    /// use ratekeeper::SmoothRateLimiter;
    /// use std::time::Duration;
    /// let limiter = SmoothRateLimiter::create(100.0).unwrap();
    /// assert_eq!(limiter.acquire(1), Duration::ZERO);
    /// assert!(limiter.acquire(1) <= Duration::from_millis(10));
    /// ```
    pub fn acquire(&self, permits: u64) -> Duration {
        let wait = self.reserve(permits);
        self.pass(wait);
        wait
    }

    /// Takes permits if they are due within `timeout`, and sleeps until then; otherwise returns
    /// false at once. Zero does not wait.
    ///
    /// ```
    /// use ratekeeper::SmoothRateLimiter;
    /// use std::time::Duration;
    /// let limiter = SmoothRateLimiter::create(1.0).unwrap();
    /// assert!(limiter.try_acquire(1, Duration::ZERO));
    /// assert!(!limiter.try_acquire(1, Duration::from_millis(10)));
    /// ```
    pub fn try_acquire(&self, permits: u64, timeout: Duration) -> bool {
        let wait = self.ask(permits, timeout.into());
        if let Some(wait) = wait {
            self.pass(wait.into());
        }
        wait.is_some()
    }

    fn pass(&self, wait: Duration) {
        if wait > Duration::ZERO {
            self.clock.sleep(wait.into());
        }
    }
}
