//! Settlement: the charge of a key, corrected to the actual cost of its work.
//!
//! ```text
//!   taken  |==============|         estimate, charged before the work
//!   used   |=====|--------|         the rest is given back
//!   used   |==============|#####>   the excess is owed: the key pays it by waiting
//! ```

use ratekeeper_core::{AnyAlgorithm, Nanos, Permits, Refund, Reserve, Unsupported};

use super::{KeyLimit, KeyedLimiter, LimitKey};
use crate::limiter::settles;
use crate::{Clock, Settlement};

/// Number of attempts to find a cost that fits, while others charge the same key.
const TRIES: usize = 3;

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
    pub fn settle(&self, settlement: Settlement) {
        self.limiter
            .settle(self.key.key_bytes().as_ref(), settlement);
    }
}

impl<K: LimitKey, C: Clock> KeyLimit<'_, K, AnyAlgorithm, C> {
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
    pub fn try_settle(&self, settlement: Settlement) -> Result<(), Unsupported> {
        self.limiter.limit.with(|limit| settles(&limit.algorithm))?;
        self.limiter
            .settle(self.key.key_bytes().as_ref(), settlement);
        Ok(())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    fn settle(&self, key: &[u8], Settlement { taken, used }: Settlement) {
        if used <= taken {
            return self.give_back(key, taken - used);
        }
        self.owe(key, Permits::new(used - taken));
        self.lines.wake(key); // the waiters have longer to wait
    }

    /// Charges `cost`, also beyond the limit, up to as far ahead as the limit promises.
    fn owe(&self, key: &[u8], cost: Permits) {
        let mut most = cost;
        for _ in 0..TRIES {
            let owed = self.with(key, most, |charge, now| {
                self.store.reserve(charge, now, Nanos::MAX)
            });
            match owed.map(|owed| (owed.decision.verdict, owed.decision.remaining)) {
                Ok((verdict, _)) if verdict.allows() => return,
                Ok((_, fits)) => most = fits,
                Err(_) => break, // the algorithm was changed to one that cannot owe
            }
        }
    }
}
