//! Any: the stores that can be chosen at run time, a closed set.
//!
//! The memory store is called directly, as if it were the only one. The futures of the other
//! stores are boxed, so that a future of the memory store stays small.

use ratekeeper_core::{Charge, Lend, Nanos, Origin, Permits, Time};
use smallvec::SmallVec;

use crate::fallback::Fallback;
use crate::{Decisions, Hold, MemoryStore, RedisStore, Store, StoreError};

/// A store chosen at run time.
#[derive(Debug)]
pub enum AnyStore {
    /// In this process.
    Memory(MemoryStore),
    /// Shared, with a memory store in its place while it fails.
    Redis(Box<Fallback<RedisStore>>),
}

impl AnyStore {
    /// Returns the memory store: it decides always, or while the shared store fails.
    pub fn local(&self) -> &MemoryStore {
        match self {
            Self::Memory(memory) => memory,
            Self::Redis(redis) => redis.local(),
        }
    }

    /// Returns the shared store; `None` if the states are in this process.
    pub fn shared(&self) -> Option<&Fallback<RedisStore>> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis),
        }
    }
}

/// Awaits `$call` on the chosen store.
macro_rules! ask {
    ($any:expr, $store:ident => $call:expr) => {
        match $any {
            AnyStore::Memory($store) => $call.await,
            AnyStore::Redis($store) => Box::pin($call).await,
        }
    };
}

impl Store for AnyStore {
    fn answers_at_once(&self) -> bool {
        matches!(self, Self::Memory(_))
    }

    fn set_origin(&self, origin: Origin) {
        match self {
            Self::Memory(memory) => memory.set_origin(origin),
            Self::Redis(redis) => redis.set_origin(origin),
        }
    }

    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        ask!(self, store => store.decide(charges, now))
    }

    async fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        ask!(self, store => store.acquire(charges, lend, now))
    }

    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        ask!(self, store => store.look(charges, now))
    }

    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        ask!(self, store => store.refund(charges, now))
    }

    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        ask!(self, store => store.reset(charges, now))
    }

    async fn release(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Permits; 4]>, StoreError> {
        ask!(self, store => store.release(holds, now))
    }

    async fn renew(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> Result<SmallVec<[Option<Nanos>; 4]>, StoreError> {
        ask!(self, store => store.renew(holds, now))
    }
}
