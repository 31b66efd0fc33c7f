//! Waiting for several limits: asked again at the moment that a refusal states.
//!
//! ```text
//!   check --> grant --> its delay, under a leaky queue --> work
//!     ^  |
//!     |  '-- refused until .. --> sleep --.
//!     '-----------------------------------'
//! ```
//!
//! Callers form no line, because the processes that share a store do not know each other's: of
//! several that come back at one moment, any is first, and one of a large cost may wait for ever
//! among many of small costs. [`Limiter`](crate::Limiter) and [`KeyedLimiter`](crate::KeyedLimiter)
//! serve callers in order.

use std::time::Duration;

use ratekeeper_core::{Decision, Nanos, Unsupported};
use ratekeeper_store::{Decisions, MemoryStore, Store, StoreError};
use smallvec::smallvec;

use super::{CheckError, LimitCharge, Limits, LimitsGrant, NamedLimit};
use crate::limiter::Refused;
use crate::{Clock, LimitKey, Timer};

impl<S: Store, C: Timer> Limits<S, C> {
    /// Like [`check`](Self::check), but waits until all limits allow: it asks again at the moment
    /// that a refusal states. Callers form no line; of those that come back at one moment any is
    /// first, and one of a large cost may wait for ever among many of small costs, where
    /// [`Limiter::acquire_n`](crate::Limiter::acquire_n) would serve it. Under a leaky queue it
    /// also waits for the [delay](LimitsGrant::delay) of the grant.
    ///
    /// Dropped while it waits for permits, it has charged nothing; dropped during that delay, or
    /// while a shared store is asked, the charge may stay.
    ///
    /// ```
    /// use std::pin::pin;
    /// use std::task::{Context, Waker};
    /// use ratekeeper::core::Nanos;
    /// use ratekeeper::store::{MemoryConfig, MemoryStore};
    /// use ratekeeper::{Limits, ManualClock, at_once};
    ///
    /// let store = MemoryStore::new(MemoryConfig::default());
    /// let limits = Limits::new(store, ManualClock::default());
    /// let calls = limits.token_bucket("calls", "1/1s".parse()?)?;
    /// let tokens = limits.token_bucket("tokens", "10/1m".parse()?)?;
    /// let charges = [calls.of("ann"), tokens.of("ann").cost(5)];
    /// at_once(limits.check(&charges))?;
    ///
    /// let mut context = Context::from_waker(Waker::noop());
    /// let mut waits = pin!(limits.acquire(&charges));
    /// assert!(waits.as_mut().poll(&mut context).is_pending());
    /// limits.clock().advance(Nanos::SECOND);
    /// assert!(waits.as_mut().poll(&mut context).is_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`check`](Self::check), without waiting; of the refusals only
    /// [`Refused::Never`].
    pub async fn acquire(
        &self,
        charges: &[LimitCharge<'_, S, C>],
    ) -> Result<LimitsGrant, CheckError> {
        self.acquire_within(charges, Duration::MAX).await
    }

    /// Like [`acquire`](Self::acquire), for permits that are free after no longer than `patience`.
    ///
    /// # Errors
    /// Those of [`check`](Self::check): a refusal whose moment comes later is returned at once. A
    /// leaky queue's delay beyond `patience` is such a refusal; the charges are given back, with
    /// the errors of [`refund`](Self::refund).
    pub async fn acquire_within(
        &self,
        charges: &[LimitCharge<'_, S, C>],
        patience: Duration,
    ) -> Result<LimitsGrant, CheckError> {
        let clock = self.clock();
        let deadline = clock.now() + Nanos::from(patience);
        loop {
            let result = self.check(charges).await;
            let (wait, result) = match result {
                Ok(grant) => {
                    if let Some(late) = grant.later_than(deadline.since(clock.now())) {
                        self.refund(grant).await?;
                        return Err(late);
                    }
                    (grant.delay(), Some(grant))
                }
                Err(CheckError::Refused {
                    refused: Refused::Until(wait),
                    ..
                }) if clock.now() + Nanos::from(wait) <= deadline => (wait, None),
                Err(error) => return Err(error),
            };
            if !wait.is_zero() {
                clock.sleep_async(wait.into()).await;
            }
            if let Some(grant) = result {
                return Ok(grant);
            }
        }
    }
}

impl<S: Store, C: Timer> NamedLimit<S, C> {
    /// Waits for a permit of `key`, and takes it; see [`Limits::acquire`].
    ///
    /// # Errors
    /// The errors of [`Limits::acquire`].
    pub async fn acquire(&self, key: impl LimitKey) -> Result<LimitsGrant, CheckError> {
        self.acquire_n(key, 1).await
    }

    /// Like [`acquire`](Self::acquire), for `cost` permits at once.
    ///
    /// # Errors
    /// The errors of [`Limits::acquire`].
    pub async fn acquire_n(
        &self,
        key: impl LimitKey,
        cost: u64,
    ) -> Result<LimitsGrant, CheckError> {
        self.limits().acquire(&[self.of(key).cost(cost)]).await
    }
}

impl<C: Clock> NamedLimit<MemoryStore, C> {
    /// Takes `cost` permits of `key` for a moment at most `max_wait` from now, which the
    /// [delay](LimitsGrant::delay) of the grant states: they are charged now, and the caller waits
    /// as it likes. A cost above the burst, which [`check_n`](Self::check_n) refuses, is promised
    /// for the moment at which it is saved up. [`Limits::refund`] gives back what time has not paid
    /// for; moments promised to later requests stay, and the next request may get the last of them
    /// too.
    ///
    /// In memory only: where processes share a store, use [`acquire`](Self::acquire).
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratekeeper::Limits;
    /// let limits = Limits::in_memory();
    /// let mails = limits.token_bucket("mails", "1/1m".parse()?)?;
    /// let hour = Duration::from_secs(3_600);
    /// assert!(mails.reserve("ann", 1, hour)?.delay().is_zero());
    /// assert!(mails.reserve("ann", 1, hour)?.delay() > Duration::from_secs(59));
    /// assert!(mails.reserve("ann", 1, Duration::from_secs(90)).is_err(), "120 s");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`CheckError::Refused`] if the moment comes later, and [`StoreError::Unsupported`] if the
    /// algorithm does not promise: limits by GCRA and post-paid ones do.
    pub fn reserve(
        &self,
        key: impl LimitKey,
        cost: u64,
        max_wait: Duration,
    ) -> Result<LimitsGrant, CheckError> {
        let (limits, now) = (self.limits(), self.limits().clock().now());
        let copies = limits.copies(&[self.of(key).cost(cost)])?;
        let before = limits.store().marks().last();
        let mut each = smallvec![];
        for charged in &copies {
            let reserved = limits
                .store()
                .reserve(&charged.charge(), now, max_wait.into());
            let unsupported = |error: Unsupported| StoreError::Unsupported(error.to_string());
            each.push(reserved.map_err(unsupported)?.decision);
        }
        let decisions = Decisions {
            admitted: each
                .iter()
                .all(|decision: &Decision| decision.verdict.allows()),
            each,
            made: now,
            mark: limits.store().marks().mark(before),
            without_store: false,
        };
        LimitsGrant::of(limits.0.id, copies, &decisions)
    }
}
