//! Any: the stores that can be chosen at run time, a closed set.
//!
//! The memory store is called directly, as if it were the only one. The futures of the other
//! stores are boxed, so that a future of the memory store stays small.

use ratekeeper_core::{Limit, Origin, Time};

use crate::fallback::Fallback;
use crate::{MemoryStore, RedisStore, Store, StoreAct, StoreError};

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

    fn adopt<'l>(&self, limits: &(impl Iterator<Item = &'l Limit> + Clone), now: Time) {
        match self {
            Self::Memory(memory) => Store::adopt(memory, limits, now),
            Self::Redis(redis) => redis.adopt(limits, now),
        }
    }

    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        match self {
            Self::Memory(memory) => memory.settle(act, items, now).await,
            Self::Redis(redis) => Box::pin(redis.settle(act, items, now)).await,
        }
    }
}
