//! The memory store: keyed, concurrent, exact, listable, bounded.
//!
//! ```text
//!   key --hash--> shard (lock) --limit id--> table --hash--> state --> decide in place
//!
//!   table:  | key 8, 16 or 32 B | state 8 B (GCRA) |   1.25 to 1.9 slots a key, and a floor
//! ```
//!
//! * **One request, all or none.** One charge takes one lock and one look-up. Several take the
//!   locks of their shards in order, look at all, and charge all or none (limits that count
//!   denials are charged in either case). Limits that share a key share the shard: a request that
//!   must pass several limits of one user takes one lock.
//! * **A denial allocates nothing** and creates no entry.
//! * **Expiry.** A state that has expired carries no information. A few of them are removed on
//!   every insert, and some on every [`sweep`](MemoryStore::sweep). Memory is freed as keys are
//!   removed.
//! * **Bounded.** All memory is counted: tables, keys, heap memory of keys and states, and the
//!   old and the new array while a table grows. Nothing is allocated beyond the budget.
//!
//! # When the store is full
//!
//! When a new key finds no room:
//!
//! 1. The expired ones of the next 16 entries of its limit are removed.
//! 2. If another limit takes more than twice the memory in the shard, or else the keys of
//!    another size of the same limit do, the larger table gives up a third of its array: the
//!    keys that have used least of the limit, judged by a sample, are evicted.
//! 3. Else one key of the same limit is evicted: of the next 16 of its table, the one that has
//!    used least. So the work for a new key does not grow, and every part gives up keys alike.
//! 4. If there is none to evict (a budget of a few kilobytes), the request is denied with
//!    `retry_after` 1 s.
//!
//! An evicted key leaves its usage behind: the *floor* of the limit (one for each shard and size
//! of key) becomes the strictest of all evicted states. Until the floor expires, a key that is not
//! in memory begins with the floor's usage, less a forgiven part. This part, `q`, is an eighth of
//! the limit, at least 2 permits, and at most half of the limit, rounded up. So
//!
//! * a new key is admitted up to `q` permits, whatever flood there was before;
//! * an evicted key gains `q` permits at most, each time, and it is evicted only by keys that have
//!   used as much: a key that spent its limit outlasts any number of keys that asked once;
//! * clients that ask for less than `q` raise no floor, and keep no other client out;
//! * a key in memory is exact, and the store never grows beyond its budget and never stops
//!   enforcing.
//!
//! Permits on loan are not evicted for a new key of their limit: the new key is denied with
//! `retry_after` 1 s. If another limit needs the room, they are evicted, and nothing is
//! forgiven. `reset` does not lower the floor. Evicted keys, and keys that had merely expired, are
//! counted for each limit ([`usage`](MemoryStore::usage)).
//!
//! # Pauses
//!
//! No operation locks the whole store. The longest pause is one pass over one table of one shard:
//! when it grows by a quarter, shrinks, gives up a third, or changes its algorithm.

mod budget;
mod entries;
mod flat;
mod key;
mod limit_tables;
mod listing;
mod promise;
mod request;
mod saved;
mod shard;
mod table;
mod tables_box;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratekeeper_core::{
    Algorithm, AlgorithmSet, AnyAlgorithm, Charge, Decision, Key, Lend, Limit, Permits, Time,
};

use crate::given_back::Marks;
use crate::lock::{Lock, LockGuard};
use crate::{Decide, Decisions, Store, StoreAct, StoreError};
use budget::MemoryBudget;
use key::{KeyHasher, LongKey, ShortKey, SizeClass, WordKey, hash_of};
use limit_tables::KeySize;
pub use listing::KeyEntry;
use request::MemoryRequest;
pub use saved::Restored;
use shard::Shard;
pub use table::Reserved;
use table::TableAsk;
use tables_box::TablesBox;
pub use usage::{EvictionCounts, LimitUsage, Loans, Usage};

/// Shards of a store: many more than cores, so that two threads seldom want the same.
const MAX_SHARDS: usize = 64;
/// Minimum size of a shard: small budgets have fewer shards.
const MIN_SHARD_BYTES: usize = 16 << 10;
/// Shards that one call of [`MemoryStore::sweep`] visits.
const SWEPT_SHARDS: usize = 4;
/// Slots of each table that it visits in each shard.
const SWEPT_SLOTS: usize = 4_096;

/// How much memory the store may use.
#[derive(Clone, Copy, Debug)]
pub struct MemoryConfig {
    /// Hard bound in bytes.
    pub budget_bytes: usize,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self {
            budget_bytes: 256 << 20,
        }
    }
}

/// The memory store.
///
/// ```
/// use ratekeeper_core::{Algorithm, AnyAlgorithm, Charge, Gcra, Key, Limit, LimitId, Mode, Outage, Permits, Time};
/// use ratekeeper_store::{MemoryConfig, MemoryStore};
///
/// let store = MemoryStore::new(MemoryConfig::default());
/// let limit = Limit {
///     name: "per-user".into(),
///     id: LimitId::new(0),
///     version: 1,
///     outage: Outage::Local,
///     scope: ratekeeper_core::LimitScope::Cluster,
///     keys: ratekeeper_core::LimitKeys::All,
///     algorithm: Gcra::token_bucket("2/1s".parse().unwrap()).unwrap().into(),
/// };
/// let charge = |key| Charge {
///     limit: &limit,
///     key: Key::from_bytes(key),
///     cost: Permits::ONE,
///     mode: Mode::Enforce,
/// };
/// let admitted = |key| store.decide_now(&[charge(key)], Time::ZERO).admitted;
/// assert!(admitted(b"ada") && admitted(b"ada") && !admitted(b"ada"));
/// assert!(admitted(b"bob"), "another key");
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shards: Box<[CacheAligned<Lock<Shard>>]>,
    hasher: KeyHasher,
    budget: Arc<MemoryBudget>,
    /// Bytes of the store itself.
    fixed_bytes: usize,
    /// The next shard to be swept.
    next_swept: AtomicUsize,
    marks: Arc<Marks>,
}

/// Keeps its content on cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct CacheAligned<T>(T);

impl MemoryStore {
    /// Creates an empty store.
    pub fn new(config: MemoryConfig) -> Self {
        Self::of::<AnyAlgorithm>(config)
    }

    /// Creates an empty store for limits by one algorithm, or by a token bucket: it denies all
    /// others as if there were no room. A program has only the code of these.
    ///
    /// ```
    /// use ratekeeper_core::Gcra;
    /// use ratekeeper_store::{MemoryConfig, MemoryStore};
    ///
    /// let store = MemoryStore::of::<Gcra>(MemoryConfig::default());
    /// assert!(store.usage().limits.is_empty());
    /// ```
    pub fn of<S: AlgorithmSet>(config: MemoryConfig) -> Self {
        let wanted = (config.budget_bytes / MIN_SHARD_BYTES).clamp(1, MAX_SHARDS);
        let count = 1 << wanted.ilog2(); // down: to a power of two
        let fixed_bytes = size_of::<Self>() + count * size_of::<CacheAligned<Lock<Shard>>>();
        let hasher = KeyHasher::default();
        let budget = Arc::new(MemoryBudget::new(
            config.budget_bytes.saturating_sub(fixed_bytes),
        ));
        let marks = Arc::new(Marks::default());
        let shard = |_| {
            let (budget, marks) = (Arc::clone(&budget), Arc::clone(&marks));
            let bytes = config.budget_bytes / count;
            let shard = Shard::new(budget, bytes, marks, hasher.clone(), TablesBox::new::<S>);
            CacheAligned(Lock::new(shard))
        };
        Self {
            shards: (0..count).map(shard).collect(),
            hasher: hasher.clone(),
            budget,
            fixed_bytes,
            next_swept: AtomicUsize::new(0),
            marks,
        }
    }

    /// Returns the numbers of what came back to its keys, which mark charges for their
    /// [receipts](ratekeeper_core::Receipt).
    #[doc(hidden)]
    #[inline]
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Takes over the numbers of limits that were changed, so that all their keys keep the usage that
    /// they have now by the old ones. Without this call a limit is taken over when one of its keys is
    /// asked for next. Returns a mark that no charge by older numbers has.
    pub fn adopt<'l>(&self, limits: &(impl Iterator<Item = &'l Limit> + Clone), now: Time) -> u64 {
        for shard in 0..self.shards.len() {
            let mut shard = self.lock(shard);
            for limit in limits.clone() {
                shard.known(limit, now); // takes over its numbers
            }
        }
        self.marks.next()
    }

    /// Decides and charges, at once: see [`Store::decide`](crate::Store::decide).
    #[inline]
    pub fn decide_now(&self, charges: &[Charge<'_>], now: Time) -> Decisions {
        self.settle_now(Decide(Lend::Unnamed), charges, now)
    }

    /// Performs an act at once, without [`Store::settle`](crate::Store::settle)'s check: a limit
    /// that does not support refunds is left as it is.
    #[inline]
    pub fn settle_now<A: StoreAct>(&self, act: A, items: &[A::Item<'_>], now: Time) -> A::Answer {
        act.run(&mut MemoryRequest::new(self, items, act.kind().lend(), now))
    }

    /// Decides a request of one charge, and charges it if it allows.
    #[inline]
    pub fn decide_one(&self, charge: &Charge<'_>, now: Time) -> Decision {
        self.decide_marked(charge, now).0
    }

    /// Like [`decide_one`](Self::decide_one), with the mark of the charge, read under the lock of its
    /// key.
    #[doc(hidden)]
    #[inline]
    pub fn decide_marked(&self, charge: &Charge<'_>, now: Time) -> (Decision, u64) {
        match SizeClass::of(charge.key.as_bytes()) {
            SizeClass::Word => self.decide_sized::<WordKey>(charge, now),
            SizeClass::Short => self.decide_sized::<ShortKey>(charge, now),
            SizeClass::Long => self.decide_sized::<LongKey>(charge, now),
        }
    }

    /// Returns the permits that a limit has on loan; zero if it lends nothing. Shards are walked
    /// one after the other, as by [`keys`](Self::keys).
    pub fn loans(&self, limit: &Limit, now: Time) -> Loans {
        let mut loans = Loans::default();
        for shard in 0..self.shards.len() {
            if let Some(tables) = self.lock(shard).known(limit, now) {
                tables.add_loans(now, &mut loans);
            }
        }
        loans
    }

    /// Returns the state of one key; `None` if it owes nothing.
    pub fn key(&self, limit: &Limit, key: Key<'_>, now: Time) -> Option<Decision> {
        let charge = Charge::enforced(limit, key, Permits::ZERO);
        self.with(&charge, now, |shard, limit, ask| {
            shard.known(limit, now)?.standing(ask)
        })
    }

    /// Forgets states that carry no information; a bounded step of the work. The service
    /// calls it about ten times a second.
    pub fn sweep(&self, now: Time) {
        let count = SWEPT_SHARDS.min(self.shards.len());
        let first = self.next_swept.fetch_add(count, Ordering::Relaxed);
        for step in 0..count {
            let shard = first.wrapping_add(step) & (self.shards.len() - 1);
            self.lock(shard).sweep(now, SWEPT_SLOTS);
        }
    }

    /// Returns the memory in use, and the usage of each limit.
    pub fn usage(&self) -> Usage {
        let mut limits = Vec::new();
        for shard in 0..self.shards.len() {
            self.lock(shard).add_usage(&mut limits);
        }
        Usage {
            bytes: self.fixed_bytes + self.budget.taken(),
            budget_bytes: self.fixed_bytes + self.budget.total(),
            limits,
        }
    }

    /// The low bits choose the shard; the high bits the slot.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "only the low bits are used"
    )]
    #[inline]
    fn shard_of(&self, hash: u64) -> usize {
        hash as usize & (self.shards.len() - 1)
    }

    #[inline]
    fn lock(&self, shard: usize) -> LockGuard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    /// Calls `act` with the shard of one charge.
    #[inline]
    fn with<T>(
        &self,
        charge: &Charge<'_>,
        now: Time,
        act: impl FnOnce(&mut Shard, &Limit, &TableAsk<'_>) -> T,
    ) -> T {
        let key = charge.key.as_bytes();
        let ask = TableAsk {
            cost: charge.cost,
            ..TableAsk::new(key, hash_of(&self.hasher, key), now, &self.budget)
        };
        act(&mut self.lock(self.shard_of(ask.hash)), charge.limit, &ask)
    }

    /// Runs only the common case inline (a present key of a GCRA limit that has not changed), in
    /// registers, so that a processor that overlaps several decisions also overlaps their waits for
    /// memory.
    #[expect(clippy::inline_always, reason = "one copy per size of key")]
    #[inline(always)]
    fn decide_sized<K: KeySize>(&self, charge: &Charge<'_>, now: Time) -> (Decision, u64) {
        let (limit, key, cost) = (charge.limit, charge.key.as_bytes(), charge.cost);
        let probe = K::probe(key);
        let hash = K::hash(&self.hasher, &probe);
        let mut shard = self.lock(self.shard_of(hash));
        if let Some((gcra, tat)) = shard.likely::<K>(limit, hash, &probe) {
            return (gcra.decide(tat, now, cost), self.marks.last());
        }
        let ask = TableAsk {
            cost,
            ..TableAsk::new(key, hash, now, &self.budget)
        };
        (shard.decide(limit, &ask), self.marks.last())
    }
}

/// Every answer is ready at once.
impl Store for MemoryStore {
    fn answers_at_once(&self) -> bool {
        true
    }

    fn adopt<'l>(&self, limits: &(impl Iterator<Item = &'l Limit> + Clone), now: Time) {
        let _mark = self.adopt(limits, now);
    }

    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        act.check(items)?;
        Ok(self.settle_now(act, items, now))
    }
}
