//! The state folder of a real service: a restart keeps all usage, a crash that of the last snapshot.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use crate::harness::clock;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::Visitor;

/// A period of many days: nothing is refilled during the test.
const LIMITS: &str = r#"
[store.memory]
state = "state"
state_every = "1s"

[[limit]]
name = "month"
key = ["attr:user"]
limit = "8/100d"

[[limit]]
name = "daily"
key = ["attr:user"]
limit = "8/100d"
algorithm = "fixed-window"
"#;
const SAVED_WITHIN: Duration = Duration::from_secs(30);

/// Returns how many of `times` requests pass.
fn ask(service: &Service, times: usize) -> usize {
    let body = json!({ "attributes": { "user": "ada" } }).to_string();
    let ask = || Visitor::at(1).post_json(service.http(), "/v1/check", &body);
    (0..times).filter(|_| ask().status == 200).count()
}

fn saves(service: &Service) -> f64 {
    service.metric("ratekeeper_state_saves_total{result=\"ok\"}")
}

/// Waits for a snapshot that began after this call.
fn await_snapshot(service: &Service) {
    let before = saves(service);
    let saved = clock::poll("two snapshots", SAVED_WITHIN, || {
        (saves(service) >= before + 2.0).then_some(())
    });
    saved.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn a_restart_keeps_usage_and_a_crash_forgives_only_the_time_since_the_last_snapshot() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = write_policy(dir.path(), LIMITS);
    let mut service = Service::start(dir.path(), &policy);
    assert_eq!(ask(&service, 3), 3);
    service.process.signal("TERM");
    service.process.end().expect("it ends");

    let mut service = Service::start(dir.path(), &policy);
    assert_eq!(ask(&service, 2), 2);
    await_snapshot(&service);
    assert!(service.metric("ratekeeper_state_bytes") > 100.0);
    let at = service.metric("ratekeeper_state_last_success_timestamp_seconds");
    assert!(at > 1_700_000_000.0, "{at}");
    service.process.crash();

    let mut service = Service::start(dir.path(), &policy);
    assert_eq!(ask(&service, 9), 3, "five of eight were used");
    service.process.signal("TERM");
    service.process.end().expect("it ends");

    let file = dir.path().join("state/counters.state");
    let mode = |path: &Path| {
        let metadata = fs::metadata(path).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!(mode(&file), 0o600, "keys are personal data");
    assert_eq!(mode(&dir.path().join("state")), 0o700);
    let mut bytes = fs::read(&file).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&file, bytes).expect("writable");
    let service = Service::start(dir.path(), &policy);
    service.process.log_with("counters.state is not used");
    assert_eq!(ask(&service, 9), 8, "as without a file");
}

#[test]
fn further_signals_end_the_waits_of_a_stop_and_lose_no_usage() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = write_policy(dir.path(), LIMITS);
    for (used, signals) in [(3, 2), (1, 4)] {
        let mut service = Service::start(dir.path(), &policy);
        assert_eq!(ask(&service, used), used);
        // Holds the stop, until `drain` and `grace` have passed.
        let mut call = TcpStream::connect(service.admin()).expect("it listens");
        call.write_all(b"PUT /v1/signals/a HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{")
            .expect("it is open");
        let asked = clock::now();
        service.process.signal("TERM");
        service.process.log_with("stopping");
        for _ in 1..signals {
            service.process.signal("TERM");
        }
        service.process.end().expect("it ends");
        assert!(asked.elapsed() < Duration::from_secs(8), "grace is 10 s");
    }
    let service = Service::start(dir.path(), &policy);
    assert_eq!(ask(&service, 9), 4, "four of eight were used");
}
