//! Limits: several limits over one store, charged together.
//!
//! ```text
//!   requests.of("ann")              \
//!   tokens.of("ann").cost(1_200)     >  check: all are charged, or none  -->  a grant
//!   spend.of("team-7").cost(3)      /                                           |
//!                                       settle(grant.used(&tokens, 840))  <-----+
//! ```
//!
//! The store is the memory of this process, or a Redis or Valkey server that any number of
//! processes share. The same limits can be written as a policy: see the feature `policy`.

pub(crate) mod charge;
mod grant;
mod named;
#[cfg(feature = "redis")]
mod redis;
mod wait;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use ratekeeper_core::{AnyAlgorithm, Charge, Decision, Error, Gcra, Limit, Outage, Permits, Quota};
use ratekeeper_store::{Lock, MemoryConfig, MemoryStore, Settled, Store, StoreError};
use smallvec::SmallVec;

pub use crate::at_once::at_once;
use crate::limiter::reservation::unique;
use crate::{Clock, SystemClock};
pub use charge::LimitCharge;
use charge::{Charged, OwnedCharge};
pub use grant::{CheckError, LimitsGrant};
pub use named::NamedLimit;
use named::NumberedLimit;
#[cfg(feature = "redis")]
pub use redis::SharedStore;

/// Maximum length of a limit's name.
const MAX_NAME: usize = 40;

/// Several limits over one store, charged together: all of them or none.
///
/// `S` is the store, `C` the clock. A clone refers to the same limits.
///
/// ```
/// use ratekeeper::{Limits, at_once};
/// use ratekeeper::core::Quota;
///
/// let limits = Limits::in_memory();
/// let requests = limits.token_bucket("requests", Quota::per_minute(60))?;
/// let tokens = limits.token_bucket("tokens", Quota::per_minute(1_000))?;
///
/// let ask = |cost| at_once(limits.check(&[requests.of("ann"), tokens.of("ann").cost(cost)]));
/// let grant = ask(800)?;
/// assert!(ask(800).is_err(), "no request is charged, because the tokens do not suffice");
/// assert_eq!(at_once(requests.peek("ann"))?.remaining.get(), 59);
///
/// at_once(limits.settle(grant.used(&tokens, 300)))?; // the work cost less than the estimate
/// assert_eq!(at_once(tokens.peek("ann"))?.remaining.get(), 700);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Limits<S = MemoryStore, C = SystemClock>(Arc<LimitsInner<S, C>>);

struct LimitsInner<S, C> {
    /// Unique in the process.
    id: u64,
    store: S,
    clock: C,
    names: Lock<HashMap<Arc<str>, NameEntry>>,
    next_id: AtomicU32,
}

/// A name, and its limit; one that is free keeps its counters.
struct NameEntry {
    limit: Arc<NumberedLimit>,
    free: bool,
}

impl Limits {
    /// No limits yet, counted in the memory of this process: at most 256 MiB.
    pub fn in_memory() -> Self {
        let store = MemoryStore::new(MemoryConfig::default());
        Self::new(store, SystemClock::new())
    }
}

impl<S: Store, C: Clock> Limits<S, C> {
    /// No limits yet, counted in any store, on any clock. The store receives the clock's origin,
    /// so that windows begin at the same moments in all processes.
    ///
    /// ```
    /// use ratekeeper::store::{MemoryConfig, MemoryStore};
    /// use ratekeeper::{Limits, ManualClock};
    /// let store = MemoryStore::new(MemoryConfig { budget_bytes: 1 << 20 });
    /// let limits = Limits::new(store, ManualClock::default());
    /// assert!(limits.token_bucket("logins", "5/1m".parse()?).is_ok());
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn new(store: S, clock: C) -> Self {
        store.set_origin(clock.origin());
        Self(Arc::new(LimitsInner {
            id: unique(),
            store,
            clock,
            names: Lock::default(),
            next_id: AtomicU32::new(0),
        }))
    }

    /// Adds a token bucket for each key; debts of settled work reach about a year ahead.
    ///
    /// # Errors
    /// Those of [`limit`](Self::limit), and [`NewLimitError::Quota`] for unsupported quotas.
    pub fn token_bucket(
        &self,
        name: &str,
        quota: Quota,
    ) -> Result<NamedLimit<S, C>, NewLimitError> {
        let bucket = Gcra::token_bucket(quota).map_err(NewLimitError::Quota)?;
        self.limit(name, bucket)
    }

    /// Adds a limit by any algorithm, with a count for each key. Windows that follow the wall clock
    /// need the origin of [`clock`](Self::clock). A limit of concurrency lends until
    /// [`refund`](Self::refund), to be called once and before the lease ends; its refusals state an
    /// estimate;
    /// [`Limiter::check_owned`](crate::Limiter::check_owned) lends a guard.
    ///
    /// The name identifies the counters: processes that share a store hold the limits of the same
    /// name together, and must give them the same algorithm.
    ///
    /// ```
    /// use ratekeeper::{Clock, Limits, at_once};
    /// use ratekeeper::core::{Quota, Window};
    /// let limits = Limits::in_memory();
    /// let quota = Quota::per_minute(2);
    /// let minute = Window::fixed(quota, limits.clock().origin().phase(quota.per()))?;
    /// let logins = limits.limit("logins", minute)?;
    /// assert!(at_once(logins.check_n("ann", 2)).is_ok());
    /// assert!(at_once(logins.check("ann")).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NewLimitError::Name`] and [`NewLimitError::NameTaken`].
    pub fn limit(
        &self,
        name: &str,
        algorithm: impl Into<AnyAlgorithm>,
    ) -> Result<NamedLimit<S, C>, NewLimitError> {
        let is_letter = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(is_letter) {
            return Err(NewLimitError::Name(name.into()));
        }
        let algorithm = algorithm.into().patient();
        let mut names = self.0.names.lock();
        if let Some(entry) = names.get_mut(name) {
            if !std::mem::take(&mut entry.free) {
                return Err(NewLimitError::NameTaken(name.into()));
            }
            let again = NamedLimit::new(self.clone(), Arc::clone(&entry.limit));
            again.set_limit(algorithm);
            return Ok(again.on_outage(Outage::default()));
        }
        let name: Arc<str> = name.into();
        let limit = Limit::new(Arc::clone(&name), self.next_id(), algorithm);
        let limit = Arc::new(NumberedLimit::new(limit));
        let entry = NameEntry {
            limit: Arc::clone(&limit),
            free: false,
        };
        names.insert(name, entry);
        Ok(NamedLimit::new(self.clone(), limit))
    }

    /// Charges all of these or, if one limit refuses, none. Charges of one key under one limit are
    /// judged one upon the other. Under a leaky queue the request passes after the
    /// [`delay`](LimitsGrant::delay) of its grant.
    ///
    /// # Errors
    /// [`CheckError::Refused`] by the limit with the longest wait, and [`CheckError::Store`] if the
    /// store cannot answer, or a limit belongs to other [`Limits`].
    pub async fn check(
        &self,
        charges: &[LimitCharge<'_, S, C>],
    ) -> Result<LimitsGrant, CheckError> {
        let copies = self.copies(charges)?;
        let decisions = {
            let list: ChargeList<'_> = copies.iter().map(Charged::charge).collect();
            self.0.store.decide(&list, self.0.clock.now()).await?
        };
        LimitsGrant::of(self.0.id, copies, &decisions)
    }

    /// Returns the decision that each limit would make about its charge; charges nothing.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot answer, or a limit belongs to other [`Limits`].
    pub async fn peek(
        &self,
        charges: &[LimitCharge<'_, S, C>],
    ) -> Result<Vec<Decision>, StoreError> {
        let copies = self.copies(charges).map_err(CheckError::into_store)?;
        let list: ChargeList<'_> = copies.iter().map(Charged::charge).collect();
        let shown = self.0.store.look(&list, self.0.clock.now()).await?;
        Ok(shown.each.into_vec())
    }

    /// Corrects the charges of a grant to the actual costs, as [`LimitsGrant::used`] states them.
    /// The rest of an estimate is given back, as far as time has not paid for it: a bucket that was
    /// full again meanwhile gets nothing back, because it has lost nothing. The excess is charged
    /// even beyond the limit: a token bucket owes it, up to about a year ahead, so that no
    /// request passes until time has paid it; other algorithms charge what they still have, and
    /// forgive the rest. Under a quota reset or a hybrid, one permit stays of each charge that was
    /// made at the instant at which the window opened, while other charges or a part of it stay.
    ///
    /// Permits of a grant that was made while a shared store was away come back in this process
    /// only, see [`NamedLimit::on_outage`](NamedLimit::on_outage).
    ///
    /// # Errors
    /// [`StoreError::Misconfigured`] if the grant belongs to other [`Limits`], and
    /// [`StoreError::Unsupported`] if the algorithm cannot take a charge back: then nothing is
    /// corrected. Other errors if the store cannot answer: then the charges may be corrected, in
    /// part if their keys lie in several slots of a cluster, or stay as they were made.
    pub async fn settle(&self, grant: LimitsGrant) -> Result<(), StoreError> {
        self.made(&grant)?;
        let changed = grant.charged.iter().filter(|it| it.used != it.made.cost);
        self.correct(changed.filter_map(|it| it.settled(it.used)).collect())
            .await
    }

    /// Gives all charges of a grant back, as [`settle`](Self::settle) does: the work was not done.
    ///
    /// ```
    /// use ratekeeper::{Limits, at_once};
    /// let limits = Limits::in_memory();
    /// let mails = limits.token_bucket("mails", "1/1h".parse()?)?;
    /// let grant = at_once(mails.check("ann"))?;
    /// at_once(limits.refund(grant))?;
    /// assert!(at_once(mails.check("ann")).is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`settle`](Self::settle).
    pub async fn refund(&self, grant: LimitsGrant) -> Result<(), StoreError> {
        self.made(&grant)?;
        let each = grant.charged.iter();
        self.correct(each.filter_map(|it| it.settled(Permits::ZERO)).collect())
            .await
    }

    async fn correct(&self, settled: SmallVec<[Settled<'_>; 4]>) -> Result<(), StoreError> {
        if settled.is_empty() {
            return Ok(());
        }
        self.0.store.correct(&settled, self.0.clock.now()).await
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// Returns the clock.
    pub fn clock(&self) -> &C {
        &self.0.clock
    }

    /// Checks that the grant is of these limits.
    fn made(&self, grant: &LimitsGrant) -> Result<(), StoreError> {
        if grant.limits == self.0.id {
            return Ok(());
        }
        let why = "the grant belongs to other `Limits`".to_owned();
        Err(StoreError::Misconfigured(why))
    }

    /// Copies the charges, so that a grant can outlive its request.
    fn copies(&self, charges: &[LimitCharge<'_, S, C>]) -> Result<ChargedList, CheckError> {
        charges
            .iter()
            .map(|charge| {
                self.owns(charge.limit)?;
                let name = charge.limit.name();
                let limit = match charge.quota {
                    Some(quota) => charge.limit.with_quota(quota)?,
                    None => charge.limit.current(),
                };
                let cost = charge.cost.ok_or_else(|| CheckError::never(name))?;
                let key = charge.key.clone();
                let made = OwnedCharge { limit, key, cost };
                Ok(Charged::new(Arc::clone(name), made))
            })
            .collect()
    }
}

impl<S, C> Limits<S, C> {
    /// Checks that the limit is one of these.
    pub(crate) fn owns(&self, limit: &NamedLimit<S, C>) -> Result<(), StoreError> {
        if Arc::ptr_eq(&self.0, &limit.limits().0) {
            return Ok(());
        }
        let why = format!("the limit `{}` belongs to other `Limits`", limit.name());
        Err(StoreError::Misconfigured(why))
    }
}

/// The charges of a request, as the store takes them.
type ChargeList<'a> = SmallVec<[Charge<'a>; 4]>;
/// The charges of a request, copied.
type ChargedList = SmallVec<[Charged; 4]>;

impl<S, C> Clone for Limits<S, C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S, C> fmt::Debug for Limits<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.names.lock();
        let used = names.iter().filter(|(_, entry)| !entry.free);
        let used: Vec<_> = used.map(|(name, _)| name).collect();
        f.debug_struct("Limits")
            .field("names", &used)
            .finish_non_exhaustive()
    }
}

/// Why a limit cannot be added.
///
/// ```
/// use ratekeeper::core::Quota;
/// use ratekeeper::{Limits, NewLimitError};
/// let limits = Limits::in_memory();
/// limits.token_bucket("users", Quota::per_minute(60))?;
/// let again = limits.token_bucket("users", Quota::per_minute(10)).err();
/// assert_eq!(again, Some(NewLimitError::NameTaken("users".into())));
/// # Ok::<(), NewLimitError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NewLimitError {
    /// The name is not 1 to 40 of `a` to `z`, `0` to `9` and `-`.
    Name(String),
    /// There is a limit of this name.
    NameTaken(String),
    /// No token bucket holds this quota.
    Quota(Error),
}

impl fmt::Display for NewLimitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "`{}` is not a valid name of a limit; expected 1 to {MAX_NAME} of a-z, 0-9 and -, \
                 for example `per-user`",
                name.escape_debug()
            ),
            Self::NameTaken(name) => write!(
                f,
                "two limits are called `{name}`; hint: keep the limit that was added, and clone it"
            ),
            Self::Quota(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for NewLimitError {}

#[cfg(test)]
mod tests;
