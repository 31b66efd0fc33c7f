//! Upstreams: checks their addresses until the process ends, and reports those that are left out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_gateway::AddressTotals;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Event;
use crate::context::ServiceContext;
use crate::observe::upstreams::NamedUpstream;

/// How soon a change is seen: of an address, or of the policy.
const LOOK: Duration = Duration::from_millis(100);

/// The addresses by route that were reported as left out.
type LeftOut = BTreeMap<Box<str>, Vec<String>>;

/// Checks the addresses of upstreams; those of a reloaded policy in place of those before.
pub(super) async fn check_all(shared: Arc<ServiceContext>) {
    let upstreams = &shared.observers.metrics.process.upstreams;
    let mut reported = BTreeMap::new();
    loop {
        let all = upstreams.all();
        let mut checks = JoinSet::new();
        for health in all.iter().flat_map(|it| it.gateway.checked()) {
            checks.spawn(health.watch());
        }
        reported.retain(|route, _| all.iter().any(|it| it.route == *route));
        let mut seen = vec![None; all.len()];
        while Arc::ptr_eq(&all, &upstreams.all()) {
            for (upstream, seen) in all.iter().zip(&mut seen) {
                let out = Some(upstream.gateway.left_out());
                if std::mem::replace(seen, out) != out {
                    report(&shared, upstream, &mut reported);
                }
            }
            sleep(LOOK).await;
        }
        drop(checks); // ends them
    }
}

/// Reports the addresses that a change leaves out or takes in again, and notes them in `reported`.
fn report(shared: &ServiceContext, upstream: &NamedUpstream, reported: &mut LeftOut) {
    let route: Arc<str> = Arc::from(&*upstream.route);
    let all = upstream.gateway.addresses();
    let out = all.iter().filter(|it| it.is_out).map(|it| it.name.clone());
    let before = reported.insert(upstream.route.clone(), out.collect());
    for (place, AddressTotals { name, is_out, .. }) in (1..).zip(all) {
        if before.as_ref().is_some_and(|all| all.contains(&name)) == is_out {
            continue;
        }
        let (route, address) = (Arc::clone(&route), name.into());
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
