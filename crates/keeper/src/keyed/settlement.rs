//! Settlement: the charge of a key, corrected to the actual cost of its work.
//!
//! ```text
//!   taken  |==============|         estimate, charged before the work
//!   used   |=====|--------|         the rest is given back
//!   used   |==============|#####>   the excess is owed: the key pays it by waiting
//! ```

use std::sync::atomic::Ordering;

use ratekeeper_core::{AnyAlgorithm, Call, Permits, Refund, Reserve, Unsupported};
use ratekeeper_store::{ActualCost, ChargeOrigin, Settle, Settled};

use super::{KeyLimit, KeyedLimiter, LimitKey};
use crate::limiter::settles;
use crate::{Clock, Grant, Settlement};

impl<K: LimitKey, A: Into<AnyAlgorithm> + Refund + Reserve, C: Clock> KeyLimit<'_, K, A, C> {
    /// Corrects the charge for work to its actual cost; see
    /// [`Limiter::settle`](crate::Limiter::settle).
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let tokens = KeyedLimiter::per("1000/24h")?;
    ///
    /// let ann = tokens.key("ann");
    /// let grant = ann.check_n(400).unwrap();
    /// ann.settle(grant.used(150));
    /// assert_eq!(ann.peek().remaining.get(), 850);
    ///
    /// let bob = tokens.key("bob");
    /// let grant = bob.check_n(400).unwrap();
    /// bob.settle(grant.used(1_500));
    /// assert!(bob.check().is_err(), "500 are owed");
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn settle(&self, settlement: Settlement) {
        self.limiter
            .settle(self.key.key_bytes().as_ref(), &settlement);
    }
}

impl<K: LimitKey, C: Clock> KeyLimit<'_, K, AnyAlgorithm, C> {
    /// Like [`refund`](KeyLimit::refund), if the algorithm can take back a charge.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let limiter = KeyedLimiter::parse("10/1h").unwrap();
    /// let grant = limiter.check_n("ann", 4).unwrap();
    /// limiter.key("ann").try_refund(grant).unwrap();
    /// assert_eq!(limiter.key("ann").peek().remaining.get(), 10);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: post-paid limits cannot take permits back.
    pub fn try_refund(&self, grant: Grant) -> Result<(), Unsupported> {
        let limit = &self.limiter.limit;
        limit.with(|limit| limit.algorithm.supports(Call::Refund))?;
        self.limiter
            .settle(self.key.key_bytes().as_ref(), &grant.used(0));
        Ok(())
    }

    /// Like [`settle`](KeyLimit::settle), if the algorithm can take back a charge and owe one.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// let tokens = KeyedLimiter::parse("{ limit = \"9/1h\", algorithm = \"token-bucket\" }").unwrap();
    /// let ann = tokens.key("ann");
    /// let grant = ann.check_n(4).unwrap();
    /// ann.try_settle(grant.used(1)).unwrap();
    /// assert_eq!(ann.peek().remaining.get(), 8);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA do both.
    #[expect(clippy::needless_pass_by_value, reason = "a grant is given back once")]
    pub fn try_settle(&self, settlement: Settlement) -> Result<(), Unsupported> {
        self.limiter.limit.with(|limit| settles(&limit.algorithm))?;
        self.limiter
            .settle(self.key.key_bytes().as_ref(), &settlement);
        Ok(())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Corrects a charge of `key`. A settlement of another limiter changes nothing. Nothing comes
    /// back of what other numbers charged: a grant knows when those would have paid it.
    pub(super) fn settle(&self, key: &[u8], Settlement { grant, used }: &Settlement) {
        if grant.made.limiter != self.id {
            return;
        }
        let since = self.numbers_since.load(Ordering::Acquire);
        let is_charged_by_these = grant.made.mark.is_some_and(|mark| mark.get() >= since);
        let is_unpaid = grant.receipt().paid > self.clock.now();
        let (cost, used) = if is_unpaid && is_charged_by_these {
            (grant.cost(), *used)
        } else {
            (0, used.saturating_sub(grant.cost())) // the excess is a charge of its own
        };
        if cost == used {
            return;
        }
        self.with(key, Permits::new(cost), |charge, now| {
            let settled = Settled {
                charge: *charge,
                used: ActualCost::Permits(Permits::new(used)),
                origin: ChargeOrigin::Store(grant.receipt()),
            };
            self.store.settle_now(Settle, &[settled], now);
        });
        self.lines.wake(key); // its waiters have a longer or a shorter wait
    }
}
