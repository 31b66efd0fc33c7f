//! Waiting for a key: fair among the waiters for the same key.
//!
//! ```text
//!   acquire --> no waiter for the key   , and it fits?  --yes--> taken: no line, no copy of the
//!                 |                                              key
//!                 '--no--> the line of the key, until served, too late, or dropped
//! ```

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Charge, Decision, Nanos, Permits, Time, Verdict,
};
#[cfg(feature = "tower")]
use ratekeeper_core::{LeaseId, Lend};

use super::LimitKey;
use super::lines::Standing;
use super::{KeyedLimiter, charge_of};
use crate::limiter::WaitError;
use crate::limiter::desk::Waitable;
use crate::limiter::line::WaitLine;
use crate::limiter::turn::{TurnStep, Until};
use crate::limiter::wait::{answer, block, wait};
use crate::{Block, Clock, Timer};
#[cfg(feature = "tower")]
use ratekeeper_store::Decide;

/// Waiting by a thread.
impl<A: Into<AnyAlgorithm>, C: Block> KeyedLimiter<A, C> {
    /// Waits until `key` has a permit, in line with the other waiters for that key, and takes it;
    /// returns how long that took. It blocks the thread.
    ///
    /// ```
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::store::MemoryConfig;
    /// use ratekeeper::{KeyedLimiter, ManualClock};
    ///
    /// let apart = Gcra::spacing(Nanos::SECOND).unwrap();
    /// let clock = ManualClock::default();
    /// let limiter = KeyedLimiter::with_clock(apart, MemoryConfig::default(), clock);
    /// let waited = ["ann", "bob", "ann"].map(|user| limiter.acquire_blocking(user).unwrap());
    /// assert_eq!(waited, [Nanos::ZERO, Nanos::ZERO, Nanos::SECOND]);
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub fn acquire_blocking(&self, key: impl LimitKey) -> Result<Nanos, WaitError> {
        self.acquire_n_blocking(key, Permits::ONE)
    }

    /// Like [`acquire_blocking`](Self::acquire_blocking), for `cost` permits at once.
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// use ratekeeper::{KeyedLimiter, WaitError};
    /// let limiter = KeyedLimiter::per("5/1s").unwrap();
    /// let [cost, capacity] = [Permits::new(6), Permits::new(5)];
    /// let never = WaitError::TooLarge { cost, capacity };
    /// assert_eq!(limiter.acquire_n_blocking("ann", cost), Err(never));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub fn acquire_n_blocking(
        &self,
        key: impl LimitKey,
        cost: Permits,
    ) -> Result<Nanos, WaitError> {
        let waited = self.block(key.key_bytes().as_ref(), cost, Until::Served)?;
        Ok(waited.unwrap_or(Nanos::MAX)) // no patience ends in 584 years
    }

    /// Like [`acquire_n_blocking`](Self::acquire_n_blocking), for no longer than `patience`; `None`
    /// if that does not suffice. If it is known not to suffice, returns at once: always under GCRA,
    /// and else as soon as the caller is first in line.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::{Nanos, Permits};
    /// let limiter = KeyedLimiter::per("1/1h").unwrap();
    /// let ask = |user| limiter.try_acquire_blocking(user, Permits::ONE, Nanos::SECOND);
    /// assert_eq!(ask("ann"), Ok(Some(Nanos::ZERO)));
    /// assert_eq!(ask("ann"), Ok(None), "refused without waiting");
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub fn try_acquire_blocking(
        &self,
        key: impl LimitKey,
        cost: Permits,
        patience: Nanos,
    ) -> Result<Option<Nanos>, WaitError> {
        self.block(key.key_bytes().as_ref(), cost, Until::Span(patience))
    }

    /// Like [`try_acquire_blocking`](Self::try_acquire_blocking), until `deadline` on the
    /// limiter's clock.
    ///
    /// ```
    /// use ratekeeper::core::{Nanos, Permits};
    /// use ratekeeper::{Clock, KeyedLimiter};
    /// let limiter = KeyedLimiter::per("1/1h").unwrap();
    /// let deadline = limiter.clock().now() + Nanos::SECOND;
    /// let ask = |user| limiter.try_acquire_until_blocking(user, Permits::ONE, deadline);
    /// assert_eq!([ask("ann"), ask("ann")], [Ok(Some(Nanos::ZERO)), Ok(None)]);
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub fn try_acquire_until_blocking(
        &self,
        key: impl LimitKey,
        cost: Permits,
        deadline: Time,
    ) -> Result<Option<Nanos>, WaitError> {
        self.block(key.key_bytes().as_ref(), cost, Until::Moment(deadline))
    }

    fn block(&self, key: &[u8], cost: Permits, until: Until) -> Result<Option<Nanos>, WaitError> {
        match self.at_once(key, cost, until) {
            Some(step) => answer(step),
            None => block(self.desk(key), &self.clock, cost, until),
        }
    }
}

/// Waiting by a task.
impl<A: Into<AnyAlgorithm>, C: Timer> KeyedLimiter<A, C> {
    /// Waits until `key` has a permit, in line with the other waiters for that key, and takes it;
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
    ///
    /// let apart = Gcra::spacing(Nanos::SECOND).unwrap();
    /// let clock = ManualClock::default();
    /// let limiter = KeyedLimiter::with_clock(apart, MemoryConfig::default(), clock);
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert_eq!(pin!(limiter.acquire("ann")).poll(&mut context), Poll::Ready(Ok(Nanos::ZERO)));
    /// let mut second = pin!(limiter.acquire("ann"));
    /// assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
    /// limiter.clock().advance(Nanos::SECOND);
    /// assert_eq!(second.poll(&mut context), Poll::Ready(Ok(Nanos::SECOND)));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub async fn acquire(&self, key: impl LimitKey) -> Result<Nanos, WaitError> {
        self.acquire_n(key, Permits::ONE).await
    }

    /// Like [`acquire`](Self::acquire), for `cost` permits at once.
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub async fn acquire_n(&self, key: impl LimitKey, cost: Permits) -> Result<Nanos, WaitError> {
        let waited = self
            .wait(key.key_bytes().as_ref(), cost, Until::Served)
            .await?;
        Ok(waited.unwrap_or(Nanos::MAX)) // no patience ends in 584 years
    }

    /// Like [`acquire_n`](Self::acquire_n), for no longer than `patience`; `None` if that does not
    /// suffice. If it is known not to suffice, returns at once: always under GCRA, and else as soon
    /// as the caller is first in line.
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub async fn try_acquire(
        &self,
        key: impl LimitKey,
        cost: Permits,
        patience: Nanos,
    ) -> Result<Option<Nanos>, WaitError> {
        self.wait(key.key_bytes().as_ref(), cost, Until::Span(patience))
            .await
    }

    /// Like [`try_acquire`](Self::try_acquire), until `deadline` on the limiter's clock.
    ///
    /// # Errors
    /// [`WaitError`], at once.
    pub async fn try_acquire_until(
        &self,
        key: impl LimitKey,
        cost: Permits,
        deadline: Time,
    ) -> Result<Option<Nanos>, WaitError> {
        self.wait(key.key_bytes().as_ref(), cost, Until::Moment(deadline))
            .await
    }

    async fn wait(
        &self,
        key: &[u8],
        cost: Permits,
        until: Until,
    ) -> Result<Option<Nanos>, WaitError> {
        match self.at_once(key, cost, until) {
            Some(step) => answer(step),
            None => wait(self.desk(key), &self.clock, cost, until).await,
        }
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Returns the answer if no waiting is needed: the permits were taken, or the wait is known to
    /// be too long.
    fn at_once(&self, key: &[u8], cost: Permits, until: Until) -> Option<TurnStep> {
        if self.lines.find(key).is_some() {
            return None;
        }
        self.with(key, cost, |charge, now| {
            let verdict = self.store.take(charge, now, now).verdict;
            match verdict {
                Verdict::Allow => return Some(TurnStep::Granted(Nanos::ZERO)),
                Verdict::DenyForever => return None, // the desk says why
                Verdict::AllowAfter(_) | Verdict::Deny { .. } => {}
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
        let key = &self.standing.key;
        let limit = &self.limiter.limit;
        limit.with(|limit| act(&charge_of(limit, key, cost)))
    }
}

#[cfg(feature = "tower")]
impl<A, C: Clock> OneKey<'_, A, C> {
    /// Lends `cost` permits to a name, or none.
    pub(super) fn lend(&self, now: Time, cost: Permits, lease: LeaseId) -> Verdict {
        self.with(cost, |charge| {
            let lent = self
                .limiter
                .store
                .settle_now(Decide(Lend::To(lease)), &[*charge], now);
            let decision = lent.each.first().copied();
            decision
                .expect("a store returns one decision per charge")
                .verdict
        })
    }
}

impl<A, C: Clock> Waitable for OneKey<'_, A, C> {
    fn now(&self) -> Time {
        self.limiter.clock.now()
    }

    fn line(&self) -> &WaitLine {
        &self.standing.line
    }

    fn room(&self, waiting: usize) -> Result<(), WaitError> {
        let bounds = self.limiter.most_waiting;
        if waiting >= bounds.of_one_key {
            let most = bounds.of_one_key;
            return Err(WaitError::TooManyWaiting { most });
        }
        // The calling waiter is already counted.
        if self.limiter.lines.present() > bounds.in_all {
            let most = bounds.in_all;
            return Err(WaitError::TooManyWaiting { most });
        }
        Ok(())
    }

    fn capacity(&self) -> Permits {
        self.limiter.limit.with(|limit| limit.algorithm.capacity())
    }

    fn look(&self, now: Time, cost: Permits) -> Decision {
        self.with(cost, |charge| self.limiter.store.look_one(charge, now))
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
