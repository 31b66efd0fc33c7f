//! Settlement: the charge of a key, corrected to the actual cost of its work.
//!
//! ```text
//!   taken  |==============|         estimate, charged before the work
//!   used   |=====|--------|         the rest is given back
//!   used   |==============|#####>   the excess is owed: the key pays it by waiting
//! ```

use ratekeeper_core::{AnyAlgorithm, Nanos, Permits, Refund, Reserve, Unsupported, Verdict};

use super::KeyedLimiter;
use super::LimitKey;
use crate::limiter::settles;
use crate::{Clock, Settlement};

/// Number of attempts to find a cost that fits, while others charge the same key.
const TRIES: usize = 3;

impl<A: Into<AnyAlgorithm> + Refund + Reserve, C: Clock> KeyedLimiter<A, C> {
    /// Corrects the charge of `key` for work to its actual cost; see
    /// [`Limiter::settle`](crate::Limiter::settle).
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// use ratekeeper::KeyedLimiter;
    /// let tokens = KeyedLimiter::per("1000/24h")?;
    ///
    /// let grant = tokens.check_n("ann", Permits::new(400)).unwrap();
    /// tokens.settle("ann", grant.used(Permits::new(150)));
    /// assert_eq!(tokens.peek("ann").remaining.get(), 850);
    ///
    /// let grant = tokens.check_n("bob", Permits::new(400)).unwrap();
    /// tokens.settle("bob", grant.used(Permits::new(1_500)));
    /// assert!(tokens.check("bob").is_err(), "500 are owed");
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn settle(&self, key: impl LimitKey, settlement: Settlement) {
        let key = key.key_bytes();
        let (key, Settlement { taken, used }) = (key.as_ref(), settlement);
        if used <= taken {
            return self.refund(key, taken - used);
        }
        self.owe(key, used - taken);
    }
}

impl<C: Clock> KeyedLimiter<AnyAlgorithm, C> {
    /// Like [`settle`](KeyedLimiter::settle), if the algorithm can take back a charge and owe
    /// one.
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// use ratekeeper::KeyedLimiter;
    /// let tokens = KeyedLimiter::parse("{ limit = \"9/1h\", algorithm = \"token-bucket\" }").unwrap();
    /// let grant = tokens.check_n("ann", Permits::new(4)).unwrap();
    /// tokens.try_settle("ann", grant.used(Permits::new(1))).unwrap();
    /// assert_eq!(tokens.peek("ann").remaining.get(), 8);
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`]: only limits by GCRA do both.
    pub fn try_settle(
        &self,
        key: impl LimitKey,
        settlement: Settlement,
    ) -> Result<(), Unsupported> {
        let key = key.key_bytes();
        let (key, Settlement { taken, used }) = (key.as_ref(), settlement);
        self.limit.with(|limit| settles(&limit.algorithm))?;
        if used <= taken {
            return self.try_refund(key, taken - used);
        }
        self.owe(key, used - taken);
        Ok(())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// Charges `cost`, also beyond the limit, up to as far ahead as the limit promises.
    fn owe(&self, key: &[u8], cost: Permits) {
        let mut cost = cost;
        for _ in 0..TRIES {
            let owed = self.with(key, cost, |charge, now| {
                self.store.reserve(charge, now, Nanos::MAX)
            });
            match owed.map(|owed| (owed.decision.verdict, owed.decision.remaining)) {
                Ok((Verdict::Deny { .. } | Verdict::DenyForever, most)) => cost = most,
                Ok(_) | Err(_) => break, // charged; the algorithm reserves, so there is no error
            }
        }
        self.lines.wake(key); // the waiters have longer to wait
    }
}
