//! Upstreams: the gateways of the proxy listener, as operators see them.
//!
//! ```text
//!   counts of a gateway --each 5 s--> ring of 10 minutes: | earlier           | last minute |
//!                                                             \__ is slow? __/   fails?
//! ```
//!
//! The dashboard and `top` show the last minute, and the same words for what is wrong in it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper::Clock;
use ratekeeper_core::Nanos;
use ratekeeper_gateway::{
    AddressTotals, FailedAttempt, FailureWatch, Gateway, UpstreamFailure, UpstreamTotals,
};
use serde_json::{Value, json};

use crate::clock::ServiceClock;
use crate::counter::LogGate;

/// How often the counts are read.
pub(crate) const TICK: Duration = Duration::from_secs(5);
/// Readings of a minute, and of all the time that is kept.
const MINUTE: usize = 12;
const KEPT: usize = 10 * MINUTE + 1;
/// Failed requests in a hundred from which an upstream fails.
const FAILS_PERCENT: u64 = 5;
/// An upstream is slow if half of its responses take longer than this, ..
const SLOW: Nanos = Nanos::SECOND;
/// .. or longer than this, and this many times longer than before.
const MAY_BE_SLOW: Nanos = Nanos::from_millis(100);
const SLOWER: u64 = 3;
/// Names of the classes of responses.
pub(crate) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// An upstream and the name of its route.
#[derive(Clone, Debug)]
pub(crate) struct NamedUpstream {
    /// Empty for `upstream` itself.
    pub(crate) route: Box<str>,
    pub(crate) gateway: Arc<Gateway>,
}

/// The upstreams of the proxy listener.
#[derive(Debug, Default)]
pub(crate) struct WatchedUpstreams {
    all: ArcSwap<Vec<NamedUpstream>>,
    /// Readings by route, the newest last.
    readings: Mutex<BTreeMap<Box<str>, VecDeque<Reading>>>,
}

/// The counts of an upstream at a moment.
#[derive(Clone, Debug, Default)]
struct Reading {
    totals: UpstreamTotals,
    /// Failed attempts by address.
    failed: Vec<u64>,
}

/// The last minute of an upstream.
#[derive(Debug)]
struct LastMinute {
    now: UpstreamTotals,
    earlier: UpstreamTotals,
    /// Failed attempts by address.
    failed: Vec<u64>,
    addresses: Vec<AddressTotals>,
}

impl WatchedUpstreams {
    /// Shows these upstreams.
    pub(crate) fn install(&self, upstreams: Vec<NamedUpstream>) {
        self.all.store(Arc::new(upstreams));
    }

    pub(crate) fn all(&self) -> Arc<Vec<NamedUpstream>> {
        self.all.load_full()
    }

    /// Reads the counts; called each [`TICK`].
    pub(crate) fn read(&self) {
        let all = self.all();
        let mut readings = self.readings.lock();
        readings.retain(|route, _| all.iter().any(|it| it.route == *route));
        for NamedUpstream { route, gateway } in &*all {
            let ring = readings.entry(route.clone()).or_default();
            if ring.len() == KEPT {
                ring.pop_front();
            }
            ring.push_back(Reading::of(gateway.totals(), &gateway.addresses()));
        }
    }

    /// Returns the last minute of each upstream.
    pub(crate) fn describe(&self) -> Vec<Value> {
        let all = self.all();
        let each = all.iter().map(|upstream| {
            let minute = self.last_minute(upstream);
            minute.describe(upstream)
        });
        each.collect()
    }

    /// Returns the faults of the last minute, in words.
    pub(crate) fn faults(&self) -> Vec<String> {
        let all = self.all();
        let each = all.iter().flat_map(|upstream| {
            let faults = self.last_minute(upstream).faults();
            let name = upstream.name();
            faults
                .into_iter()
                .map(move |fault| format!("{name}: {fault}"))
        });
        each.collect()
    }

    fn last_minute(&self, upstream: &NamedUpstream) -> LastMinute {
        let readings = self.readings.lock();
        let addresses = upstream.gateway.addresses();
        let now = Reading::of(upstream.gateway.totals(), &addresses);
        let (first, before) = match readings.get(&upstream.route) {
            Some(ring) if !ring.is_empty() => (
                ring[0].clone(),
                ring[ring.len().saturating_sub(MINUTE)].clone(),
            ),
            _ => <_>::default(),
        };
        let failed = now.failed.iter().enumerate().map(|(index, count)| {
            let earlier = before.failed.get(index).copied().unwrap_or_default();
            count.saturating_sub(earlier)
        });
        LastMinute {
            now: now.totals.since(&before.totals),
            earlier: before.totals.since(&first.totals),
            failed: failed.collect(),
            addresses,
        }
    }
}

impl NamedUpstream {
    /// Returns its name for operators.
    fn name(&self) -> String {
        if self.route.is_empty() {
            return "upstream".to_owned();
        }
        format!("upstream of route {}", self.route)
    }
}

impl Reading {
    fn of(totals: UpstreamTotals, addresses: &[AddressTotals]) -> Self {
        let failed = addresses.iter().map(AddressTotals::failed);
        Self {
            totals,
            failed: failed.collect(),
        }
    }
}

impl LastMinute {
    /// Returns the failures other than our own shedding, with the responses that say so.
    fn failed(&self) -> u64 {
        let all: u64 = self.now.failures.iter().sum();
        all - self.shed() + self.now.responses[4]
    }

    /// Returns the number of requests that were sent, or were to be sent.
    fn ended(&self) -> u64 {
        self.now.responses[..4].iter().sum::<u64>() + self.failed()
    }

    fn shed(&self) -> u64 {
        let shed = self.kinds().filter(|(kind, _)| kind.is_shed());
        shed.map(|(_, count)| count).sum()
    }

    fn kinds(&self) -> impl Iterator<Item = (UpstreamFailure, u64)> {
        let kinds = UpstreamFailure::ALL.into_iter().zip(self.now.failures);
        kinds.filter(|(_, count)| *count > 0)
    }

    /// Returns what is wrong, in words.
    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let (failed, ended, shed) = (self.failed(), self.ended(), self.shed());
        if failed > 0 && failed * 100 >= ended * FAILS_PERCENT {
            let percent = failed * 100 / ended;
            let kinds = self.kinds().filter(|(kind, _)| !kind.is_shed());
            let kinds = kinds.map(|(kind, count)| (kind.name(), count));
            let answered = Some(("5xx", self.now.responses[4])).filter(|(_, count)| *count > 0);
            let causes = kinds.chain(answered);
            let causes = causes.map(|(kind, count)| format!("{count} {kind}"));
            let causes = causes.collect::<Vec<_>>().join(", ");
            faults.push(format!("{percent} % of {ended} requests failed ({causes})"));
        }
        for (address, failed) in self.addresses.iter().zip(&self.failed) {
            if address.is_out {
                faults.push(format!("{} is left out", address.name));
            } else if *failed > 0 && self.addresses.len() > 1 {
                faults.push(format!("{failed} attempts failed at {}", address.name));
            }
        }
        faults.extend(self.slow());
        if shed > 0 {
            faults.push(format!("{shed} requests were shed by adaptive_concurrency"));
        }
        faults
    }

    /// Returns how much slower than before it is, if it is slow.
    fn slow(&self) -> Option<String> {
        let (now, earlier) = (self.now.within(50)?, self.earlier.within(50));
        let is_slower = |earlier: Nanos| now.as_nanos() / SLOWER > earlier.as_nanos();
        let is_slow = now > SLOW || (now > MAY_BE_SLOW && earlier.is_some_and(is_slower));
        let before = earlier.map_or_else(String::new, |time| format!(", {} before", words(time)));
        is_slow.then(|| format!("slow: half of the responses within {}{before}", words(now)))
    }

    fn describe(&self, upstream: &NamedUpstream) -> Value {
        let addresses = self.addresses.iter().zip(&self.failed);
        let addresses = addresses.map(|(address, failed)| {
            json!({
                "address": address.name,
                "up": !address.is_out,
                "connections": address.connections,
                "failed": failed,
            })
        });
        let millis = |percent| match self.now.within(percent) {
            Some(Nanos::MAX) | None => Value::Null,
            Some(time) => json!(time.as_millis_ceil()),
        };
        let classes = CLASSES.iter().zip(self.now.responses);
        let failures = self.kinds().map(|(kind, count)| (kind.name(), count));
        json!({
            "name": upstream.name(),
            "route": &*upstream.route,
            "faults": self.faults(),
            "requests": self.ended(),
            "failed": self.failed(),
            "shed": self.shed(),
            "responses": classes.collect::<BTreeMap<_, _>>(),
            "failures": failures.collect::<BTreeMap<_, _>>(),
            "left": self.now.left,
            "half_within_ms": millis(50),
            "most_within_ms": millis(99),
            "in_flight": upstream.gateway.in_flight(),
            "sent_bytes": self.now.bytes[0],
            "received_bytes": self.now.bytes[1],
            "addresses": addresses.collect::<Vec<_>>(),
        })
    }
}

/// Returns a bound of times in words.
fn words(bound: Nanos) -> String {
    match bound {
        Nanos::MAX => "more than 30 s".to_owned(),
        _ => format!("{} ms", bound.as_millis_ceil()),
    }
}

/// Logs the failed attempts at the addresses of a route: of each kind at each address the first,
/// and then one a second at most.
#[derive(Debug)]
struct RouteWatch {
    route: Box<str>,
    clock: ServiceClock,
    /// By place, from 0: requests that were sent to no address.
    gates: Vec<[LogGate; UpstreamFailure::ALL.len()]>,
}

/// Returns the maker of watches, by the route and its number of addresses.
pub(crate) fn watch(clock: &ServiceClock) -> impl Fn(&str, usize) -> Arc<dyn FailureWatch> {
    move |route, addresses| {
        Arc::new(RouteWatch {
            route: route.into(),
            clock: clock.clone(),
            gates: (0..=addresses).map(|_| <_>::default()).collect(),
        })
    }
}

impl FailureWatch for RouteWatch {
    fn failed(&self, attempt: &FailedAttempt<'_>) {
        let kind = attempt.failure;
        let gate = self
            .gates
            .get(attempt.place)
            .map(|gates| &gates[kind as usize]);
        let now = self.clock.now();
        let Some(suppressed) = gate.and_then(|gate| gate.opens(now)) else {
            return;
        };
        tracing::warn!(
            event = "upstream.failed",
            route = &*self.route,
            address = attempt.address,
            kind = kind.name(),
            reason = attempt.reason,
            request_id = attempt.request_id.to_str().ok(),
            suppressed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(index: usize) -> UpstreamTotals {
        let mut totals = UpstreamTotals::default();
        totals.head[index] = 9;
        totals.responses[1] = 9;
        totals
    }

    fn faults(now: UpstreamTotals, earlier: UpstreamTotals) -> Vec<String> {
        let minute = LastMinute {
            now,
            earlier,
            failed: Vec::new(),
            addresses: Vec::new(),
        };
        minute.faults()
    }

    #[test]
    fn an_upstream_is_slow_by_itself_or_beside_its_past() {
        for (now, earlier, expected) in [
            (1, Some(1), None),
            (5, Some(4), None), // not three times longer
            (4, Some(0), None), // at most 100 ms
            (5, None, None),
            (
                5,
                Some(2),
                Some("slow: half of the responses within 250 ms, 25 ms before"),
            ),
            (8, None, Some("slow: half of the responses within 2500 ms")),
            (
                12,
                Some(12),
                Some("slow: half of the responses within more than 30 s, more than 30 s before"),
            ),
        ] {
            let found = faults(head(now), earlier.map(head).unwrap_or_default());
            assert_eq!(
                found.first().map(String::as_str),
                expected,
                "{now} {earlier:?}"
            );
        }
    }

    #[test]
    fn an_upstream_fails_by_the_share_of_failures_without_what_we_shed() {
        let mut totals = UpstreamTotals {
            responses: [0, 96, 0, 0, 2],
            ..UpstreamTotals::default()
        };
        totals.failures[UpstreamFailure::Busy as usize] = 50;
        let shed = "50 requests were shed by adaptive_concurrency";
        assert_eq!(faults(totals.clone(), UpstreamTotals::default()), [shed]);
        totals.failures[UpstreamFailure::Reset as usize] = 10;
        let failed = "11 % of 108 requests failed (10 reset, 2 5xx)";
        assert_eq!(faults(totals, UpstreamTotals::default()), [failed, shed]);
    }
}
