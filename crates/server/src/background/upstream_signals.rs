//! Upstream signals: the latency and the errors of upstreams, for elastic limits, read once a
//! second.
//!
//! A signal has no level while the upstream did not respond in the last 10 s, so the limit is not
//! elastic.

use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_gateway::RecentLevels;
use ratekeeper_policy::{UpstreamMeasure, WallTime, upstream_signal};

use crate::context::ServiceContext;
use crate::observe::upstreams::NamedUpstream;

/// How often they are read.
pub(super) const READ: Duration = Duration::from_secs(1);
/// How long a reading counts, if no other follows.
const LASTS: Nanos = Nanos::from_secs(3);

/// Sets the signals.
pub(super) fn read(shared: &ServiceContext) {
    let keeper = &shared.keeper;
    let upstreams = shared.observers.metrics.process.upstreams.all();
    let wall = WallTime::new(keeper.wall_origin(), shared.now());
    for signal in keeper.policy().signals() {
        let Some((route, measure)) = upstream_signal(signal.name()) else {
            continue;
        };
        match level(&upstreams, route, measure) {
            Some(level) => signal.set(level, wall, LASTS),
            None => signal.clear(),
        }
    }
}

/// Returns a level, in parts per million or microseconds; `None` if there is no such upstream, or
/// it did not respond.
fn level(upstreams: &[NamedUpstream], route: &str, measure: UpstreamMeasure) -> Option<u32> {
    let upstream = upstreams.iter().find(|it| *it.route == *route)?;
    let RecentLevels {
        latency,
        failed_ppm,
    } = upstream.gateway.recent().levels();
    match measure {
        UpstreamMeasure::Errors => failed_ppm,
        UpstreamMeasure::Latency => latency.map(|latency| {
            // Up, so that no level is taken for a lower one.
            u32::try_from(latency.as_nanos().div_ceil(1_000)).unwrap_or(u32::MAX)
        }),
    }
}
