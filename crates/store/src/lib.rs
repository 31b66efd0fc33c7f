//! Stores: where the states of limits live, and how decisions are made atomic.

#[cfg(all(feature = "redis", not(loom)))]
mod any;
mod cell;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
#[cfg(feature = "redis")]
mod fallback;
mod memory;
#[cfg(all(feature = "redis", not(loom)))]
mod redis;
mod settle;
mod store;

#[cfg(all(feature = "redis", not(loom)))]
pub use any::AnyStore;
pub use cell::Cell;
#[cfg(feature = "redis")]
pub use fallback::{Fallback, FallbackCounts, Health, HealthChange, Remote};
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
pub use store::{Decisions, Hold, Store, StoreError};
