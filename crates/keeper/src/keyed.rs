//! Keyed: one limit, counted for each key on its own, in bounded memory.
//!
//! ```text
//!   key (bytes) --> MemoryStore, 256 MiB unless told otherwise --> decision
//! ```
//!
//! A full store denies more, never less; see [`MemoryStore`]. Nobody waits here: where a key
//! has no permits, it is told when to come back.

use std::fmt;
use std::marker::PhantomData;

use arc_swap::ArcSwap;
use ratekeeper_core::{
    AnyAlgorithm, Charge, Decision, Error, Gcra, Key, Limit, LimitId, Mode, Outage, Permits, Quota,
    Refund, Time,
};
use ratekeeper_store::{MemoryConfig, MemoryStore};

#[cfg(feature = "tower")]
use crate::Permit;
use crate::{Clock, SystemClock};
#[cfg(feature = "tower")]
use ratekeeper_core::{LeaseId, Lend};
#[cfg(feature = "tower")]
use ratekeeper_store::Hold;

/// One limit for each key: a user, an address, a tenant.
///
/// `A` is the algorithm, a token bucket unless told otherwise; [`AnyAlgorithm`] where it is
/// configured. `C` is the clock.
///
/// ```
/// use ratekeeper::KeyedLimiter;
///
/// let limiter = KeyedLimiter::per("2/1h")?;
/// let ask = |user: &str| limiter.check(user).verdict.allows();
/// assert!(ask("ann") && ask("ann") && !ask("ann"));
/// assert!(ask("bob"), "another key");
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct KeyedLimiter<A = Gcra, C = SystemClock> {
    store: MemoryStore,
    limit: ArcSwap<Limit>,
    clock: C,
    algorithm: PhantomData<fn() -> A>,
}

impl KeyedLimiter {
    /// A token bucket for each key, in the policy's words: `100/1m`.
    ///
    /// ```
    /// let error = ratekeeper::KeyedLimiter::per("0/1m").unwrap_err();
    /// assert_eq!(error.to_string(), "a quota of `0` permits nothing");
    /// ```
    ///
    /// # Errors
    /// Text that is no quota; [`Error::TooFast`] or [`Error::TooLong`] for quotas that cannot
    /// be kept.
    pub fn per(quota: &str) -> Result<Self, Error> {
        let quota: Quota = quota.parse()?;
        Ok(Self::new(Gcra::token_bucket(quota)?))
    }
}

impl<A: Into<AnyAlgorithm>> KeyedLimiter<A> {
    /// A limiter by any algorithm, on the machine's clock, in 256 MiB at most. Limits that
    /// follow the wall clock need its origin: make the clock first, and use
    /// [`KeyedLimiter::with_clock`].
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::{AnyAlgorithm, Exponential, Log};
    /// let quota = "10/1m".parse()?;
    /// for strict in [true, false] {
    ///     let configured: AnyAlgorithm = match strict {
    ///         true => Log::sliding(quota)?.into(),
    ///         false => Exponential::new(quota)?.into(),
    ///     };
    ///     assert!(KeyedLimiter::new(configured).check("ann").verdict.allows());
    /// }
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn new(algorithm: A) -> Self {
        Self::with_clock(algorithm, MemoryConfig::default(), SystemClock::new())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// A limiter by any algorithm, in as much memory as you say, on any clock.
    ///
    /// ```
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::store::MemoryConfig;
    /// use ratekeeper::{KeyedLimiter, ManualClock};
    /// let apart = Gcra::spacing(Nanos::SECOND).unwrap();
    /// let memory = MemoryConfig { budget_bytes: 1 << 20 };
    /// let limiter = KeyedLimiter::with_clock(apart, memory, ManualClock::default());
    /// assert!(limiter.check("ann").verdict.allows());
    /// assert_eq!(limiter.check("ann").verdict.retry_after(), Some(Nanos::SECOND));
    /// ```
    pub fn with_clock(algorithm: A, memory: MemoryConfig, clock: C) -> Self {
        Self {
            store: MemoryStore::new(memory),
            limit: ArcSwap::from_pointee(Limit {
                name: "keyed".into(),
                id: LimitId::new(0),
                version: 1,
                outage: Outage::Local,
                algorithm: algorithm.into(),
            }),
            clock,
            algorithm: PhantomData,
        }
    }

    /// Decides about one permit for `key`, and takes it if it may.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("1/1h").unwrap();
    /// assert!(limiter.check([192, 0, 2, 1]).verdict.allows());
    /// assert!(!limiter.check([192, 0, 2, 1]).verdict.allows());
    /// ```
    #[inline]
    pub fn check(&self, key: impl AsRef<[u8]>) -> Decision {
        self.check_n(key, Permits::ONE)
    }

    /// As [`check`](Self::check), for `cost` permits: all of them or none.
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// assert_eq!(limiter.check_n("ann", Permits::new(8)).remaining.get(), 2);
    /// assert!(!limiter.check_n("ann", Permits::new(8)).verdict.allows());
    /// ```
    #[inline]
    pub fn check_n(&self, key: impl AsRef<[u8]>, cost: Permits) -> Decision {
        self.with(key.as_ref(), cost, |charge, now| {
            self.store.decide_one(charge, now)
        })
    }

    /// How the limit stands for `key`; nothing is charged.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// let _ = limiter.check("ann");
    /// assert_eq!(limiter.peek("ann").remaining.get(), 9);
    /// assert_eq!(limiter.peek("bob").remaining.get(), 10);
    /// ```
    pub fn peek(&self, key: impl AsRef<[u8]>) -> Decision {
        self.check_n(key, Permits::ZERO) // a cost of nothing changes nothing
    }

    /// Gives back permits that were taken and not used. Only where the algorithm can take
    /// them back.
    ///
    /// ```
    /// use ratekeeper::core::Permits;
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// let _ = limiter.check_n("ann", Permits::new(4));
    /// limiter.refund("ann", Permits::new(3));
    /// assert_eq!(limiter.peek("ann").remaining.get(), 9);
    /// ```
    pub fn refund(&self, key: impl AsRef<[u8]>, cost: Permits)
    where
        A: Refund,
    {
        self.with(key.as_ref(), cost, |charge, now| {
            self.store.refund_now(&[*charge], now);
        });
    }

    /// Forgets what was taken by `key`; says whether anything was.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// let _ = limiter.check("ann");
    /// assert!(limiter.reset("ann"));
    /// assert!(!limiter.reset("bob"));
    /// assert_eq!(limiter.peek("ann").remaining.get(), 10);
    /// ```
    pub fn reset(&self, key: impl AsRef<[u8]>) -> bool {
        self.with(key.as_ref(), Permits::ZERO, |charge, now| {
            self.store.reset_now(&[*charge], now).contains(&true)
        })
    }

    /// Changes the limit for all keys while it is used. Where states mean the same under both,
    /// they stay: under GCRA what is owed is time and stays owed. Otherwise what was used is
    /// charged to the new limit, as far as it can hold that.
    ///
    /// ```
    /// use ratekeeper::core::{Log, Permits};
    /// let log = |quota: &str| Log::sliding(quota.parse().unwrap()).unwrap();
    /// let limiter = ratekeeper::KeyedLimiter::new(log("5/1h"));
    /// let _ = limiter.check_n("ann", Permits::new(4));
    /// limiter.set_limit(log("20/1h"));
    /// assert_eq!(limiter.peek("ann").remaining.get(), 16);
    /// ```
    pub fn set_limit(&self, algorithm: A) {
        let algorithm = algorithm.into();
        self.limit.rcu(|old| Limit {
            version: old.version.saturating_add(1),
            algorithm: algorithm.clone(),
            ..Limit::clone(old)
        });
    }

    /// The store: what it holds, its keys, and [`sweep`](MemoryStore::sweep), which gives back
    /// the memory of keys that are done with sooner than new keys do.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// assert!(limiter.store().usage().bytes < limiter.store().usage().budget_bytes);
    /// ```
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// The algorithm as it stands.
    #[cfg(feature = "tower")]
    pub(crate) fn algorithm(&self) -> AnyAlgorithm {
        self.limit.load().algorithm.clone()
    }

    #[cfg(feature = "tower")]
    pub(crate) fn clock(&self) -> &C {
        &self.clock
    }

    /// As [`check_n`](Self::check_n), and the moment for which it was decided.
    #[cfg(feature = "tower")]
    pub(crate) fn check_at(&self, key: &[u8], cost: Permits) -> (Decision, Time) {
        self.with(key, cost, |charge, now| {
            (self.store.decide_one(charge, now), now)
        })
    }

    /// Lends to a name, where the limit is one of concurrency.
    #[cfg(feature = "tower")]
    pub(crate) fn lend(&self, key: &[u8], cost: Permits, lease: LeaseId) -> (Decision, Time) {
        self.with(key, cost, |charge, now| {
            let lent = self.store.acquire_now(&[*charge], Lend::To(lease), now);
            let decision = lent.each.first().copied();
            let decision = decision.expect("one decision for one charge");
            (decision, now)
        })
    }

    /// Takes back what was lent; nothing if it came back before.
    #[cfg(feature = "tower")]
    pub(crate) fn release(&self, permit: &Permit) {
        let (limit, now) = (self.limit.load(), self.clock.now());
        self.store.release_now(&[hold(&limit, permit)], now);
    }

    /// Lets what was lent run its full length from now.
    #[cfg(feature = "tower")]
    pub(crate) fn renew(&self, permit: &Permit) {
        let (limit, now) = (self.limit.load(), self.clock.now());
        self.store.renew_now(&[hold(&limit, permit)], now);
    }

    #[inline]
    fn with<T>(&self, key: &[u8], cost: Permits, act: impl FnOnce(&Charge<'_>, Time) -> T) -> T {
        let limit = self.limit.load();
        let charge = Charge {
            limit: &limit,
            key: Key::from_bytes(key),
            cost,
            mode: Mode::Enforce,
        };
        act(&charge, self.clock.now())
    }
}

#[cfg(feature = "tower")]
fn hold<'a>(limit: &'a Limit, permit: &'a Permit) -> Hold<'a> {
    Hold {
        limit,
        key: permit.key(),
        lease: permit.lease(),
    }
}

impl<A, C> fmt::Debug for KeyedLimiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter")
            .field("limit", &self.limit.load().algorithm)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ManualClock;
    use ratekeeper_core::{Log, Nanos};

    #[test]
    fn threads_admit_exactly_the_burst_of_each_key() {
        let limiter = KeyedLimiter::per("100/24h").unwrap();
        let admitted = |user: &str| {
            let ask = |_: &u32| limiter.check(user).verdict.allows();
            (0..50).filter(ask).count()
        };
        let all: usize = std::thread::scope(|scope| {
            let work = || ["ann", "bob", "cyd"].map(admitted).iter().sum::<usize>();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(work)).collect();
            threads.into_iter().map(|it| it.join().unwrap()).sum()
        });
        assert_eq!(all, 300);
    }

    #[test]
    fn another_algorithm_inherits_what_was_used() {
        let quota: Quota = "10/1m".parse().unwrap();
        let clock = std::sync::Arc::new(ManualClock::default());
        let bucket: AnyAlgorithm = Gcra::token_bucket(quota).unwrap().into();
        let memory = MemoryConfig::default();
        let limiter = KeyedLimiter::with_clock(bucket, memory, std::sync::Arc::clone(&clock));
        let _ = limiter.check_n("ann", Permits::new(6));
        limiter.set_limit(Log::sliding(quota).unwrap().into());
        let left = |user: &str| limiter.peek(user).remaining.get();
        assert_eq!([left("ann"), left("bob")], [4, 10]);
        clock.advance(Nanos::from_secs(60));
        assert_eq!(left("ann"), 10);
    }
}
