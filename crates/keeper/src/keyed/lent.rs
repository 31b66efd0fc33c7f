//! Lent: what the layer for services asks of a keyed limiter beside deciding.

use ratekeeper_core::{AnyAlgorithm, Decision, LeaseId, Lend, Limit, Permits, Time};
use ratekeeper_store::Hold;

use super::KeyedLimiter;
use crate::{Clock, Permit};

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// The algorithm as it stands.
    pub(crate) fn algorithm(&self) -> AnyAlgorithm {
        self.limit.with(|limit| limit.algorithm.clone())
    }

    /// What a request is told that waited in vain; nothing is charged.
    pub(crate) fn refusal(&self, key: &[u8], cost: Permits) -> (Decision, Time) {
        self.behind_the_line(key, cost)
    }

    /// Lends to a name, where the limit is one of concurrency; not while others wait for the
    /// key.
    pub(crate) fn lend(&self, key: &[u8], cost: Permits, lease: LeaseId) -> (Decision, Time) {
        if self.lines.present() > 0 && self.lines.find(key).is_some() {
            return self.behind_the_line(key, cost);
        }
        self.with(key, cost, |charge, now| {
            let lent = self.store.acquire_now(&[*charge], Lend::To(lease), now);
            let decision = lent.each.first().copied();
            let decision = decision.expect("one decision for one charge");
            (decision, now)
        })
    }

    /// Takes back what was lent, which the next in line has at once; nothing if it came back
    /// before.
    pub(crate) fn release(&self, permit: &Permit) {
        let now = self.clock.now();
        self.limit.with(|limit| {
            self.store.release_now(&[hold(limit, permit)], now);
        });
        self.lines.wake(permit.key().as_bytes());
    }

    /// Lets what was lent run its full length from now.
    pub(crate) fn renew(&self, permit: &Permit) {
        let now = self.clock.now();
        self.limit.with(|limit| {
            self.store.renew_now(&[hold(limit, permit)], now);
        });
    }
}

fn hold<'a>(limit: &'a Limit, permit: &'a Permit) -> Hold<'a> {
    Hold {
        limit,
        key: permit.key(),
        lease: permit.lease(),
    }
}
