//! The memory store: keyed, concurrent, exact, listable, bounded. Skeleton.

use ratekeeper_core::{Charge, Decision, Key, Limit, LimitId, Time};
use smallvec::SmallVec;

use crate::{Decisions, Store, StoreError};

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

/// One key of a limit, for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyEntry {
    /// The key's bytes; see [`Key::parts`].
    pub key: Vec<u8>,
    /// The state as it stands.
    pub decision: Decision,
}

/// What the store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use, all told.
    pub bytes: usize,
    /// The bound.
    pub budget_bytes: usize,
    /// By limit.
    pub limits: Vec<LimitUsage>,
}

/// What one limit holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUsage {
    /// Which limit.
    pub id: LimitId,
    /// Keys with a state.
    pub keys: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Since the start.
    pub evicted: EvictionCounts,
}

/// Why keys left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// Their state carried no information any more.
    pub idle: u64,
    /// The budget was reached.
    pub budget: u64,
}

/// The memory store.
#[derive(Debug)]
pub struct MemoryStore {}

impl MemoryStore {
    /// An empty store.
    pub fn new(_config: MemoryConfig) -> Self {
        todo!()
    }
    /// See [`Store::decide`]; answers at once.
    pub fn decide_now(&self, _charges: &[Charge<'_>], _now: Time) -> Decisions {
        todo!()
    }
    /// See [`Store::look`].
    pub fn look_now(&self, _charges: &[Charge<'_>], _now: Time) -> Decisions {
        todo!()
    }
    /// See [`Store::refund`].
    pub fn refund_now(&self, _charges: &[Charge<'_>], _now: Time) {
        todo!()
    }
    /// See [`Store::reset`].
    pub fn reset_now(&self, _charges: &[Charge<'_>], _now: Time) -> SmallVec<[bool; 4]> {
        todo!()
    }
    /// The `top` keys of a limit with the least remaining.
    pub fn keys(&self, _limit: &Limit, _top: usize, _now: Time) -> Vec<KeyEntry> {
        todo!()
    }
    /// The state of one key, if there is one.
    pub fn key(&self, _limit: &Limit, _key: Key<'_>, _now: Time) -> Option<Decision> {
        todo!()
    }
    /// Forgets states that carry no information; a bounded step of the work. The service
    /// calls it about ten times a second.
    pub fn sweep(&self, _now: Time) {
        todo!()
    }
    /// What the store holds.
    pub fn usage(&self) -> Usage {
        todo!()
    }
}

impl Store for MemoryStore {
    async fn decide(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        Ok(self.decide_now(charges, now))
    }
    async fn look(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        Ok(self.look_now(charges, now))
    }
    async fn refund(&self, charges: &[Charge<'_>], now: Time) -> Result<(), StoreError> {
        self.refund_now(charges, now);
        Ok(())
    }
    async fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> Result<SmallVec<[bool; 4]>, StoreError> {
        Ok(self.reset_now(charges, now))
    }
}
