//! Health: the condition of a store that may fail, for people.

use ratekeeper_resilience::BreakerState;

use crate::ActKind;

/// Condition of a store that may fail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Health {
    /// State of the circuit breaker: the store is asked only if closed.
    pub state: BreakerState,
    /// As [`Fallback::is_down`](crate::Fallback::is_down).
    pub is_down: bool,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed, probes included.
    pub failed: u64,
    /// Calls of each act, and the probes.
    pub calls: [OpCalls; ActKind::NAMES.len() + 1],
    /// Requests decided without the store, by the gravest choice of their limits.
    pub fallback: FallbackCounts,
    /// Permits admitted without the store and debited since.
    pub debited: u64,
    /// The last error; empty if there was none.
    pub last_error: String,
}

/// Numbers of calls of one kind, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpCalls {
    /// Name of the act, or `probe`.
    pub op: &'static str,
    /// Calls that were answered.
    pub answered: u64,
    /// Calls that failed.
    pub failed: u64,
}

/// Numbers of requests decided without the store, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FallbackCounts {
    /// Decided by shares alone.
    pub local: u64,
    /// With a limit that passes everything, and none that refuses everything.
    pub allow: u64,
    /// With a limit that refuses everything.
    pub deny: u64,
}

/// Change of health since the last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HealthChange {
    /// The store is not asked any more; holds the reason.
    Down(String),
    /// The store is asked again; holds the number of permits debited.
    Up(u64),
    /// A key holds a value of no limit, and is counted by this process alone; holds the error.
    /// Reported once a minute at most.
    Foreign(String),
}
