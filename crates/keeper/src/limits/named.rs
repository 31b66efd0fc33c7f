//! Named: one of several limits over a store.

use std::collections::HashMap;
use std::fmt;
use std::iter::once;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use ratekeeper_core::{
    AnyAlgorithm, Charge, Decision, Error, Gcra, Limit, LimitId, LimitKeys, Outage, Permits, Quota,
};
use ratekeeper_store::{Lock, MemoryStore, Store, StoreError};

use super::charge::KeyText;
use super::{CheckError, LimitCharge, Limits, LimitsGrant};
use crate::{Clock, LimitKey, SystemClock};

/// One of several [`Limits`], with a count for each key: a user, an address, `()` for all requests
/// together. A clone is the same limit.
///
/// Asked alone by [`check`](Self::check), or with others by [`Limits::check`].
///
/// ```
/// use ratekeeper::{Limits, at_once};
/// let limits = Limits::in_memory();
/// let logins = limits.token_bucket("logins", "2/1h".parse()?)?;
/// let ask = |user: &str| at_once(logins.check(user)).is_ok();
/// assert!(ask("ann") && ask("ann") && !ask("ann"));
/// assert!(ask("bob"), "another key");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NamedLimit<S = MemoryStore, C = SystemClock> {
    limits: Limits<S, C>,
    name: Arc<str>,
    limit: Arc<NumberedLimit>,
}

/// Maximum number of different quotas of one limit: each has tables of its own in the store.
const MAX_QUOTAS: usize = 1_000;

/// A limit, and the same with the numbers of single keys.
pub(super) struct NumberedLimit {
    own: ArcSwap<Limit>,
    by_quota: Lock<HashMap<Quota, Arc<Limit>>>,
}

impl NumberedLimit {
    pub(super) fn new(limit: Limit) -> Self {
        Self {
            own: ArcSwap::from_pointee(limit),
            by_quota: Lock::default(),
        }
    }
}

impl<S, C> Limits<S, C> {
    /// Lets go of the name of a limit, so that it can be added again, by any algorithm; returns
    /// false if there is no limit of this name. Clones of the limit still count. When the name is
    /// added again, they follow it, and it goes on with the counters, as after
    /// [`set_limit`](NamedLimit::set_limit).
    ///
    /// ```
    /// use ratekeeper::{Limits, at_once};
    /// let limits = Limits::in_memory();
    /// let calls = limits.token_bucket("calls", "10/1h".parse()?)?;
    /// at_once(calls.check_n("ann", 4))?;
    /// assert!(limits.remove("calls"));
    /// let calls = limits.token_bucket("calls", "20/1h".parse()?)?;
    /// assert_eq!(at_once(calls.peek("ann"))?.remaining.get(), 16, "four are used");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove(&self, name: &str) -> bool {
        let mut names = self.0.names.lock();
        let entry = names.get_mut(name).filter(|entry| !entry.free);
        entry.map(|entry| entry.free = true).is_some()
    }

    pub(super) fn next_id(&self) -> LimitId {
        LimitId::new(self.0.next_id.fetch_add(1, Ordering::Relaxed))
    }
}

impl<S, C> NamedLimit<S, C> {
    pub(super) fn new(limits: Limits<S, C>, limit: Arc<NumberedLimit>) -> Self {
        let name = Arc::clone(&limit.own.load().name);
        Self {
            limits,
            name,
            limit,
        }
    }

    /// Returns the limit with the numbers of single keys; see [`LimitCharge::quota`].
    pub(super) fn with_quota(&self, quota: Quota) -> Result<Arc<Limit>, StoreError> {
        let wrong =
            |why: String| StoreError::Misconfigured(format!("limit `{}`: {why}", self.name));
        let own = self.current();
        let mut by_quota = self.limit.by_quota.lock();
        let known = by_quota.get(&quota);
        if let Some(known) = known.filter(|known| known.outage == own.outage) {
            return Ok(Arc::clone(known));
        }
        if known.is_none() && by_quota.len() >= MAX_QUOTAS {
            return Err(wrong(format!("more than {MAX_QUOTAS} different quotas")));
        }
        let bucket = Gcra::token_bucket(quota).map_err(|error| wrong(error.to_string()))?;
        let limit = Arc::new(Limit {
            name: format!("{}={quota}", self.name).into(),
            id: known.map_or_else(|| self.limits.next_id(), |known| known.id),
            version: known.map_or(1, |known| known.version.saturating_add(1)),
            algorithm: bucket.patient().into(),
            outage: own.outage,
            scope: own.scope,
            keys: LimitKeys::Single([Limit::clone(&own)].into()),
        });
        by_quota.insert(quota, Arc::clone(&limit));
        Ok(limit)
    }

    /// Returns the charge of one permit of `key`, for [`Limits::check`].
    pub fn of(&self, key: impl LimitKey) -> LimitCharge<'_, S, C> {
        LimitCharge::new(self, key)
    }

    /// Returns the name.
    pub const fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The same limit, which decides by `outage` while a shared store fails; without this call, by
    /// the memory of this process. A store in memory never fails.
    ///
    /// Under [`Outage::Allow`] a request passes uncounted: do not settle or refund its grant,
    /// because a server that is back would give back permits that it never counted.
    ///
    /// ```
    /// use ratekeeper::Limits;
    /// use ratekeeper::core::Outage;
    /// let limits = Limits::in_memory();
    /// let logins = limits.token_bucket("logins", "5/1m".parse()?)?.on_outage(Outage::Deny);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_outage(self, outage: Outage) -> Self {
        self.change(|limit| limit.outage = outage);
        self
    }

    /// Changes the limit, as a new version: a store converts the states that it holds.
    fn change(&self, change: impl Fn(&mut Limit)) {
        self.limit.own.rcu(|old| {
            let mut new = Limit::clone(old);
            new.version = old.version.saturating_add(1);
            change(&mut new);
            new
        });
    }

    pub(crate) fn current(&self) -> Arc<Limit> {
        self.limit.own.load_full()
    }

    pub(crate) const fn limits(&self) -> &Limits<S, C> {
        &self.limits
    }
}

impl<S: Store, C: Clock> NamedLimit<S, C> {
    /// Changes the limit while it is used. Each key keeps its used permits, at most the larger of
    /// the new quota and burst. In the other processes of a shared store the limit stays as it is
    /// until they change it too; meanwhile a token bucket admits at most the looser of the two.
    ///
    /// ```
    /// use ratekeeper::{Limits, at_once};
    /// use ratekeeper::core::{Gcra, Quota};
    /// let limits = Limits::in_memory();
    /// let calls = limits.limit("calls", Gcra::token_bucket(Quota::per_minute(10))?)?;
    /// at_once(calls.check_n("ann", 5))?;
    /// calls.set_limit(Gcra::token_bucket(Quota::per_minute(20))?);
    /// assert_eq!(at_once(calls.peek("ann"))?.remaining.get(), 15, "five are used");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_limit(&self, algorithm: impl Into<AnyAlgorithm>) {
        let algorithm = algorithm.into().patient();
        self.change(|limit| limit.algorithm = algorithm.clone());
        let now = self.limits.clock().now();
        self.limits.store().adopt(&once(&*self.current()), now);
    }

    /// Like [`set_limit`](Self::set_limit), to a token bucket with the numbers of `quota`;
    /// reservations and debts reach about a year ahead.
    ///
    /// ```
    /// use ratekeeper::{Limits, at_once};
    /// let limits = Limits::in_memory();
    /// let calls = limits.token_bucket("calls", "10/1h".parse()?)?;
    /// calls.set_quota("20/1h".parse()?)?;
    /// assert!(at_once(calls.check_n("ann", 20)).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Limiter::per`](crate::Limiter::per); then nothing is changed.
    pub fn set_quota(&self, quota: Quota) -> Result<(), Error> {
        self.set_limit(Gcra::token_bucket(quota)?);
        Ok(())
    }

    /// Decides about one permit for `key`, and takes it if allowed.
    ///
    /// # Errors
    /// The errors of [`Limits::check`].
    pub async fn check(&self, key: impl LimitKey) -> Result<LimitsGrant, CheckError> {
        self.limits.check(&[self.of(key)]).await
    }

    /// Like [`check`](Self::check), for `cost` permits: all of them or none.
    ///
    /// # Errors
    /// The errors of [`Limits::check`].
    pub async fn check_n(&self, key: impl LimitKey, cost: u64) -> Result<LimitsGrant, CheckError> {
        self.limits.check(&[self.of(key).cost(cost)]).await
    }

    /// Returns the state of the limit for `key`; nothing is charged.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot answer.
    pub async fn peek(&self, key: impl LimitKey) -> Result<Decision, StoreError> {
        let shown = self.limits.peek(&[self.of(key).cost(0)]).await?;
        let missing = || StoreError::Unavailable("the store left out the answer".into());
        shown.first().copied().ok_or_else(missing)
    }

    /// Forgets the permits taken by `key`, under all numbers that this process has used; returns
    /// true if there were any.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot answer.
    pub async fn reset(&self, key: impl LimitKey) -> Result<bool, StoreError> {
        let key = KeyText::of(&key);
        let mut limits = vec![self.current()];
        {
            let by_quota = self.limit.by_quota.lock();
            limits.extend(by_quota.values().cloned());
        }
        let limits = limits.iter();
        let charges = limits.map(|limit| Charge::enforced(limit, key.as_key(), Permits::ZERO));
        let list: Vec<_> = charges.collect();
        let now = self.limits.clock().now();
        let were_there = self.limits.store().reset(&list, now).await?;
        Ok(were_there.contains(&true))
    }
}

clone_fields!([S, C] NamedLimit<S, C> { limits, name, limit });

impl<S, C> fmt::Debug for NamedLimit<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedLimit").field(&self.current()).finish()
    }
}
