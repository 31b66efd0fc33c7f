//! Upstreams: metrics of the gateway's side towards the application.

use ratekeeper_core::Nanos;
use ratekeeper_gateway::{HEAD_EDGES, UpstreamFailure, UpstreamTotals};

use super::family::{DurationsSnapshot, MetricList, seconds};
use super::table;
use crate::observe::upstreams::{CLASSES, WatchedUpstreams};

impl WatchedUpstreams {
    pub(super) fn encode(&self, out: &mut MetricList) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        let totals = all.iter().map(|it| (&*it.route, it.gateway.totals()));
        let totals: Vec<_> = totals.collect();
        let mut series = table::UPSTREAM_RESPONSES.open(out);
        for (route, totals) in &totals {
            for (class, count) in CLASSES.iter().zip(totals.responses) {
                series.count(&[route, class], count);
            }
        }
        let mut series = table::UPSTREAM_ERRORS.open(out);
        for (route, totals) in &totals {
            for (kind, count) in UpstreamFailure::ALL.iter().zip(totals.failures) {
                series.count(&[route, kind.name()], count);
            }
        }
        let mut series = table::UPSTREAM_LEFT.open(out);
        for (route, totals) in &totals {
            series.count(&[route], totals.left);
        }
        let mut series = table::UPSTREAM_TIME.open(out);
        for (route, totals) in &totals {
            series.durations(&[route], &head(totals));
        }
        let mut series = table::UPSTREAM_BYTES.open(out);
        for (route, totals) in &totals {
            for (direction, count) in ["sent", "received"].iter().zip(totals.bytes) {
                series.count(&[route, direction], count);
            }
        }
        let mut series = table::UPSTREAM_IN_FLIGHT.open(out);
        for it in &*all {
            series.level(&[&it.route], it.gateway.in_flight());
        }
        let limits = all
            .iter()
            .filter_map(|it| Some((&it.route, it.gateway.concurrency()?)));
        let limits: Vec<_> = limits.collect();
        if !limits.is_empty() {
            let mut series = table::UPSTREAM_LIMIT.open(out);
            for (route, limit) in limits {
                series.level(&[route], u64::from(limit.limit()));
            }
        }
        self.encode_addresses(out);
    }

    fn encode_addresses(&self, out: &mut MetricList) {
        let all = self.all();
        let addresses = all.iter().flat_map(|it| {
            let numbered = (1_usize..).zip(it.gateway.addresses());
            numbered.map(|(place, address)| (&*it.route, place.to_string(), address))
        });
        let addresses: Vec<_> = addresses.collect();
        let mut series = table::UPSTREAM_UP.open(out);
        for (route, place, address) in &addresses {
            series.level(&[route, place], u64::from(!address.is_out));
        }
        let mut series = table::UPSTREAM_ATTEMPTS.open(out);
        for (route, place, address) in &addresses {
            series.count(&[route, place], address.failed());
        }
        let mut series = table::UPSTREAM_CONNECTIONS.open(out);
        for (route, place, address) in &addresses {
            series.level(&[route, place], address.connections as u64);
        }
    }
}

/// Returns the times to the heads of responses.
fn head(totals: &UpstreamTotals) -> DurationsSnapshot {
    let edges = HEAD_EDGES.iter().copied().map(Nanos::as_nanos).map(seconds);
    let edges = edges.chain([f64::INFINITY]);
    DurationsSnapshot {
        buckets: edges.zip(totals.head).collect(),
        sum_seconds: seconds(totals.head_nanos),
        count: totals.head.iter().sum(),
    }
}
