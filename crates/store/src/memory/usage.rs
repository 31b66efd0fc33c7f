//! Usage: contents and evictions of a store, for the metrics.

use ratekeeper_core::LimitId;

/// Usage of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use, in total.
    pub bytes: usize,
    /// Bound on the bytes in use.
    pub budget_bytes: usize,
    /// Usage of each limit.
    pub limits: Vec<LimitUsage>,
}

/// Usage of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUsage {
    /// The limit.
    pub id: LimitId,
    /// Keys with a state.
    pub keys: usize,
    /// Bytes in use for the limit.
    pub bytes: usize,
    /// Keys that left since the start.
    pub evicted: EvictionCounts,
    /// As [`Loans::lapsed`].
    pub lapsed: u64,
}

/// Loans of a concurrency limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loans {
    /// Permits in use now, of all keys.
    pub in_use: u64,
    /// Permits that came back because their lease ended, since the start; noticed when the
    /// key is next asked about, or forgotten.
    pub lapsed: u64,
}

/// Numbers of keys that left since the start, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// Keys with a state that carried no information any more.
    pub idle: u64,
    /// Keys evicted because the budget was reached.
    pub budget: u64,
}
