//! Background: the tasks that run until the process ends.

mod alerts;
pub(crate) mod bans;
mod certificates;
pub(crate) mod expired_reservations;
pub(crate) mod exports;
pub(crate) mod history;
pub(crate) mod machine_load;
pub(crate) mod memory;
pub(crate) mod missing_keys;
pub(crate) mod old_databases;
pub(crate) mod upstream_signals;
mod upstreams;
pub(crate) mod wall_clock;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::expired_reservations::ExpiryLog;
use self::memory::Filling;
use self::missing_keys::HourCounts;
use crate::context::ServiceContext;
use crate::state::saving;
use crate::{admin, observe, store};

/// Interval between two steps of removing idle keys.
const SWEEP: Duration = Duration::from_millis(100);
/// Interval at which counts and records of keys that are too old are dropped.
const WATCHERS_SWEEP: Duration = Duration::from_secs(30);

/// How long a task that panicked stays down; the service is not ready meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the tasks that run until the process ends.
pub(crate) fn start_tasks(shared: &Arc<ServiceContext>) {
    let sweep = |it: &ServiceContext| it.keeper.store().local().sweep(it.now());
    every(shared, "sweep", SWEEP, sweep);
    let mut filling = Filling::default();
    every(shared, "memory", memory::LOOK, move |it| filling.watch(it));
    start(shared, "store", store::tend);
    start(shared, "clocks", store::compare_clocks);
    start(shared, "by hand", store::by_hand::follow);
    start(shared, "wall clock", wall_clock::watch);
    let processors = machine_load::processors();
    let load = move |it: &ServiceContext| machine_load::read(it, processors);
    every(shared, "load", machine_load::READ, load);
    every(shared, "alerts", alerts::LOOK, alerts::look);
    every(shared, "bans", bans::LOOK, bans::report_ends);
    let mut expired = ExpiryLog::default();
    let report = move |it: &ServiceContext| expired.report(it);
    every(shared, "reservations", expired_reservations::LOOK, report);
    every(shared, "top keys", WATCHERS_SWEEP, sweep_watchers);
    every(shared, "history", history::TICK, history::record);
    start(shared, "dashboard", admin::publish);
    let mut hour = HourCounts::default();
    let watch = move |it: &ServiceContext| hour.watch(it);
    every(shared, "missing keys", missing_keys::LOOK, watch);
    start(shared, "state", saving::save_regularly);
    let listeners = shared.observers.metrics.process.tls.get();
    for listener in listeners.into_iter().flatten() {
        let listener = Arc::clone(listener);
        start(shared, "certificates", move |shared| {
            certificates::keep_fresh(shared, Arc::clone(&listener))
        });
    }
    every(
        shared,
        "upstream signals",
        upstream_signals::READ,
        upstream_signals::read,
    );
    start(shared, "health", upstreams::check_all);
    let read = |it: &ServiceContext| it.observers.metrics.process.upstreams.read();
    every(shared, "upstreams", observe::upstreams::TICK, read);
}

/// Starts a task that acts now and at each `period` from then on. If it panics, it begins again,
/// with the state that it began with.
fn every(
    shared: &Arc<ServiceContext>,
    name: &'static str,
    period: Duration,
    act: impl FnMut(&ServiceContext) + Clone + Send + 'static,
) {
    start(shared, name, move |shared| {
        let mut act = act.clone();
        async move {
            let mut tick = interval(period);
            tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
            loop {
                tick.tick().await;
                act(&shared);
            }
        }
    });
}

/// Starts a task of the service, which runs to its end; after a panic it is begun again.
pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(
    shared: &Arc<ServiceContext>,
    name: &'static str,
    task: impl Fn(Arc<ServiceContext>) -> F + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        // The other error is the end of the runtime.
        while tokio::spawn(task(Arc::clone(&shared)))
            .await
            .is_err_and(|error| error.is_panic())
        {
            tracing::error!(event = "task.failed", task = name);
            shared.observers.metrics.process.task_failures.add(1);
            shared.readiness.note_down();
            sleep(PAUSE).await;
            shared.readiness.note_up();
        }
    })
}

/// Drops counts and records that are too old, and returns their memory.
fn sweep_watchers(shared: &ServiceContext) {
    let now = shared.now();
    shared.observers.watchers.top_keys.sweep(now);
    shared.observers.watchers.recorder.sweep(now);
}
