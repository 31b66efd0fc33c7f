//! History: the counters of the metrics, read once a second.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;
use crate::observe::history::MAX_LIMITS;

/// How often the counters are read.
const TICK: Duration = Duration::from_secs(1);

/// Reads the counters until the service ends.
pub(crate) async fn record(shared: Arc<ServiceContext>) {
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tick.tick().await;
        record_now(&shared);
    }
}

/// Reads the counters.
pub(crate) fn record_now(shared: &ServiceContext) {
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
