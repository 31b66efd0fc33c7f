//! Waiting for a key: first come, first served among the waiters for the same key.
//!
//! ```text
//!   acquire --> no waiter for the key   , and it fits?  --yes--> taken: no line, no copy of the
//!                 |                                              key
//!                 '--no--> the line of the key, until served, too late, or dropped
//! ```

use std::time::Duration;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Charge, LeaseId, Nanos, Permits, Time, Verdict,
};

use super::lent::lend;
use super::lines::Standing;
use super::{KeyLimit, KeyedLimiter, LimitKey};
use crate::limiter::WaitError;
use crate::limiter::desk::{Lends, Waitable, permits};
use crate::limiter::line::WaitLine;
use crate::limiter::turn::{TurnStep, Until};
use crate::limiter::wait::{answer, block, wait};
use crate::{Block, Clock, Timer};

/// Waiting by a thread.
impl<K: LimitKey, A: Into<AnyAlgorithm>, C: Block> KeyLimit<'_, K, A, C> {
    /// Waits until the key has a permit, in line with the other waiters for the key, and takes it;
    /// returns how long that took. It blocks the thread.
    ///
    /// ```
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::store::MemoryConfig;
    /// use ratekeeper::{KeyedLimiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let apart = Gcra::spacing(Nanos::SECOND).unwrap();
    /// let clock = ManualClock::default();
    /// let limiter = KeyedLimiter::with_clock(apart, MemoryConfig::default(), clock);
    /// let waited = ["ann", "bob", "ann"].map(|user| limiter.key(user).acquire_blocking().unwrap());
    /// assert_eq!(waited, [Duration::ZERO, Duration::ZERO, Duration::from_secs(1)]);
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn acquire_blocking(&self) -> Result<Duration, WaitError> {
        self.acquire_n_blocking(1)
    }

    /// Like [`acquire_blocking`](Self::acquire_blocking), for `cost` permits at once.
    ///
    /// ```
    /// use ratekeeper::{KeyedLimiter, WaitError};
    /// let limiter = KeyedLimiter::per("5/1s").unwrap();
    /// let [cost, capacity] = [6, 5];
    /// let never = WaitError::TooLarge { cost, capacity };
    /// assert_eq!(limiter.key("ann").acquire_n_blocking(cost), Err(never));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn acquire_n_blocking(&self, cost: u64) -> Result<Duration, WaitError> {
        let waited = self.block(cost, Until::Served)?;
        Ok(waited.unwrap_or(Duration::MAX)) // no patience ends in 584 years
    }

    /// Like [`acquire_n_blocking`](Self::acquire_n_blocking), for no longer than `patience`; `None`
    /// if that does not suffice. If it is known not to suffice, returns at once: always under GCRA,
    /// and else as soon as the caller is first in line.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use std::time::Duration;
    /// let limiter = KeyedLimiter::per("1/1h").unwrap();
    /// let ask = |user| limiter.key(user).try_acquire_blocking(1, Duration::from_secs(1));
    /// assert_eq!(ask("ann"), Ok(Some(Duration::ZERO)));
    /// assert_eq!(ask("ann"), Ok(None), "refused without waiting");
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn try_acquire_blocking(
        &self,
        cost: u64,
        patience: Duration,
    ) -> Result<Option<Duration>, WaitError> {
        self.block(cost, Until::Span(patience.into()))
    }

    /// Like [`try_acquire_blocking`](Self::try_acquire_blocking), until `deadline` on the
    /// limiter's clock.
    ///
    /// ```
    /// use ratekeeper::core::Nanos;
    /// use ratekeeper::{Clock, KeyedLimiter};
    /// use std::time::Duration;
    /// let limiter = KeyedLimiter::per("1/1h").unwrap();
    /// let deadline = limiter.clock().now() + Nanos::SECOND;
    /// let ask = |user| limiter.key(user).try_acquire_until_blocking(1, deadline);
    /// assert_eq!([ask("ann"), ask("ann")], [Ok(Some(Duration::ZERO)), Ok(None)]);
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn try_acquire_until_blocking(
        &self,
        cost: u64,
        deadline: Time,
    ) -> Result<Option<Duration>, WaitError> {
        self.block(cost, Until::Moment(deadline))
    }

    fn block(&self, cost: u64, until: Until) -> Result<Option<Duration>, WaitError> {
        let (key, limiter) = (self.key.key_bytes(), self.limiter);
        match limiter.at_once(key.as_ref(), cost, until) {
            Some(step) => answer(step),
            None => block(limiter.desk(key.as_ref()), &limiter.clock, cost, until),
        }
    }
}

/// Waiting by a task. The futures own the key, so that they need nothing but the limiter.
impl<K: LimitKey, A: Into<AnyAlgorithm>, C: Clock> KeyLimit<'_, K, A, C> {
    /// Waits until the key has a permit, in line with the other waiters for the key, and takes it;
    /// returns how long that took. If dropped before it is ready, it leaves the line, and has taken
    /// nothing. It joins the line when first polled.
    ///
    /// With [`SystemClock`](crate::SystemClock) it needs the feature `tokio`.
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::store::MemoryConfig;
    /// use ratekeeper::{KeyedLimiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let apart = Gcra::spacing(Nanos::SECOND).unwrap();
    /// let clock = ManualClock::default();
    /// let limiter = KeyedLimiter::with_clock(apart, MemoryConfig::default(), clock);
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert_eq!(pin!(limiter.key("ann").acquire()).poll(&mut context), Poll::Ready(Ok(Duration::ZERO)));
    /// let mut second = pin!(limiter.key("ann").acquire());
    /// assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
    /// limiter.clock().advance(Nanos::SECOND);
    /// assert_eq!(second.poll(&mut context), Poll::Ready(Ok(Duration::from_secs(1))));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn acquire(self) -> Result<Duration, WaitError>
    where
        C: Timer,
    {
        self.acquire_n(1).await
    }

    /// Like [`acquire`](Self::acquire), for `cost` permits at once.
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn acquire_n(self, cost: u64) -> Result<Duration, WaitError>
    where
        C: Timer,
    {
        let waited = self.wait(cost, Until::Served).await?;
        Ok(waited.unwrap_or(Duration::MAX)) // no patience ends in 584 years
    }

    /// Like [`acquire_n`](Self::acquire_n), for no longer than `patience`; `None` if that does not
    /// suffice. If it is known not to suffice, returns at once: always under GCRA, and else as soon
    /// as the caller is first in line.
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn try_acquire(
        self,
        cost: u64,
        patience: Duration,
    ) -> Result<Option<Duration>, WaitError>
    where
        C: Timer,
    {
        self.wait(cost, Until::Span(patience.into())).await
    }

    /// Like [`try_acquire`](Self::try_acquire), until `deadline` on the limiter's clock.
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn try_acquire_until(
        self,
        cost: u64,
        deadline: Time,
    ) -> Result<Option<Duration>, WaitError>
    where
        C: Timer,
    {
        self.wait(cost, Until::Moment(deadline)).await
    }

    async fn wait(self, cost: u64, until: Until) -> Result<Option<Duration>, WaitError>
    where
        C: Timer,
    {
        let (key, limiter) = (self.key.key_bytes(), self.limiter);
        match limiter.at_once(key.as_ref(), cost, until) {
            Some(step) => answer(step),
            None => wait(limiter.desk(key.as_ref()), &limiter.clock, cost, until).await,
        }
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Returns the answer if no waiting is needed: the permits were taken, or the wait is known to
    /// be too long.
    fn at_once(&self, key: &[u8], cost: u64, until: Until) -> Option<TurnStep> {
        let cost = permits(cost)?;
        if self.lines.find(key).is_some() {
            return None;
        }
        self.with(key, cost, |charge, now| {
            let verdict = self.store.take(charge, now, now).verdict;
            match verdict {
                Verdict::Allow => return Some(TurnStep::Granted(Nanos::ZERO)),
                Verdict::DenyForever => return None, // the desk says why
                _ => {}
            }
            let too_late = self.store.at_least(charge, now) > until.patience(now);
            too_late.then_some(TurnStep::Refused)
        })
    }

    pub(super) fn desk(&self, key: &[u8]) -> OneKey<'_, A, C> {
        OneKey {
            limiter: self,
            standing: self.lines.enter(key),
        }
    }
}

/// The desk of one key.
pub(super) struct OneKey<'a, A, C> {
    limiter: &'a KeyedLimiter<A, C>,
    standing: Standing<'a>,
}

impl<A, C> OneKey<'_, A, C> {
    fn with<T>(&self, cost: Permits, act: impl FnOnce(&Charge<'_>) -> T) -> T {
        self.limiter.charge(&self.standing.key, cost, act)
    }
}

impl<A, C> Lends for OneKey<'_, A, C> {
    fn lend(&self, now: Time, cost: Permits, lease: LeaseId) -> Verdict {
        self.with(cost, |charge| {
            lend(&self.limiter.store, charge, lease, now).verdict
        })
    }
}

impl<A, C> Waitable for OneKey<'_, A, C> {
    fn line(&self) -> &WaitLine {
        &self.standing.line
    }

    fn most_if_full(&self, waiting: usize) -> Option<usize> {
        let most = self.limiter.most_waiting;
        let of_one_key = Some(most.of_one_key).filter(|most| waiting >= *most);
        let present = self.limiter.lines.present(); // with this one
        of_one_key.or_else(|| Some(most.in_all).filter(|most| present > *most))
    }

    fn capacity(&self) -> Permits {
        let limit = &self.limiter.limit;
        limit.with(|limit| limit.algorithm.capacity())
    }

    fn comes_back(&self) -> bool {
        let limit = &self.limiter.limit;
        limit.with(|limit| limit.algorithm.concurrency().is_some())
    }

    fn at_least(&self, now: Time, total: Permits) -> Nanos {
        self.with(total, |charge| self.limiter.store.at_least(charge, now))
    }

    fn take(&self, at: Time, cost: Permits, by: Time) -> Verdict {
        self.with(cost, |charge| {
            let verdict = self.limiter.store.take(charge, at, by).verdict;
            // A request allowed at a moment up to `by` passes now.
            match verdict {
                Verdict::AllowAfter(wait) if at + wait <= by => Verdict::Allow,
                verdict => verdict,
            }
        })
    }
}
