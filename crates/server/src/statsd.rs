//! statsd: sends the counts of each interval, by UDP.
//!
//! ```text
//!   ratekeeper_rls_hits_total{rule="edge.path_/api",kind="over_limit"}
//!       --> ratelimit.service.rate_limit.edge.path_/api.over_limit:3|c      as Envoy's service
//!   ratekeeper_decisions_total{limit="login",outcome="denied",mode="enforce"}
//!       --> ratekeeper.decisions.login.denied.enforce:3|c
//!   ratekeeper_connections{side="callers"}
//!       --> ratekeeper.connections.callers:17|g
//! ```
//!
//! * A counter that has not grown is left out, as that service does; a gauge is always sent.
//!   Histograms are not sent: statsd takes each value by itself.
//! * Packets hold at most 1,432 bytes, which fit into one frame of Ethernet.
//! * A packet that is lost is not sent again; its counts are missing then.
//! * Names hold printable ASCII without `:`, `|`, `@`, `#` and blanks; other bytes become `_`. A
//!   value of a label other than `rule` has no dots either, so that it is one part of the name.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_policy::StatsdSettings;
use tokio::net::UdpSocket;
use tokio::sync::{Mutex, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::admin::read_metrics;
use crate::context::ServiceContext;
use crate::metrics::{Counter, Kind, MetricValues, Sample, SampleValue};

/// Maximum number of bytes of a packet.
const MAX_PACKET_BYTES: usize = 1_432;
/// Maximum time to find the address of the server.
const RESOLVE: Duration = Duration::from_secs(5);
/// The metric that Envoy's rate limit service has too.
const RULES: &str = "rls_hits";
/// Where that service has it.
const RULES_PREFIX: &str = "ratelimit.service.rate_limit";

/// Results of packets, as in the metric.
pub(crate) const PACKET_RESULTS: [&str; 2] = ["sent", "failed"];

/// Number of packets by result.
#[derive(Debug, Default)]
pub(crate) struct StatsdCounts([Counter; PACKET_RESULTS.len()]);

impl StatsdCounts {
    /// Returns the number of packets by [`PACKET_RESULTS`].
    pub(crate) fn counts(&self) -> [u64; PACKET_RESULTS.len()] {
        self.0.each_ref().map(Counter::count)
    }
}

/// Sends counts to a server.
#[derive(Debug)]
pub(crate) struct Statsd {
    settings: StatsdSettings,
    /// The counters by name, when they were last sent.
    sent: Mutex<HashMap<String, u64>>,
    pub(crate) counts: Arc<StatsdCounts>,
}

impl Statsd {
    pub(crate) fn new(settings: &StatsdSettings) -> Self {
        Self {
            settings: settings.clone(),
            sent: Mutex::default(),
            counts: Arc::default(),
        }
    }

    /// Sends counts until `closing` is true, and once more then.
    pub(crate) async fn run<C: Clock + 'static>(
        self: Arc<Self>,
        shared: Arc<ServiceContext<C>>,
        mut closing: watch::Receiver<bool>,
    ) {
        let mut tick = interval(self.settings.interval.into());
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tick.tick().await; // the first comes at once
        loop {
            let is_last = tokio::select! {
                _ = tick.tick() => false,
                // An error: the service has ended. Its value holds a lock, so it is dropped here.
                () = async { drop(closing.wait_for(|closing| *closing).await) } => true,
            };
            let read = Arc::clone(&shared);
            // On a thread of its own, as a scrape. An error: it panicked, which is logged.
            if let Ok(metrics) =
                tokio::task::spawn_blocking(move || read_metrics(&read).list()).await
            {
                self.send(&metrics).await;
            }
            if is_last {
                return;
            }
        }
    }

    async fn send(&self, metrics: &[MetricValues]) {
        let lines = {
            let mut sent = self.sent.lock().await;
            lines(metrics, &self.settings.prefix, &mut sent)
        };
        let (packets, too_long) = packets(&lines);
        let [delivered, failed] = &self.counts.0;
        failed.add(too_long);
        let socket = connect(&self.settings.address).await;
        for packet in &packets {
            let result = match &socket {
                Some(socket) => socket.send(packet.as_bytes()).await.is_ok(),
                None => false,
            };
            if result { delivered } else { failed }.add(1);
        }
    }
}

/// Returns a socket to the server, whose name is resolved each time, because it may move.
async fn connect(address: &str) -> Option<UdpSocket> {
    let found = timeout(RESOLVE, tokio::net::lookup_host(address)).await;
    let found: Vec<SocketAddr> = found.ok()?.ok()?.collect();
    // `localhost` is both, and the servers of this protocol mostly listen on IPv4 alone.
    let to = found.iter().find(|to| to.is_ipv4()).or(found.first())?;
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        ([0_u16; 8], 0).into()
    };
    let socket = UdpSocket::bind(any).await.ok()?;
    socket.connect(*to).await.ok()?;
    Some(socket)
}

/// Returns the lines of the values that have changed since `sent`, which becomes the present state.
fn lines(metrics: &[MetricValues], prefix: &str, sent: &mut HashMap<String, u64>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut seen = HashMap::with_capacity(sent.len());
    let each = metrics
        .iter()
        .flat_map(|it| it.samples.iter().map(move |sample| (it, sample)));
    for (metric, sample) in each {
        let mut line = name(prefix, metric, sample);
        match (metric.family.kind, &sample.value) {
            (Kind::Counter, SampleValue::Count(count)) => {
                let last = sent.get(&line).copied().unwrap_or(0);
                seen.insert(line.clone(), *count);
                // A counter that fell has begun anew.
                let grown = count.checked_sub(last).unwrap_or(*count);
                if grown == 0 {
                    continue;
                }
                let _ = write!(line, ":{grown}|c"); // a string takes everything
            }
            (_, SampleValue::Level(level)) => {
                let _ = write!(line, ":{level}|g");
            }
            (_, SampleValue::Number(number)) => {
                if *number < 0.0 {
                    lines.push(format!("{line}:0|g")); // a sign alone would change the last value
                }
                let _ = write!(line, ":{number}|g");
            }
            _ => continue,
        }
        lines.push(line);
    }
    *sent = seen;
    lines
}

fn name(prefix: &str, metric: &MetricValues, sample: &Sample) -> String {
    let family = metric.family;
    let mut name = prefix.to_owned();
    if family.name == RULES {
        name.push_str(RULES_PREFIX);
    } else {
        name.push_str("ratekeeper.");
        name.push_str(family.name);
    }
    for (label, value) in family.labels.iter().zip(&sample.labels) {
        name.push('.');
        name.extend(value.chars().map(|c| match c {
            '.' if *label != "rule" => '_',
            ':' | '|' | '@' | '#' => '_',
            c if c.is_ascii_graphic() => c,
            _ => '_',
        }));
    }
    name
}

/// Returns the lines in packets, and the number of lines that fit into none.
fn packets(lines: &[String]) -> (Vec<String>, u64) {
    let (mut packets, mut too_long): (Vec<String>, u64) = (Vec::new(), 0);
    for line in lines {
        if line.len() > MAX_PACKET_BYTES {
            too_long += 1;
            continue;
        }
        match packets.last_mut() {
            Some(packet) if packet.len() + 1 + line.len() <= MAX_PACKET_BYTES => {
                packet.push('\n');
                packet.push_str(line);
            }
            _ => packets.push(line.clone()),
        }
    }
    (packets, too_long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Family;

    static RULE_HITS: Family = Family {
        name: RULES,
        kind: Kind::Counter,
        labels: &["rule", "kind"],
        help: "",
    };
    static DECISIONS: Family = Family {
        name: "decisions",
        kind: Kind::Counter,
        labels: &["limit"],
        help: "",
    };
    static OFFSET: Family = Family {
        name: "offset_seconds",
        kind: Kind::Gauge,
        labels: &["store"],
        help: "",
    };

    fn values(family: &'static Family, samples: &[(&[&str], SampleValue)]) -> MetricValues {
        let sample = |(labels, value): &(&[&str], SampleValue)| Sample {
            labels: labels.iter().map(|label| Box::from(*label)).collect(),
            value: value.clone(),
        };
        MetricValues {
            family,
            samples: samples.iter().map(sample).collect(),
        }
    }

    #[test]
    fn counters_are_sent_by_what_they_grew() {
        let mut sent = HashMap::new();
        let mut of = |count| {
            let count = SampleValue::Count(count);
            let rule = values(&RULE_HITS, &[(&["edge.path_/api.v1", "over_limit"], count)]);
            lines(&[rule], "", &mut sent)
        };
        let line = |grown: u64| {
            vec![format!(
                "ratelimit.service.rate_limit.edge.path_/api.v1.over_limit:{grown}|c"
            )]
        };
        assert_eq!(of(5), line(5));
        assert!(of(5).is_empty());
        assert_eq!(of(7), line(2));
        assert_eq!(of(3), line(3), "it has begun anew");
    }

    #[test]
    fn no_value_of_a_label_breaks_a_line() {
        let one = SampleValue::Count(1);
        let metrics = [
            values(&DECISIONS, &[(&["a.b:c|d\n@#e\u{e9} f"], one.clone())]),
            values(
                &RULE_HITS,
                &[(&["d.k_x:9|g\nforged:1|c", "total_hits"], one)],
            ),
            values(&OFFSET, &[(&["redis"], SampleValue::Number(-0.25))]),
        ];
        let lines = lines(&metrics, "prod.", &mut HashMap::new());
        assert_eq!(
            lines,
            [
                "prod.ratekeeper.decisions.a_b_c_d___e__f:1|c",
                "prod.ratelimit.service.rate_limit.d.k_x_9_g_forged_1_c.total_hits:1|c",
                "prod.ratekeeper.offset_seconds.redis:0|g",
                "prod.ratekeeper.offset_seconds.redis:-0.25|g",
            ]
        );
    }

    #[test]
    fn packets_are_bounded() {
        let lines: Vec<_> = (0..100).map(|it| format!("{it:0>96}:1|c")).collect();
        let long = [
            "x".repeat(MAX_PACKET_BYTES + 1),
            "y".repeat(MAX_PACKET_BYTES),
        ];
        let lines = [&lines[..], &long].concat();
        let (packets, too_long) = packets(&lines);
        assert_eq!(too_long, 1);
        assert!(
            packets
                .iter()
                .all(|packet| packet.len() <= MAX_PACKET_BYTES)
        );
        let sent: Vec<_> = packets
            .iter()
            .flat_map(|packet| packet.split('\n'))
            .collect();
        assert_eq!(sent.len(), 101);
        assert_eq!(packets.len(), 9, "14 lines of 100 bytes each");
    }
}
