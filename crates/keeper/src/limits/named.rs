//! Named: one of several limits over a store.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use ratekeeper_core::{AnyAlgorithm, Decision, Limit, Outage};
use ratekeeper_store::{MemoryStore, Store, StoreError};

use super::charge::Charged;
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
    limit: Arc<ArcSwap<Limit>>,
}

impl<S, C> NamedLimit<S, C> {
    pub(super) fn new(limits: Limits<S, C>, limit: Limit) -> Self {
        Self {
            limits,
            name: Arc::clone(&limit.name),
            limit: Arc::new(ArcSwap::from_pointee(limit)),
        }
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
    }

    /// Changes the limit, as a new version: a store converts the states that it holds.
    fn change(&self, change: impl Fn(&mut Limit)) {
        self.limit.rcu(|old| {
            let mut new = Limit::clone(old);
            new.version = old.version.saturating_add(1);
            change(&mut new);
            new
        });
    }

    pub(crate) fn current(&self) -> Arc<Limit> {
        self.limit.load_full()
    }

    pub(crate) const fn limits(&self) -> &Limits<S, C> {
        &self.limits
    }
}

impl<S: Store, C: Clock> NamedLimit<S, C> {
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

    /// Forgets the permits taken by `key`; returns true if there were any.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot answer.
    pub async fn reset(&self, key: impl LimitKey) -> Result<bool, StoreError> {
        let charge = self.of(key).cost(0);
        let copies = self.limits.copies(&[charge]);
        let copies = copies.map_err(CheckError::into_store)?;
        let list: Vec<_> = copies.iter().map(Charged::charge).collect();
        let now = self.limits.clock().now();
        let were_there = self.limits.store().reset(&list, now).await?;
        Ok(were_there.contains(&true))
    }
}

impl<S, C> Clone for NamedLimit<S, C> {
    fn clone(&self) -> Self {
        Self {
            limits: self.limits.clone(),
            name: Arc::clone(&self.name),
            limit: Arc::clone(&self.limit),
        }
    }
}

impl<S, C> fmt::Debug for NamedLimit<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NamedLimit").field(&self.current()).finish()
    }
}
