//! Health: how a store that may fail is doing, for people.

use ratekeeper_resilience::BreakerState;

/// How a store that may fail is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// Whether it is asked: only if closed.
    pub state: BreakerState,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that were not.
    pub failed: u64,
    /// Requests decided without it, by the gravest choice of their limits.
    pub fallback: FallbackCounts,
    /// Permits admitted without it that it has been charged since.
    pub debited: u64,
    /// What went wrong last; empty if nothing has.
    pub last_error: String,
}

/// Requests decided without the store: how many, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FallbackCounts {
    /// By shares alone.
    pub local: u64,
    /// With a limit that passes everything, and none that refuses everything.
    pub allow: u64,
    /// With a limit that refuses everything.
    pub deny: u64,
}

/// What has changed since it was last looked after.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HealthChange {
    /// It is not asked any more: why.
    Down(String),
    /// It is asked again; so many permits have been debited.
    Up(u64),
}
