//! The guide's page of metrics, against the program.

use std::collections::BTreeSet;

use super::Fixture;
use super::alerts::with_secret;

const PAGE: &str = include_str!("../../../../docs/guide/metrics.md");

/// A shared store that is not there, a folder for the state, a limit of concurrency, one with plans,
/// bans and hours, a queue, reservations, a webhook and a receiver of metrics: every metric is shown but those below.
const POLICY: &str = r#"
version = 1
[store.redis]
url = "redis://127.0.0.1:1"
[store.memory]
state = "state"
[alerts]
webhook = { url = "http://127.0.0.1:1/", secret = "file:SECRET" }
[otlp]
endpoint = "http://127.0.0.1:1"
metrics = false
[[limit]]
name = "busy"
key = ["all"]
alert = { above = "80%", for = "2m" }
concurrency = { max = 1, lease = "1s" }
[plan]
from = "attr:plan"
default = "free"
[[limit]]
name = "sold"
key = ["ip"]
limit = "10/1m"
plans = { pro = "100/1m" }
ban = { after = 3, within = "1h", for = "1h" }
active = { hours = "08:00-18:00", timezone = "UTC" }
[[limit]]
name = "paced"
key = ["ip"]
bucket = { size = 1, refill = "1/1s" }
queue = { max = 3 }
[[limit]]
name = "failures"
key = ["ip"]
limit = "10/1m"
count = { status = [401] }
"#;

/// Shown once the store has sent its time, with files of Envoy's rate limit service, with databases
/// of `[geo]`, with certificates, and with the proxy listener.
const LATER: [&str; 17] = [
    "ratekeeper_by_hand_keys",
    "ratekeeper_geo_database_built_timestamp_seconds",
    "ratekeeper_store_clock_offset_seconds",
    "ratekeeper_envoy_config_info",
    "ratekeeper_certificate_expiry_timestamp_seconds",
    "ratekeeper_certificate_reloads_total",
    "ratekeeper_tls_handshake_failures_total",
    "ratekeeper_upstream_concurrency_limit",
    "ratekeeper_upstream_up",
    "ratekeeper_upstream_responses_total",
    "ratekeeper_upstream_errors_total",
    "ratekeeper_upstream_left_total",
    "ratekeeper_upstream_response_seconds",
    "ratekeeper_upstream_body_bytes_total",
    "ratekeeper_upstream_in_flight",
    "ratekeeper_upstream_failed_attempts_total",
    "ratekeeper_upstream_connections",
];

/// Returns the names between backticks in the first cell of the rows of tables.
fn named_in_tables() -> BTreeSet<String> {
    let cells = PAGE
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = cells.flat_map(|cell| cell.split('`').step_by(2));
    let names = names.filter(|name| !name.trim().is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn every_metric_is_documented() {
    let directory = tempfile::tempdir().unwrap();
    let policy = with_secret(POLICY, directory.path());
    let fixture = Fixture::new(&policy);
    let memory =
        Fixture::new(&policy.replace("[store.redis]\nurl = \"redis://127.0.0.1:1\"\n", ""));
    let scraped = fixture.admin().get("/metrics").body + &memory.admin().get("/metrics").body;
    let types = scraped
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let mut shown: BTreeSet<String> = types
        .filter_map(|line| Some(line.split_once(' ')?.0.to_owned()))
        .collect();
    shown.extend(LATER.map(str::to_owned));
    let named = named_in_tables();
    let named: BTreeSet<String> = named
        .into_iter()
        .filter(|name| name.starts_with("ratekeeper_"))
        .collect();
    let missing: Vec<_> = shown.difference(&named).collect();
    let stale: Vec<_> = named.difference(&shown).collect();
    assert!(
        missing.is_empty(),
        "not in docs/guide/metrics.md: {missing:?}"
    );
    assert!(stale.is_empty(), "only in docs/guide/metrics.md: {stale:?}");
}
