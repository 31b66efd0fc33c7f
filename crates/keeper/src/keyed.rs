//! Keyed: one limit with a separate count for each key, in bounded memory.
//!
//! ```text
//!   key (bytes) --> MemoryStore, 256 MiB unless set --> decision
//!      |
//!      '--> a waiter joins the line of its key, which exists while it has a waiter
//! ```
//!
//! [`KeyedLimiter::key`] returns the limit of one key, which has the methods of a
//! [`Limiter`](crate::Limiter). When the memory is full, a new key may begin with less than the
//! whole limit, and pushes out another, which gains an eighth of the limit at most (2 permits of a
//! small one); see [`MemoryStore`].
//!
//! A limiter has one limit for all its keys. Plans (free, paid) are a table of limiters, one for
//! each plan, and a function that finds the limiter of a key: the sum of their budgets bounds the
//! memory. (For numbers of single keys, use overrides of a policy.) Each limiter counts a key
//! separately, so a key whose plan changes begins anew, unless its usage is carried over by a
//! settlement: see the example `keyed_by_plan`.

mod by_hash;
mod key;
mod key_limit;
mod lent;
mod lines;
mod reservation;
mod settlement;
mod wait;

use std::fmt;
use std::future::Future;
use std::iter::once;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    AlgorithmSet, AnyAlgorithm, Charge, Decision, Error, Gcra, Key, Limit, LimitId, Permits, Quota,
    Time,
};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use crate::latest::Latest;
use crate::limiter::desk::behind_the_line;
use crate::limiter::reservation::unique;
use crate::limiter::{Grant, MAX_WAITING, Refused};
use crate::{Clock, RuntimeClock, SystemClock};
pub use by_hash::ByHash;
pub use key::LimitKey;
#[cfg(feature = "tower")]
pub(crate) use key::{one_address, push_varint};
pub use key_limit::KeyLimit;
use lines::KeyLines;
pub use reservation::KeyedReservation;

/// Default maximum number of waiters for one key.
const MAX_WAITING_FOR_ONE: usize = 1_000;

/// One limit for each key: a user, an address, a tenant.
///
/// `A` is the algorithm, a token bucket by default; [`AnyAlgorithm`] if it is configured. `C` is
/// the clock.
///
/// ```
/// use ratekeeper::KeyedLimiter;
///
/// let limiter = KeyedLimiter::per("2/1h")?;
/// let ask = |user: &str| limiter.check(user).is_ok();
/// assert!(ask("ann") && ask("ann") && !ask("ann"));
/// assert!(ask("bob"), "another key");
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub struct KeyedLimiter<A = Gcra, C = SystemClock> {
    store: MemoryStore,
    limit: Latest<Limit>,
    lines: KeyLines,
    most_waiting: MostWaiting,
    /// Its number, which its reservations carry.
    id: u64,
    /// Grants with a lower mark were charged by other numbers.
    numbers_since: AtomicU64,
    clock: C,
    algorithm: PhantomData<fn() -> A>,
}

/// Maximum number of waiters.
///
/// ```
/// use ratekeeper::MostWaiting;
/// let most = MostWaiting { of_one_key: 10, ..MostWaiting::default() };
/// assert_eq!(most.in_all, 100_000);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MostWaiting {
    /// For one key; 1,000 by default.
    pub of_one_key: usize,
    /// For all keys together; 100,000 by default: 300 bytes each, and their tasks.
    pub in_all: usize,
}

impl Default for MostWaiting {
    fn default() -> Self {
        Self {
            of_one_key: MAX_WAITING_FOR_ONE,
            in_all: MAX_WAITING,
        }
    }
}

impl KeyedLimiter {
    /// A token bucket for each key, permits and span: `100/1m`; reservations and debts reach
    /// about a year ahead.
    ///
    /// ```
    /// let error = ratekeeper::KeyedLimiter::per("0/1m").unwrap_err();
    /// assert_eq!(error.to_string(), "a quota of `0` permits nothing");
    /// ```
    ///
    /// # Errors
    /// A text that is not a quota; [`Error::TooFast`] or [`Error::TooLong`] for unsupported quotas.
    pub fn per(quota: &str) -> Result<Self, Error> {
        Self::token_bucket(quota.parse()?)
    }

    /// A token bucket for each key; reservations and debts reach about a year ahead.
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    /// use ratekeeper::core::Quota;
    /// let limiter = KeyedLimiter::token_bucket(Quota::per_minute(600).burst(20))?;
    /// assert!(limiter.check_n("ann", 20).is_ok());
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`KeyedLimiter::per`].
    pub fn token_bucket(quota: Quota) -> Result<Self, Error> {
        Ok(Self::new(Gcra::token_bucket(quota)?))
    }
}

impl<A: AlgorithmSet> KeyedLimiter<A> {
    /// A limiter by any algorithm, on the machine's clock, in at most 256 MiB. Limits that follow
    /// the wall clock need its origin: create the clock first, and use
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
    ///     assert!(KeyedLimiter::new(configured).check("ann").is_ok());
    /// }
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    pub fn new(algorithm: A) -> Self {
        Self::with_clock(algorithm, MemoryConfig::default(), SystemClock::new())
    }
}

impl<A: Into<AnyAlgorithm>, C: Clock> KeyedLimiter<A, C> {
    /// A limiter by any algorithm, with a chosen memory bound, on any clock.
    ///
    /// ```
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::store::MemoryConfig;
    /// use ratekeeper::{KeyedLimiter, ManualClock, Refused};
    /// use std::time::Duration;
    /// let apart = Gcra::spacing(Nanos::SECOND).unwrap();
    /// let memory = MemoryConfig { budget_bytes: 1 << 20 };
    /// let limiter = KeyedLimiter::with_clock(apart, memory, ManualClock::default());
    /// assert!(limiter.check("ann").is_ok());
    /// assert_eq!(limiter.check("ann"), Err(Refused::Until(Duration::from_secs(1))));
    /// ```
    pub fn with_clock(algorithm: A, memory: MemoryConfig, clock: C) -> Self
    where
        A: AlgorithmSet,
    {
        let limit = Limit::new("keyed", LimitId::new(0), algorithm.into().patient());
        Self {
            store: MemoryStore::of::<A>(memory),
            limit: Latest::new(limit),
            lines: KeyLines::new(),
            most_waiting: MostWaiting::default(),
            id: unique(),
            numbers_since: AtomicU64::new(0),
            clock,
            algorithm: PhantomData,
        }
    }

    /// The same limiter, with a maximum number of waiters; further callers receive
    /// [`WaitError::TooManyWaiting`](crate::WaitError::TooManyWaiting).
    ///
    /// ```
    /// use ratekeeper::{KeyedLimiter, MostWaiting};
    /// let most = MostWaiting { of_one_key: 10, ..MostWaiting::default() };
    /// let limiter = KeyedLimiter::per("1/1s").unwrap().with_most_waiting(most);
    /// ```
    #[must_use]
    pub fn with_most_waiting(self, most: MostWaiting) -> Self {
        Self {
            most_waiting: most,
            ..self
        }
    }

    /// The same limiter, whose tasks wait by the timer of an async runtime, as those of
    /// [`Limiter::with_timer`](crate::Limiter::with_timer).
    ///
    /// ```
    /// use ratekeeper::KeyedLimiter;
    ///
    /// let limiter = KeyedLimiter::per("100/1s")?.with_timer(async_io::Timer::after); // smol
    /// # async_io::block_on(async {
    /// limiter.key("ann").acquire().await.unwrap();
    /// # });
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    #[must_use]
    pub fn with_timer<F, S>(self, sleep: F) -> KeyedLimiter<A, RuntimeClock<F, C>>
    where
        F: Fn(Duration) -> S + Send + Sync,
        S: Future + Send,
    {
        KeyedLimiter {
            store: self.store,
            limit: self.limit,
            lines: self.lines,
            most_waiting: self.most_waiting,
            id: self.id,
            numbers_since: self.numbers_since,
            clock: RuntimeClock::over(self.clock, sleep),
            algorithm: PhantomData,
        }
    }

    /// Returns the limit of `key`, with the methods of a [`Limiter`](crate::Limiter).
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// let ann = limiter.key("ann");
    /// let grant = ann.check_n(4).unwrap();
    /// ann.refund(grant);
    /// assert_eq!(ann.peek().remaining.get(), 10);
    /// assert_eq!(limiter.key("bob").peek().remaining.get(), 10);
    /// ```
    #[inline]
    pub fn key<K: LimitKey>(&self, key: K) -> KeyLimit<'_, K, A, C> {
        KeyLimit::new(self, key)
    }

    /// Decides about one permit for `key`, and takes it if allowed: short for
    /// [`key(key).check()`](KeyLimit::check).
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("1/1h").unwrap();
    /// assert!(limiter.check([192, 0, 2, 1]).is_ok());
    /// assert!(limiter.check([192, 0, 2, 1]).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Refused`], if the limit of the key is used up: nothing is charged.
    #[inline]
    pub fn check(&self, key: impl LimitKey) -> Result<Grant, Refused> {
        self.key(key).check_n(1)
    }

    /// Like [`check`](Self::check), for `cost` permits: all of them or none.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// let grant = limiter.check_n("ann", 8).unwrap();
    /// assert_eq!(grant.remaining(), 2);
    /// assert!(limiter.check_n("ann", 8).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Refused`], if fewer are free for the key: nothing is charged.
    #[inline]
    pub fn check_n(&self, key: impl LimitKey, cost: u64) -> Result<Grant, Refused> {
        self.key(key).check_n(cost)
    }

    /// Changes the limit for all keys while it is used. Each key keeps its used permits, as by
    /// [`Limiter::set_limit`](crate::Limiter::set_limit).
    ///
    /// ```
    /// use ratekeeper::core::Log;
    /// let log = |quota: &str| Log::sliding(quota.parse().unwrap()).unwrap();
    /// let limiter = ratekeeper::KeyedLimiter::new(log("5/1h"));
    /// let _ = limiter.check_n("ann", 4);
    /// limiter.set_limit(log("20/1h"));
    /// assert_eq!(limiter.key("ann").peek().remaining.get(), 16);
    /// ```
    pub fn set_limit(&self, algorithm: A) {
        let algorithm = algorithm.into().patient();
        self.limit.update(|old| Limit {
            version: old.version.saturating_add(1),
            algorithm: algorithm.clone(),
            ..Limit::clone(old)
        });
        let adopt = |limit: &Limit| self.store.adopt(&once(limit), self.clock.now());
        let mark = self.limit.with(adopt);
        self.numbers_since.fetch_max(mark, Ordering::AcqRel);
        self.lines.wake_all();
    }

    /// Returns the store: its contents, its keys, and [`sweep`](MemoryStore::sweep), which frees
    /// the memory of expired keys before new keys do.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// assert!(limiter.store().usage().bytes < limiter.store().usage().budget_bytes);
    /// ```
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// Returns the clock.
    ///
    /// ```
    /// use ratekeeper::{Clock, KeyedLimiter};
    /// let limiter = KeyedLimiter::per("1/1s").unwrap();
    /// let _now = limiter.clock().now();
    /// ```
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Decides in the cases that [`KeyLimit::decide`] does not decide inline.
    #[inline(never)]
    pub(crate) fn check_slowly(&self, key: &[u8], cost: Permits) -> Decision {
        if self.lines.find(key).is_some() {
            return self.behind_the_line(key, cost);
        }
        self.with(key, cost, |charge, now| self.store.decide_one(charge, now))
    }

    #[inline]
    fn with<T>(&self, key: &[u8], cost: Permits, act: impl FnOnce(&Charge<'_>, Time) -> T) -> T {
        let now = self.clock.now();
        self.charge(key, cost, |charge| act(charge, now))
    }

    #[cold]
    fn behind_the_line(&self, key: &[u8], cost: Permits) -> Decision {
        let now = self.clock.now();
        let look = |cost| self.charge(key, cost, |charge| self.store.look_one(charge, now));
        let at_least = || {
            let line = self.lines.find(key);
            let total = line.map_or(cost, |line| line.lock().total_with(cost));
            self.charge(key, total, |charge| self.store.at_least(charge, now))
        };
        behind_the_line(look, at_least, cost)
    }
}

impl<A, C> KeyedLimiter<A, C> {
    /// Calls `act` with the charge of a key.
    #[inline]
    fn charge<T>(&self, key: &[u8], cost: Permits, act: impl FnOnce(&Charge<'_>) -> T) -> T {
        self.limit.with(|limit| act(&charge_of(limit, key, cost)))
    }
}

impl<C: Clock> KeyedLimiter<Gcra, C> {
    /// Like [`set_limit`](Self::set_limit), to a token bucket with the numbers of `quota`;
    /// reservations and debts reach about a year ahead.
    ///
    /// ```
    /// let limiter = ratekeeper::KeyedLimiter::per("10/1h").unwrap();
    /// limiter.set_quota("20/1h".parse().unwrap()).unwrap();
    /// assert_eq!(limiter.key("ann").peek().remaining.get(), 20);
    /// ```
    ///
    /// # Errors
    /// Those of [`KeyedLimiter::per`]; then nothing is changed.
    pub fn set_quota(&self, quota: Quota) -> Result<(), Error> {
        self.set_limit(Gcra::token_bucket(quota)?);
        Ok(())
    }
}

#[inline]
fn charge_of<'a>(limit: &'a Limit, key: &'a [u8], cost: Permits) -> Charge<'a> {
    Charge::enforced(limit, Key::from_bytes(key), cost)
}

impl<A, C> fmt::Debug for KeyedLimiter<A, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyedLimiter")
            .field("limit", &self.limit.with(|limit| limit.algorithm.clone()))
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
            let ask = |_: &u32| limiter.check(user).is_ok();
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
    fn another_algorithm_inherits_the_used_permits() {
        let quota: Quota = "10/1m".parse().unwrap();
        let clock = std::sync::Arc::new(ManualClock::default());
        let bucket: AnyAlgorithm = Gcra::token_bucket(quota).unwrap().into();
        let memory = MemoryConfig::default();
        let limiter = KeyedLimiter::with_clock(bucket, memory, std::sync::Arc::clone(&clock));
        let _ = limiter.check_n("ann", 6);
        limiter.set_limit(Log::sliding(quota).unwrap().into());
        let left = |user: &str| limiter.key(user).peek().remaining.get();
        assert_eq!([left("ann"), left("bob")], [4, 10]);
        clock.advance(Nanos::from_secs(60));
        assert_eq!(left("ann"), 10);
    }
}
