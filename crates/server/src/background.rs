//! Background: the tasks that run until the process ends.

mod alerts;
pub(crate) mod bans;
mod certificates;
pub(crate) mod history;

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
#[cfg(feature = "proxy")]
use ratekeeper_gateway::AddressHealth;
#[cfg(feature = "proxy")]
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::context::ServiceContext;
#[cfg(feature = "proxy")]
use crate::metrics::CheckedAddress;
use crate::state::saving;
use crate::tasks::keep;
use crate::{admin, expired_reservations, machine_load, memory, missing_keys, store, wall_clock};

/// Interval between two steps of removing idle keys.
const SWEEP: Duration = Duration::from_millis(100);
/// Interval at which counts and records of keys that are too old are dropped.
const WATCHERS_SWEEP: Duration = Duration::from_secs(30);

/// How soon the addresses of a reloaded policy are checked.
#[cfg(feature = "proxy")]
const LOOK_FOR_UPSTREAMS: Duration = Duration::from_millis(100);

/// Starts the tasks that run until the process ends.
pub(crate) fn start_tasks<C: Clock + 'static>(shared: &Arc<ServiceContext<C>>) {
    every(shared, "sweep", SWEEP, sweep);
    start(shared, "memory", memory::watch);
    start(shared, "store", store::tend);
    start(shared, "clocks", store::compare_clocks);
    start(shared, "wall clock", wall_clock::watch);
    start(shared, "load", machine_load::watch);
    every(shared, "alerts", alerts::LOOK, alerts::look);
    every(shared, "bans", bans::LOOK, bans::report_ends);
    start(shared, "reservations", expired_reservations::watch);
    every(shared, "top keys", WATCHERS_SWEEP, sweep_watchers);
    start(shared, "history", history::record);
    start(shared, "dashboard", admin::publish);
    start(shared, "missing keys", missing_keys::watch);
    start(shared, "state", saving::save_regularly);
    for listener in shared.metrics.process.tls.get().into_iter().flatten() {
        let listener = Arc::clone(listener);
        start(shared, "certificates", move |shared| {
            certificates::keep_fresh(shared, Arc::clone(&listener))
        });
    }
    #[cfg(feature = "proxy")]
    start(shared, "upstream signals", crate::upstream_signals::watch);
    #[cfg(feature = "proxy")]
    start(shared, "health", check_all);
}

/// Starts a task of the service; it is begun again if it panics.
fn start<C: Clock + 'static, F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<ServiceContext<C>>,
    name: &'static str,
    task: impl Fn(Arc<ServiceContext<C>>) -> F + Send + 'static,
) {
    let kept = Arc::clone(shared);
    keep(shared, name, move || task(Arc::clone(&kept)));
}

/// Starts a task that acts now, and again after each `period`.
fn every<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
    name: &'static str,
    period: Duration,
    act: fn(&ServiceContext<C>),
) {
    start(shared, name, move |shared| async move {
        let mut tick = interval(period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            act(&shared);
        }
    });
}

/// Checks the addresses of upstreams; those of a reloaded policy in place of those before.
#[cfg(feature = "proxy")]
async fn check_all<C: Clock>(shared: Arc<ServiceContext<C>>) {
    loop {
        let all = shared.metrics.process.checked.load_full();
        let checks: JoinSet<()> = all.iter().cloned().map(check).collect();
        while Arc::ptr_eq(&all, &shared.metrics.process.checked.load()) {
            sleep(LOOK_FOR_UPSTREAMS).await;
        }
        drop(checks); // ends them
    }
}

/// Checks an address of an upstream for ever.
#[cfg(feature = "proxy")]
async fn check(checked: CheckedAddress) {
    let (route, place) = (checked.route, checked.place);
    let changed = |health: &AddressHealth| {
        let address = health.name();
        if health.is_up() {
            tracing::info!(event = "upstream.up", %route, place, address);
        } else {
            tracing::warn!(event = "upstream.down", %route, place, address);
        }
    };
    checked.health.watch(changed).await;
}

/// Removes idle keys, a bounded step at a time.
fn sweep<C: Clock>(shared: &ServiceContext<C>) {
    let keeper = &shared.keeper;
    keeper.store().local().sweep(keeper.clock().now());
}

/// Drops counts and records that are too old, and returns their memory.
fn sweep_watchers<C: Clock>(shared: &ServiceContext<C>) {
    let now = shared.keeper.clock().now();
    shared.watchers.top_keys.sweep(now);
    shared.watchers.recorder.sweep(now);
}
