//! Promises: charges for a later moment, one key at a time, for callers that wait or plan.
//!
//! ```text
//!   take      charges at a moment that may lie a little back, if it passes by now
//!   reserve   charges now, for later
//!   cancel    gives back a reservation, unless another charge was made since
//! ```

use std::num::NonZeroU64;

use ratekeeper_core::{Call, Charge, Decision, Nanos, Time, Unsupported};

use super::table::{Ahead, Reserved};
use super::{MemoryStore, Shard};

impl MemoryStore {
    /// Charges one key at `at`, if the charge may pass by `by`; otherwise charges nothing, and
    /// the decision holds the wait or the denial.
    ///
    /// ```
    /// # use ratekeeper_core::{Charge, Gcra, Key, Limit, LimitId, LimitScope, Mode, Nanos, Outage};
    /// # use ratekeeper_core::{Permits, Time};
    /// # use ratekeeper_store::{MemoryConfig, MemoryStore};
    /// # let store = MemoryStore::new(MemoryConfig::default());
    /// # let (name, id, version, outage) = ("pace".into(), LimitId::new(0), 1, Outage::Local);
    /// # let scope = LimitScope::Cluster;
    /// let algorithm = Gcra::spacing(Nanos::SECOND).unwrap().into();
    /// # let keys = Default::default();
    /// let limit = Limit { name, id, version, outage, scope, keys, algorithm };
    /// # let (key, cost, mode) = (Key::from_bytes(b"ann"), Permits::ONE, Mode::Enforce);
    /// let charge = Charge { limit: &limit, key, cost, mode };
    /// assert!(store.take(&charge, Time::ZERO, Time::ZERO).verdict.allows());
    /// assert!(!store.take(&charge, Time::ZERO, Time::ZERO).verdict.allows());
    /// ```
    pub fn take(&self, charge: &Charge<'_>, at: Time, by: Time) -> Decision {
        self.with(charge, at, |shard, limit, ask| shard.take(limit, ask, by))
    }

    /// Returns the decision that a charge of one key would get; charges nothing.
    pub fn look_one(&self, charge: &Charge<'_>, now: Time) -> Decision {
        self.with(charge, now, Shard::look)
    }

    /// Returns the minimum time until the charge's permits have been granted to callers that ask
    /// for them one after the other; zero where that is not known.
    pub fn at_least(&self, charge: &Charge<'_>, now: Time) -> Nanos {
        self.with(charge, now, |shard, limit, ask| {
            let tables = shard.tables_of(limit, now);
            tables.map_or(Nanos::ZERO, |tables| tables.at_least(ask))
        })
    }

    /// Charges one key for a moment at most `max_wait` from now, as far ahead as the limit
    /// promises.
    ///
    /// # Errors
    /// [`Unsupported`] if its algorithm does not support reservations.
    pub fn reserve(
        &self,
        charge: &Charge<'_>,
        now: Time,
        max_wait: Nanos,
    ) -> Result<Reserved, Unsupported> {
        charge.limit.algorithm.supports(Call::Reserve)?;
        let (decision, mark) = self.with(charge, now, |shard, limit, ask| {
            let decision = shard.reserve(limit, ask, Ahead::Promised(max_wait));
            (decision, self.marks.last())
        });
        Ok(Reserved {
            decision,
            made: now,
            mark: NonZeroU64::new(mark),
        })
    }

    /// Gives back the reservation of `charge`, if it was granted and its key was neither charged
    /// since, because later promises are built on it, nor given permits, nor reset. Returns true if
    /// it was given back.
    ///
    /// # Errors
    /// [`Unsupported`] if the algorithm does not support refunds.
    pub fn cancel(
        &self,
        charge: &Charge<'_>,
        reserved: Reserved,
        now: Time,
    ) -> Result<bool, Unsupported> {
        charge.limit.algorithm.supports(Call::Refund)?;
        Ok(reserved.decision.verdict.allows()
            && self.with(charge, now, |shard, limit, ask| {
                shard.cancel(limit, ask, &reserved)
            }))
    }
}
