//! Usage: what a store holds, and what it has let go, for the metrics.

use ratekeeper_core::LimitId;

/// What the store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use, all told.
    pub bytes: usize,
    /// The bound on them.
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

/// What a limit of concurrency has on loan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loans {
    /// Permits at work now, of all keys.
    pub in_use: u64,
    /// Permits that came back because their lease ended, since the start; noticed when the
    /// key is next asked about, or forgotten.
    pub lapsed: u64,
}

/// Why keys left: how many, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// Their state carried no information any more.
    pub idle: u64,
    /// The budget was reached.
    pub budget: u64,
}
