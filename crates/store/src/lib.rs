//! Stores: where the states of limits live, and how decisions are made atomic.

mod act;
#[cfg(all(feature = "redis", not(loom)))]
mod any;
mod cell;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
#[cfg(feature = "redis")]
mod fallback;
mod lock;
mod memory;
#[cfg(all(feature = "redis", not(loom)))]
mod redis;
mod settle;
mod store;

pub use act::{ActItem, ActKind, Decide, GiveBack, Hold, Look, Release, Renew, Reset, StoreAct};
#[cfg(all(feature = "redis", not(loom)))]
pub use any::AnyStore;
pub use cell::Cell;
#[cfg(feature = "redis")]
pub use fallback::{Fallback, FallbackCounts, Health, HealthChange, Remote};
#[doc(hidden)]
pub use lock::{Lock, LockGuard};
pub use memory::{
    EvictionCounts, KeyEntry, LimitUsage, Loans, MemoryConfig, MemoryStore, Reserved, Usage,
};
#[cfg(feature = "redis")]
pub use ratekeeper_resilience::BreakerState;
#[cfg(all(feature = "redis", not(loom)))]
pub use redis::{
    CallTime, CallTimes, ClusterNode, RedisClock, RedisConfig, RedisIdentity, RedisLogin,
    RedisSentinels, RedisServer, RedisServers, RedisStore, RedisTls, ServerHealth, ServerInfo,
};
pub use store::{Decisions, Store, StoreError};
