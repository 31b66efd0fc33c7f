//! Upstreams: checks their addresses until the process ends.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_gateway::AddressHealth;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Event;
use crate::context::ServiceContext;

/// How soon the addresses of a reloaded policy are checked.
const LOOK: Duration = Duration::from_millis(100);

/// Checks the addresses of upstreams; those of a reloaded policy in place of those before.
pub(super) async fn check_all<C: Clock + 'static>(shared: Arc<ServiceContext<C>>) {
    let upstreams = &shared.observers.metrics.process.upstreams;
    loop {
        let all = upstreams.all();
        let mut checks = JoinSet::new();
        for upstream in &*all {
            for (place, health) in (1..).zip(upstream.gateway.checked()) {
                let route = Arc::from(&*upstream.route);
                checks.spawn(check(Arc::clone(&shared), route, place, health));
            }
        }
        while Arc::ptr_eq(&all, &upstreams.all()) {
            sleep(LOOK).await;
        }
        drop(checks); // ends them
    }
}

/// Checks an address of an upstream for ever, by the route and its place there.
async fn check<C: Clock>(
    shared: Arc<ServiceContext<C>>,
    route: Arc<str>,
    place: usize,
    health: AddressHealth,
) {
    let changed = |health: &AddressHealth| {
        let (route, address) = (Arc::clone(&route), Arc::from(health.name()));
        shared.sink.emit(&if health.is_up() {
            Event::UpstreamUp {
                route,
                place,
                address,
            }
        } else {
            Event::UpstreamDown {
                route,
                place,
                address,
            }
        });
    };
    health.watch(changed).await;
}
