//! Lent: methods of a keyed limiter for the tower layer, besides deciding.

use ratekeeper_core::{
    AnyAlgorithm, Concurrency, Decision, LeaseId, Lend, Limit, Nanos, Permits, Time, Verdict,
};
use ratekeeper_store::{Decide, Hold, Release, Renew};

use super::KeyedLimiter;
use super::wait::OneKey;
use crate::limiter::WaitError;
use crate::limiter::desk::Waitable;
use crate::limiter::line::WaitLine;
use crate::limiter::turn::Until;
use crate::limiter::wait::wait;
use crate::{Clock, Permit, Timer};

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Returns the current algorithm.
    pub(crate) fn algorithm(&self) -> AnyAlgorithm {
        self.limit.with(|limit| limit.algorithm.clone())
    }

    /// Returns the length of a loan, under a limit of concurrency.
    pub(crate) fn lease(&self) -> Option<Nanos> {
        self.limit
            .with(|limit| limit.algorithm.concurrency().map(Concurrency::lease))
    }

    /// Returns the decision for a request that waited in vain; nothing is charged.
    pub(crate) fn refusal(&self, key: &[u8], cost: Permits) -> Decision {
        self.behind_the_line(key, cost)
    }

    /// Lends to a name, under a limit of concurrency; denied while others wait for the key.
    pub(crate) fn lend(&self, key: &[u8], cost: Permits, lease: LeaseId) -> Decision {
        if self.lines.present() > 0 && self.lines.find(key).is_some() {
            return self.behind_the_line(key, cost);
        }
        self.with(key, cost, |charge, now| {
            let lent = self
                .store
                .settle_now(Decide(Lend::To(lease)), &[*charge], now);
            let decision = lent.each.first().copied();
            decision.expect("a store returns one decision per charge")
        })
    }

    /// Takes a permit back, so that the first waiter can have it at once; no effect if it came back
    /// before.
    pub(crate) fn release(&self, permit: &Permit) {
        let now = self.clock.now();
        self.limit.with(|limit| {
            self.store.settle_now(Release, &[hold(limit, permit)], now);
        });
        self.lines.wake(permit.key().as_bytes());
    }

    /// Renews a permit for its full length from now.
    pub(crate) fn renew(&self, permit: &Permit) {
        let now = self.clock.now();
        self.limit.with(|limit| {
            self.store.settle_now(Renew, &[hold(limit, permit)], now);
        });
    }
}

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
        let key = self.desk(key);
        let lending = Lending { key, lease };
        let waited = wait(lending, &self.clock, cost, Until::Span(patience)).await;
        matches!(waited, Ok(Some(_)))
    }
}

/// The desk of one key that lends permits to a name.
struct Lending<'a, A, C> {
    key: OneKey<'a, A, C>,
    lease: LeaseId,
}

impl<A: Into<AnyAlgorithm>, C: Clock> Waitable for Lending<'_, A, C> {
    fn now(&self) -> Time {
        self.key.now()
    }

    fn line(&self) -> &WaitLine {
        self.key.line()
    }

    fn room(&self, waiting: usize) -> Result<(), WaitError> {
        self.key.room(waiting)
    }

    fn capacity(&self) -> Permits {
        self.key.capacity()
    }

    fn look(&self, now: Time, cost: Permits) -> Decision {
        self.key.look(now, cost)
    }

    fn comes_back(&self) -> bool {
        true
    }

    fn at_least(&self, now: Time, total: Permits) -> Nanos {
        self.key.at_least(now, total)
    }

    fn take(&self, at: Time, cost: Permits, _by: Time) -> Verdict {
        self.key.lend(at, cost, self.lease)
    }
}

fn hold<'a>(limit: &'a Limit, permit: &'a Permit) -> Hold<'a> {
    Hold {
        limit,
        key: permit.key(),
        lease: permit.lease(),
    }
}
