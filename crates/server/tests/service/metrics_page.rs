//! The guide's page of metrics and log events, against the program.

use std::collections::BTreeSet;
use std::path::Path;

use super::Fixture;
use super::alerts::with_secret;

const PAGE: &str = include_str!("../../../../docs/guide/metrics.md");

/// A shared store that is not there, a limit of concurrency, and a webhook: every metric is shown
/// but those below.
const POLICY: &str = r#"
version = 1
[store.redis]
url = "redis://127.0.0.1:1"
[alerts]
webhook = { url = "http://127.0.0.1:1/", secret = "file:SECRET" }
[[limit]]
name = "busy"
key = ["all"]
alert = { above = "80%", for = "2m" }
concurrency = { max = 1, lease = "1s" }
"#;

/// Shown once the store has sent its time, with files of Envoy's rate limit service, with databases
/// of `[geo]`, with `ban` of a limit, and with certificates.
const LATER: [&str; 7] = [
    "ratekeeper_bans_total",
    "ratekeeper_geo_database_built_timestamp_seconds",
    "ratekeeper_store_clock_offset_seconds",
    "ratekeeper_envoy_config_info",
    "ratekeeper_certificate_expiry_timestamp_seconds",
    "ratekeeper_certificate_reloads_total",
    "ratekeeper_tls_handshake_failures_total",
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

#[test]
fn every_log_event_is_documented() {
    let mut written = BTreeSet::new();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for name in ["server", "store", "keeper", "cli"] {
        events_in(&crates.join(name).join("src"), &mut written);
    }
    let named: BTreeSet<String> = named_in_tables()
        .into_iter()
        .filter(|name| !name.starts_with("ratekeeper_"))
        .collect();
    assert_eq!(
        written, named,
        "the events in the sources and in docs/guide/metrics.md differ"
    );
}

/// Collects the names of the events that the sources of a directory log.
fn events_in(directory: &Path, events: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            events_in(&path, events);
            continue;
        }
        if path.extension().is_none_or(|kind| kind != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let named = text.split("event = \"").skip(1);
        events.extend(named.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    }
}
