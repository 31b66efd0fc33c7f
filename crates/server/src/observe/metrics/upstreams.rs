//! Upstreams: metrics of the gateway's side towards the application.

use ratekeeper_gateway::{AddressTotals, HEAD_EDGES_MILLIS, UpstreamFailure};

use super::family::{DurationsSnapshot, MetricList};
use super::table;
use crate::observe::upstreams::{CLASSES, NamedUpstream, WatchedUpstreams};

impl WatchedUpstreams {
    pub(super) fn encode(&self, out: &mut MetricList) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        let totals = all.iter().map(|it| (&*it.route, it.gateway.totals()));
        let totals: Vec<_> = totals.collect();
        let responses = totals.iter().map(|(route, it)| (*route, it.responses));
        table::UPSTREAM_RESPONSES.rows(out, &CLASSES, responses);
        let kinds = UpstreamFailure::ALL.iter().map(|kind| kind.name());
        let kinds: Vec<_> = kinds.collect();
        let failures = totals.iter().map(|(route, it)| (*route, it.failures));
        table::UPSTREAM_ERRORS.rows(out, &kinds, failures);
        let left = totals.iter().map(|(route, totals)| ([*route], totals.left));
        table::UPSTREAM_LEFT.each(out, left);
        let mut series = table::UPSTREAM_TIME.open(out);
        for (route, totals) in &totals {
            let (edges, counts) = (HEAD_EDGES_MILLIS.map(|it| it * 1_000_000), totals.head);
            let times = DurationsSnapshot::new(edges, counts, totals.head_nanos);
            series.durations(&[route], &times);
        }
        let bytes = totals.iter().map(|(route, it)| (*route, it.bytes));
        table::UPSTREAM_BYTES.rows(out, &["sent", "received"], bytes);
        let in_flight = all.iter().map(|it| ([&*it.route], it.gateway.in_flight()));
        table::UPSTREAM_IN_FLIGHT.each(out, in_flight);
        let limits = || {
            let limit = |it: &NamedUpstream| Some(it.gateway.concurrency()?.limit().into());
            all.iter()
                .filter_map(move |it| Some(([&*it.route], limit(it)?)))
        };
        if limits().next().is_some() {
            table::UPSTREAM_LIMIT.each(out, limits());
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
        let of = |value: fn(&AddressTotals) -> u64| {
            let each = addresses.iter();
            each.map(move |(route, place, address)| ([*route, &**place], value(address)))
        };
        table::UPSTREAM_UP.each(out, of(|address| u64::from(!address.is_out)));
        table::UPSTREAM_ATTEMPTS.each(out, of(AddressTotals::failed));
        table::UPSTREAM_CONNECTIONS.each(out, of(|address| address.connections as u64));
    }
}
