//! Stores: where the states of limits live, and how decisions are made atomic.

mod act;
#[cfg(feature = "redis")]
mod any;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
#[cfg(feature = "redis")]
mod fallback;
mod given_back;
mod lock;
mod memory;
mod modes;
mod observed;
#[cfg(feature = "redis")]
mod redis;
mod settle;
mod store;

pub use act::{
    ActAnswer, ActItem, ActKind, ActualCost, Ban, ChargeOrigin, Decide, GiveBack, Grant,
    GrantAnswer, Hold, Look, Release, Renew, Reset, Settle, Settled, StoreAct,
};
#[cfg(feature = "redis")]
pub use any::AnyStore;
#[cfg(feature = "redis")]
pub use fallback::{Fallback, FallbackCounts, Health, HealthChange, OpCalls, Remote};
#[doc(hidden)]
pub use given_back::{GiveBackNote, GivenBack, Marks, StateChange};
#[doc(hidden)]
pub use lock::{Lock, LockGuard};
pub use memory::{
    EvictionCounts, KeyEntry, LimitUsage, Loans, MemoryConfig, MemoryStore, Reserved, Restored,
    Usage,
};
pub use observed::{Observed, Observer};
#[cfg(feature = "redis")]
pub use ratekeeper_resilience::BreakerState;
#[cfg(feature = "redis")]
pub use redis::{
    BanCursor, BanPage, BannedKey, CallTime, CallTimes, ClusterNode, RedisClock, RedisConfig,
    RedisIdentity, RedisLogin, RedisSentinels, RedisServer, RedisServers, RedisStore, RedisTls,
    ServerHealth, ServerInfo,
};
pub use store::{Decisions, Store, StoreCall, StoreError};
