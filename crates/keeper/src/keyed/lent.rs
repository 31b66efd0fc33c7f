//! Lent: permits of one key that a limit of concurrency has lent to a name.
//!
//! ```text
//!   lend ---> name holds ---> release: free, the first waiter of the key looks again
//!                 ^   |
//!           renew '---+-----> the lease ends: free
//! ```

use std::sync::Arc;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Concurrency, Decision, Key, LeaseId, Lend, Limit, Nanos, Permits, Time,
};
use ratekeeper_store::{Decide, Hold, MemoryStore, Release, Renew};

use super::{KeyedLimiter, LimitKey};
use crate::limiter::desk::{Lending, never, permits};
use crate::limiter::owned::{Lender, OwnedPermits, new_name};
use crate::limiter::turn::Until;
use crate::limiter::wait::{block, wait};
use crate::{Block, Clock, Refused, Timer, WaitError};

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Returns the current algorithm.
    #[cfg(feature = "tower")]
    pub(crate) fn algorithm(&self) -> AnyAlgorithm {
        self.limit.with(|limit| limit.algorithm.clone())
    }

    /// Returns the length of a loan, under a limit of concurrency.
    #[cfg(feature = "tower")]
    pub(crate) fn lease(&self) -> Option<Nanos> {
        self.limit
            .with(|limit| limit.algorithm.concurrency().map(Concurrency::lease))
    }

    /// Returns the decision for a request that waited in vain; nothing is charged.
    #[cfg(feature = "tower")]
    pub(crate) fn refusal(&self, key: &[u8], cost: Permits) -> Decision {
        self.behind_the_line(key, cost)
    }

    /// Lends to a name, under a limit of concurrency; denied while others wait for the key.
    pub(crate) fn lend(&self, key: &[u8], cost: Permits, lease: LeaseId) -> Decision {
        if self.lines.find(key).is_some() {
            return self.behind_the_line(key, cost);
        }
        self.with(key, cost, |charge, now| {
            lend(&self.store, charge, lease, now)
        })
    }
}

/// Lends the permits of a charge to a name.
pub(super) fn lend(
    store: &MemoryStore,
    charge: &Charge<'_>,
    lease: LeaseId,
    now: Time,
) -> Decision {
    let lent = store.settle_now(Decide(Lend::To(lease)), &[*charge], now);
    let decision = lent.each.first().copied();
    decision.expect("a store returns one decision per charge")
}

impl<A: Into<AnyAlgorithm>, C: Clock> Lender for KeyedLimiter<A, C> {
    fn release(&self, key: &[u8], lease: LeaseId) {
        let now = self.clock.now();
        self.limit.with(|limit| {
            self.store
                .settle_now(Release, &[hold(limit, key, lease)], now);
        });
        self.lines.wake(key);
    }

    fn renew(&self, key: &[u8], lease: LeaseId) -> Option<Nanos> {
        let now = self.clock.now();
        let renewed = self.limit.with(|limit| {
            self.store
                .settle_now(Renew, &[hold(limit, key, lease)], now)
        });
        renewed.into_iter().flatten().next()
    }
}

impl<C: Clock + 'static> KeyedLimiter<Concurrency, C> {
    /// Like [`check_n`](Self::check_n), for permits that are given back when the guard is dropped.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::Concurrency;
    ///
    /// let jobs = Concurrency::new(1, Duration::from_secs(60))?;
    /// let jobs = Arc::new(KeyedLimiter::new(jobs));
    /// let permit = jobs.check_owned("ann", 1).unwrap();
    /// assert!(jobs.check_owned("ann", 1).is_err() && jobs.check_owned("bob", 1).is_ok());
    /// drop(permit);
    /// assert!(jobs.check_owned("ann", 1).is_ok());
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Refused`], if fewer are free for the key: nothing is lent.
    pub fn check_owned(
        self: &Arc<Self>,
        key: impl LimitKey,
        cost: u64,
    ) -> Result<OwnedPermits, Refused> {
        let (key, lease) = (key.key_bytes(), new_name());
        let key = key.as_ref();
        let decision = match permits(cost) {
            None => never(self.peek(key)),
            Some(cost) => self.lend(key, cost, lease),
        };
        if let Some(refused) = decision.verdict.refused() {
            return Err(refused);
        }
        Ok(self.guard(key, lease))
    }

    fn guard(self: &Arc<Self>, key: &[u8], lease: LeaseId) -> OwnedPermits {
        OwnedPermits::new(Arc::<Self>::clone(self), key, lease)
    }
}

impl<C: Block + 'static> KeyedLimiter<Concurrency, C> {
    /// Waits until the permits are free, in line with the other waiters for the key, and takes
    /// them. It blocks the thread.
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn acquire_owned_blocking(
        self: &Arc<Self>,
        key: impl LimitKey,
        cost: u64,
    ) -> Result<OwnedPermits, WaitError> {
        let (key, lease) = (key.key_bytes(), new_name());
        let desk = self.desk(key.as_ref());
        block(Lending { desk, lease }, &self.clock, cost, Until::Served)?;
        Ok(self.guard(key.as_ref(), lease))
    }
}

impl<C: Clock + 'static> KeyedLimiter<Concurrency, C> {
    /// Waits until the permits are free, in line with the other waiters for the key, and takes
    /// them; see [`acquire`](super::KeyLimit::acquire).
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn acquire_owned(
        self: &Arc<Self>,
        key: impl LimitKey,
        cost: u64,
    ) -> Result<OwnedPermits, WaitError>
    where
        C: Timer,
    {
        let (key, lease) = (key.key_bytes(), new_name());
        let desk = self.desk(key.as_ref());
        wait(Lending { desk, lease }, &self.clock, cost, Until::Served).await?;
        Ok(self.guard(key.as_ref(), lease))
    }
}

#[cfg(feature = "tower")]
impl<A: Into<AnyAlgorithm>, C: Timer> KeyedLimiter<A, C> {
    /// Like [`lend`](Self::lend), in line with the other waiters for the key, for at most
    /// `patience`; returns true if it was lent.
    pub(crate) async fn lend_within(
        &self,
        key: &[u8],
        cost: Permits,
        lease: LeaseId,
        patience: Nanos,
    ) -> bool {
        let desk = self.desk(key);
        let lending = Lending { desk, lease };
        let waited = wait(lending, &self.clock, cost.get(), Until::Span(patience)).await;
        matches!(waited, Ok(Some(_)))
    }
}

fn hold<'a>(limit: &'a Limit, key: &'a [u8], lease: LeaseId) -> Hold<'a> {
    let key = Key::from_bytes(key);
    Hold { limit, key, lease }
}
