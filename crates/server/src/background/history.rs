//! History: the counters of the metrics, read once a second.

use std::time::Duration;

use crate::context::ServiceContext;
use crate::observe::history::MAX_LIMITS;

/// How often the counters are read.
pub(super) const TICK: Duration = Duration::from_secs(1);

/// Reads the counters.
pub(crate) fn record(shared: &ServiceContext) {
    let second = shared.now().as_nanos() / 1_000_000_000;
    let policy = shared.keeper.policy();
    let limits = policy.rules.iter().take(MAX_LIMITS).map(|rule| {
        let id = rule.limit.id;
        (id, shared.observers.metrics.take_tally(id))
    });
    let observers = &shared.observers;
    observers.countries.roll(shared.unix_seconds() / 3_600);
    let total = observers.metrics.total();
    observers.history.note(second, total, limits.collect());
}
