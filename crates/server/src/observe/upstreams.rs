//! Upstreams: the gateways of the proxy listener, as operators see them.
//!
//! ```text
//!   counts of a gateway --each 5 s--> | last minute |: fails?
//!            '--unless it is slow--> | hour | hour | .. a day: slower than usual?
//! ```
//!
//! The dashboard and `top` show the last minute, and the same words for what is wrong in it. Times
//! of an upstream that is slow are not among the usual ones, so it stays slow for a day at most.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use ratekeeper::Clock;
use ratekeeper_core::Nanos;
use ratekeeper_gateway::{
    AddressTotals, FailureWatch, Gateway, HEAD_EDGES_MILLIS, UpstreamFailure, UpstreamTotals,
};
use serde_json::{Value, json};

use crate::clock::ServiceClock;
use crate::counter::LogGate;

/// How often the counts are read.
pub(crate) const TICK: Duration = Duration::from_secs(5);
/// Readings of a minute, and of an hour.
const MINUTE: usize = 12;
const HOUR: usize = 60 * MINUTE;
/// Hours of usual times.
const HOURS: usize = 24;
/// Failed requests in a hundred from which an upstream fails.
const FAILS_PERCENT: u64 = 5;
/// Requests in a hundred from which it is a fault that clients do not wait for a response. Higher,
/// because some clients give up any request that they no longer need.
const LEFT_PERCENT: u64 = 20;
/// An upstream is slow if half of its responses take this many times longer than half of them
/// usually do, and longer than three of four, as few do if some requests always take longer.
const SLOWER: u64 = 3;
/// Number of requests from which a share of them, or their usual time, says something.
const ENOUGH: u64 = 5;
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
    /// By route.
    readings: Mutex<BTreeMap<Box<str>, Readings>>,
}

/// Readings of one upstream.
#[derive(Debug, Default)]
struct Readings {
    count: usize,
    /// The oldest first.
    minute: VecDeque<Reading>,
    /// Times to the head while it was not slow, likewise.
    hours: VecDeque<[u64; HEAD_EDGES_MILLIS.len() + 1]>,
}

/// The counts of an upstream at a moment.
#[derive(Clone, Debug, Default)]
struct Reading {
    totals: UpstreamTotals,
    /// Failed attempts by name of the address, of which a reload may change the order.
    failed: Vec<(String, u64)>,
}

/// The last minute of an upstream.
#[derive(Debug)]
struct LastMinute {
    now: UpstreamTotals,
    /// Of the times to the head that are usual.
    usual: UpstreamTotals,
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
            let readings = readings.entry(route.clone()).or_default();
            readings.add(Reading::of(gateway.totals(), &gateway.addresses()));
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
        let readings = readings.get(&upstream.route);
        let before = readings.and_then(|it| it.minute.front().cloned());
        let before = before.unwrap_or_default();
        LastMinute {
            now: now.totals.since(&before.totals),
            usual: readings.map(Readings::usual).unwrap_or_default(),
            failed: now.failed_since(&before),
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
        let failed = addresses.iter();
        let failed = failed.map(|address| (address.name.clone(), address.failed()));
        Self {
            totals,
            failed: failed.collect(),
        }
    }

    fn failed_since(&self, before: &Self) -> Vec<u64> {
        let since = |(name, count): &(String, u64)| {
            let earlier = before.failed.iter().find(|(other, _)| other == name);
            count.saturating_sub(earlier.map_or(0, |(_, count)| *count))
        };
        self.failed.iter().map(since).collect()
    }
}

impl Readings {
    fn add(&mut self, reading: Reading) {
        if self.count.is_multiple_of(HOUR) {
            self.hours.push_back(<_>::default());
            let old = self.hours.len().saturating_sub(HOURS);
            self.hours.drain(..old);
        }
        self.count += 1;
        let since =
            |before: Option<&Reading>| before.map(|before| reading.totals.since(&before.totals));
        let minute = since(self.minute.front()).unwrap_or_default();
        let is_slow = slower(&minute, &self.usual()).is_some();
        let news = since(self.minute.back()).filter(|_| !is_slow);
        if let (Some(hour), Some(news)) = (self.hours.back_mut(), news) {
            for (usual, new) in hour.iter_mut().zip(news.head) {
                *usual += new;
            }
        }
        if self.minute.len() == MINUTE {
            self.minute.pop_front();
        }
        self.minute.push_back(reading);
    }

    /// Returns the times to the head that are usual.
    fn usual(&self) -> UpstreamTotals {
        let mut usual = UpstreamTotals::default();
        for hour in &self.hours {
            for (all, count) in usual.head.iter_mut().zip(hour) {
                *all += count;
            }
        }
        usual
    }
}

/// Returns the time of half of the responses, and the usual time, if those are much slower.
fn slower(now: &UpstreamTotals, usual: &UpstreamTotals) -> Option<[Nanos; 2]> {
    let has_enough = |it: &UpstreamTotals| it.head.iter().sum::<u64>() >= ENOUGH;
    let (half, before) = (now.within(50)?, usual.within(50)?);
    let is_slower = half.as_nanos() / SLOWER > before.as_nanos() && Some(half) > usual.within(75);
    (has_enough(now) && has_enough(usual) && is_slower).then_some([half, before])
}

impl LastMinute {
    /// Returns the failures other than our own shedding, with the responses that say so.
    fn failed(&self) -> u64 {
        let all: u64 = self.now.failures.iter().sum();
        (all - self.shed() + self.now.responses[4]).min(self.ended())
    }

    /// Returns the number of requests that were sent, or were to be sent.
    fn ended(&self) -> u64 {
        let answered: u64 = self.now.responses.iter().sum();
        let unanswered = self.kinds().filter(|(kind, _)| {
            let is_body = ["body_broken", "body_timeout"].contains(&kind.name()); // after the head
            !kind.is_shed() && !is_body
        });
        answered + unanswered.map(|(_, count)| count).sum::<u64>() + self.now.left
    }

    fn shed(&self) -> u64 {
        let shed = self.kinds().filter(|(kind, _)| kind.is_shed());
        shed.map(|(_, count)| count).sum()
    }

    fn kinds(&self) -> impl Iterator<Item = (UpstreamFailure, u64)> {
        let kinds = UpstreamFailure::ALL.iter().copied();
        let kinds = kinds.zip(self.now.failures);
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
        let left = self.now.left;
        if left >= ENOUGH && left * 100 >= ended * LEFT_PERCENT {
            faults.push(format!(
                "{left} of {ended} requests were left by their clients before a response"
            ));
        }
        // An address has its part of the requests.
        let (count, others) = (self.addresses.len() as u64, self.addresses.len() > 1);
        for (address, failed) in self.addresses.iter().zip(&self.failed) {
            if address.is_out {
                faults.push(format!("{} is left out", address.name));
            } else if others && *failed > 0 && failed * count * 100 >= ended * FAILS_PERCENT {
                faults.push(format!("{failed} attempts failed at {}", address.name));
            }
        }
        if let Some([half, before]) = slower(&self.now, &self.usual) {
            let (half, before) = (words(half), words(before));
            faults.push(format!(
                "slow: half of the responses within {half}, {before} usually"
            ));
        }
        if shed > 0 {
            faults.push(format!("{shed} requests were shed by adaptive_concurrency"));
        }
        faults
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
        let millis = |bound: Option<Nanos>| match bound {
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
            "half_within_ms": millis(self.now.within(50)),
            "most_within_ms": millis(self.now.within(99)),
            "usual_half_within_ms": millis(self.usual.within(50)),
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

/// Returns the watch of a route with so many addresses. It logs the failed attempts: of each kind at
/// each address the first, and then one a second at most.
pub(crate) fn watch(clock: &ServiceClock, route: &str, addresses: usize) -> FailureWatch {
    let (clock, route) = (clock.clone(), Box::<str>::from(route));
    // By place, from 0: requests that were sent to no address.
    let gates: Vec<[LogGate; UpstreamFailure::ALL.len()]> =
        (0..=addresses).map(|_| <_>::default()).collect();
    Arc::new(move |attempt| {
        let kind = attempt.failure;
        let gate = gates.get(attempt.place);
        let gate = gate.map(|gates| &gates[kind as usize]);
        let Some(suppressed) = gate.and_then(|gate| gate.opens(clock.now())) else {
            return;
        };
        tracing::warn!(
            event = "upstream.failed",
            route = &*route,
            address = attempt.address,
            kind = kind.name(),
            reason = attempt.reason,
            request_id = attempt.request_id.to_str().ok(),
            suppressed,
        );
    })
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

    fn faults(now: UpstreamTotals, usual: UpstreamTotals) -> Vec<String> {
        let minute = LastMinute {
            now,
            usual,
            failed: Vec::new(),
            addresses: Vec::new(),
        };
        minute.faults()
    }

    #[test]
    fn an_upstream_is_slow_beside_its_usual_times() {
        let slow = "slow: half of the responses within 250 ms, 25 ms usually";
        for (now, usual, expected) in [
            (1, Some(1), None),
            (5, Some(4), None), // not three times longer
            (12, Some(12), None),
            (8, None, None), // nothing is usual yet
            (5, Some(2), Some(slow)),
        ] {
            let found = faults(head(now), usual.map(head).unwrap_or_default());
            let found = found.first().map(String::as_str);
            assert_eq!(found, expected, "{now} {usual:?}");
        }
        let (mut few, mut mixed) = (head(5), head(2));
        few.head[5] = 4;
        assert!(faults(few, head(2)).is_empty(), "too few to tell");
        mixed.head[5] = 8;
        assert!(faults(head(5), mixed).is_empty(), "some always take longer");
    }

    /// Responses of each bucket, one a second, for so many minutes; returns the minutes with a fault.
    fn slow_minutes(course: &[(usize, u32)]) -> Vec<u32> {
        let (mut readings, mut totals) = (Readings::default(), UpstreamTotals::default());
        let (mut minute, mut slow) = (0, Vec::new());
        for (bucket, minutes) in course {
            for _ in 0..*minutes {
                for _ in 0..MINUTE {
                    totals.head[*bucket] += 5;
                    readings.add(Reading::of(totals.clone(), &[]));
                }
                let now = totals.since(&readings.minute[0].totals);
                if slower(&now, &readings.usual()).is_some() {
                    slow.push(minute);
                }
                minute += 1;
            }
        }
        slow
    }

    #[test]
    fn an_upstream_stays_slow_until_it_is_fast_or_that_is_usual() {
        let (fast, slow, day) = (0, 7, 24 * 60);
        let all = |minutes: std::ops::Range<u32>| minutes.collect::<Vec<_>>();
        assert_eq!(slow_minutes(&[(slow, 90)]), [0; 0], "from the start");
        assert_eq!(
            slow_minutes(&[(fast, 5), (slow, 90), (fast, 9)]),
            all(5..95)
        );
        let for_long = slow_minutes(&[(fast, day), (slow, 2 * day)]);
        assert_eq!(for_long, all(day..day + 23 * 60));
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

    #[test]
    fn a_response_whose_body_breaks_off_is_one_request() {
        let mut totals = head(0);
        for (answered, failed, expected) in [
            (1, 9, "100 % of 9 requests failed (9 body_broken)"),
            (4, 9, "100 % of 9 requests failed (9 body_broken, 9 5xx)"),
            (1, 3, "33 % of 9 requests failed (3 body_broken)"),
        ] {
            totals.responses = [0; 5];
            totals.responses[answered] = 9;
            totals.failures[UpstreamFailure::BodyBroken as usize] = failed;
            assert_eq!(faults(totals.clone(), head(0)), [expected]);
        }
    }

    #[test]
    fn clients_that_do_not_wait_are_a_fault_by_their_share() {
        for (left, served, expected) in [
            (124, 0, Some("124 of 124 requests")),
            (4, 0, None), // too few to tell
            (20, 80, Some("20 of 100 requests")),
            (20, 81, None),
        ] {
            let totals = UpstreamTotals {
                responses: [0, served, 0, 0, 0],
                left,
                ..UpstreamTotals::default()
            };
            let found = faults(totals, UpstreamTotals::default());
            let why = "were left by their clients before a response";
            let expected = expected.map(|expected| format!("{expected} {why}"));
            assert_eq!(found, Vec::from_iter(expected), "{left} {served}");
        }
    }

    #[test]
    fn attempts_that_fail_at_an_address_are_a_fault_by_their_share() {
        let address = |name: &str| AddressTotals {
            name: name.to_owned(),
            failures: <_>::default(),
            connections: 0,
            is_out: false,
        };
        let now = UpstreamTotals {
            responses: [0, 100, 0, 0, 0],
            ..UpstreamTotals::default()
        };
        let minute = LastMinute {
            now,
            usual: UpstreamTotals::default(),
            failed: vec![2, 3],
            addresses: vec![address("a"), address("b")],
        };
        assert_eq!(minute.faults(), ["3 attempts failed at b"]);
    }

    #[test]
    fn failures_stay_with_their_address_when_a_reload_moves_it() {
        let reading = |failed: &[(&str, u64)]| Reading {
            failed: failed
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect(),
            ..Reading::default()
        };
        let before = reading(&[("a", 0), ("b", 3)]);
        let failed = |now| reading(now).failed_since(&before);
        assert_eq!(failed(&[("b", 3), ("a", 1), ("c", 2)]), [0, 1, 2]);
    }
}
