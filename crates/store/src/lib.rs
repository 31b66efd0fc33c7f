//! Where the state of limits lives, and what makes a decision atomic.

mod cell;
#[cfg(any(test, feature = "testing"))]
pub mod conformance;
mod memory;
#[cfg(all(feature = "redis", not(loom)))]
mod redis;
mod store;

pub use cell::Cell;
pub use memory::{EvictionCounts, KeyEntry, LimitUsage, Loans, MemoryConfig, MemoryStore, Usage};
#[cfg(all(feature = "redis", not(loom)))]
pub use redis::{RedisClock, RedisConfig, RedisServers, RedisStore};
pub use store::{Decisions, Hold, Store, StoreError};
