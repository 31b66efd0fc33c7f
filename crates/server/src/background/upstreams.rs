//! Upstreams: checks their addresses until the process ends, and reports those that are left out.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_gateway::Gateway;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Event;
use crate::context::ServiceContext;
use crate::observe::upstreams::NamedUpstream;

/// How soon a change is seen: of an address, or of the policy.
const LOOK: Duration = Duration::from_millis(100);

/// Checks the addresses of upstreams; those of a reloaded policy in place of those before.
pub(super) async fn check_all(shared: Arc<ServiceContext>) {
    let upstreams = &shared.observers.metrics.process.upstreams;
    let mut known: Vec<(Arc<Gateway>, u64)> = Vec::new();
    loop {
        let all = upstreams.all();
        let mut checks = JoinSet::new();
        for health in all.iter().flat_map(|it| it.gateway.checked()) {
            checks.spawn(health.watch());
        }
        let reported = |it: &NamedUpstream| {
            let before = known.iter().find(|(of, _)| Arc::ptr_eq(of, &it.gateway));
            (Arc::clone(&it.gateway), before.map_or(0, |(_, out)| *out))
        };
        known = all.iter().map(reported).collect();
        while Arc::ptr_eq(&all, &upstreams.all()) {
            for (upstream, (gateway, out)) in all.iter().zip(&mut known) {
                let before = std::mem::replace(out, gateway.left_out());
                if before != *out {
                    report(&shared, upstream, [before, *out]);
                }
            }
            sleep(LOOK).await;
        }
        drop(checks); // ends them
    }
}

/// Reports the addresses that a change leaves out or takes in again; `left_out` has those before it
/// and after it, as [`Gateway::left_out`] returns them.
fn report(shared: &ServiceContext, upstream: &NamedUpstream, left_out: [u64; 2]) {
    let route: Arc<str> = Arc::from(&*upstream.route);
    for (index, address) in upstream.gateway.addresses().into_iter().enumerate() {
        let [was_out, is_out] = left_out.map(|all| all >> index & 1 == 1);
        if was_out == is_out {
            continue;
        }
        let (route, place, address) = (Arc::clone(&route), index + 1, address.name.into());
        shared.sink.emit(&if is_out {
            Event::UpstreamDown {
                route,
                place,
                address,
            }
        } else {
            Event::UpstreamUp {
                route,
                place,
                address,
            }
        });
    }
}
