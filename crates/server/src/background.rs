//! Background: the tasks that run until the process ends.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
#[cfg(feature = "proxy")]
use ratekeeper_gateway::AddressHealth;
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;
#[cfg(feature = "proxy")]
use crate::metrics::CheckedAddress;
use crate::tasks::keep;
use crate::{
    admin, alerts, expired_reservations, history, machine_load, memory, missing_keys,
    standing_bans, state, store, tls, wall_clock, watching,
};

/// How often the store takes a step in forgetting idle keys.
const SWEEP: Duration = Duration::from_millis(100);

/// Starts the tasks that run until the process ends.
pub(crate) fn start_tasks<C: Clock + 'static>(shared: &Arc<ServiceContext<C>>) {
    let again = || Arc::clone(shared);
    let kept = again();
    keep(shared, "sweep", move || sweep(Arc::clone(&kept)));
    let kept = again();
    keep(shared, "memory", move || memory::watch(Arc::clone(&kept)));
    let kept = again();
    keep(shared, "store", move || store::tend(Arc::clone(&kept)));
    let kept = again();
    keep(shared, "clocks", move || {
        store::compare_clocks(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "wall clock", move || {
        wall_clock::watch(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "load", move || {
        machine_load::watch(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "alerts", move || alerts::watch(Arc::clone(&kept)));
    let kept = again();
    keep(shared, "bans", move || {
        standing_bans::watch(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "reservations", move || {
        expired_reservations::watch(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "top keys", move || {
        watching::sweep(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "history", move || {
        history::record(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "dashboard", move || {
        admin::publish(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "missing keys", move || {
        missing_keys::watch(Arc::clone(&kept))
    });
    let kept = again();
    keep(shared, "state", move || {
        state::save_regularly(Arc::clone(&kept))
    });
    for listener in shared.metrics.process.tls.get().into_iter().flatten() {
        let (kept, listener) = (again(), Arc::clone(listener));
        keep(shared, "certificates", move || {
            tls::keep_fresh(Arc::clone(&kept), Arc::clone(&listener))
        });
    }
    #[cfg(feature = "proxy")]
    {
        let kept = again();
        keep(shared, "upstream signals", move || {
            crate::upstream_signals::watch(Arc::clone(&kept))
        });
    }
    #[cfg(feature = "proxy")]
    for checked in shared.metrics.process.checked.get().into_iter().flatten() {
        let checked = checked.clone();
        keep(shared, "health", move || check(checked.clone()));
    }
}

/// Checks an address of an upstream until the process ends.
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

/// Forgets idle keys, a bounded step at a time.
async fn sweep<C: Clock>(shared: Arc<ServiceContext<C>>) {
    let mut tick = interval(SWEEP);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let keeper = &shared.keeper;
        keeper.store().local().sweep(keeper.clock().now());
    }
}
