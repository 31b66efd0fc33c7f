//! Wall clock: it is set while the service runs, and windows of the calendar follow it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ratekeeper::{Clock, ManualClock, Timer};
use ratekeeper_core::{Nanos, Origin, Time};
use ratekeeper_server::{Config, Door, Service};

use super::NEW_YEAR;
use super::client::Client;

/// A clock with a wall clock that the test sets.
struct Adjusted {
    clock: ManualClock,
    ahead_seconds: AtomicI64,
}

impl Clock for Adjusted {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn origin(&self) -> Origin {
        self.clock.origin()
    }

    fn wall(&self) -> u64 {
        let ahead = self.ahead_seconds.load(Ordering::Relaxed) * 1_000_000_000;
        self.origin()
            .unix_nanos(self.now())
            .saturating_add_signed(ahead)
    }
}

impl Timer for Adjusted {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        self.clock.sleep_async(span)
    }
}

const FILE: &str = "
domain: files
descriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 5 } }]
";

const POLICY: &str = r#"
version  = 1
timezone = "UTC"
[envoy]
config = "limits.yaml"
[[limit]]
name  = "daily"
match = { path = "/day" }
key   = ["all"]
limit = "5/day"
[[limit]]
name  = "hourly"
match = { path = "/hour" }
key   = ["all"]
limit = "5/1h"
algorithm = "fixed-window"
"#;

struct Fixture {
    clock: Arc<Adjusted>,
    http: Client,
    admin: Client,
    jumps: u32,
    _service: Service,
    _directory: tempfile::TempDir,
}

impl Fixture {
    /// Starts a service at noon of New Year's Day.
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("ratekeeper.toml");
        std::fs::write(&policy, POLICY).unwrap();
        std::fs::write(directory.path().join("limits.yaml"), FILE).unwrap();
        let mut config = Config::new(policy);
        config.watch = false;
        let doors = ["http=127.0.0.1:0", "grpc=off", "admin=127.0.0.1:0"];
        let config = doors
            .iter()
            .fold(config, |config, door| config.listen(door).unwrap());
        let clock = Arc::new(Adjusted {
            clock: ManualClock::at(Origin::from_unix_nanos(NEW_YEAR)),
            ahead_seconds: AtomicI64::new(0),
        });
        clock.clock.advance(Nanos::from_secs(12 * 3_600));
        let service = Service::start_with(&config, Arc::clone(&clock)).unwrap();
        Self {
            clock,
            http: Client::new(service.address(Door::Http).unwrap()),
            admin: Client::new(service.address(Door::Admin).unwrap()),
            jumps: 0,
            _service: service,
            _directory: directory,
        }
    }

    /// Sets the wall clock, and waits until that is noticed and the policy in force again.
    fn set(&mut self, seconds: i64) {
        self.clock
            .ahead_seconds
            .fetch_add(seconds, Ordering::Relaxed);
        self.jumps += 1;
        let jumps = format!("ratekeeper_wall_clock_jumps_total {}\n", self.jumps);
        let version = format!(r#""version":{}"#, self.jumps + 1);
        while !self.admin.get("/metrics").body.contains(&jumps) {}
        while !self.admin.get("/v1/policy").body.contains(&version) {}
    }

    /// Sends `times` requests; returns how many were admitted.
    fn ask(&mut self, path: &str, times: usize) -> usize {
        let body = format!(r#"{{"request": {{"path": "{path}"}}}}"#);
        let mut admitted = || self.http.post("/v1/check", &body).status == 200;
        (0..times).filter(|_| admitted()).count()
    }

    /// Sends `times` hits by the files; returns how many were admitted.
    fn hit(&mut self, times: usize) -> usize {
        let call = r#"{"domain": "files", "descriptors": [{"entries": [{"key": "k"}]}]}"#;
        let mut admitted = || self.http.post("/json", call).status == 200;
        (0..times).filter(|_| admitted()).count()
    }

    /// Returns the wait of a refused client, in seconds.
    fn wait(&mut self, path: &str) -> u64 {
        let body = format!(r#"{{"request": {{"path": "{path}"}}}}"#);
        let answer = self.http.post("/v1/check", &body);
        assert_eq!(answer.status, 429);
        answer.header("retry-after").unwrap().parse().unwrap()
    }
}

const HOUR: i64 = 3_600;

#[test]
fn a_clock_set_back_gives_no_second_quota() {
    let mut service = Fixture::new();
    for path in ["/day", "/hour"] {
        assert_eq!(service.ask(path, 3), 3);
    }
    service.set(-HOUR);
    for path in ["/day", "/hour"] {
        assert_eq!(service.ask(path, 5), 2, "{path}: the same quota of five");
    }
    service.set(-HOUR / 2);
    for path in ["/day", "/hour"] {
        assert_eq!(service.ask(path, 5), 0, "{path}");
    }
    assert_eq!(
        service.wait("/day"),
        13 * 3_600 + 1_800,
        "the wait ends at midnight of the wall clock"
    );
    assert_eq!(service.wait("/hour"), 1_800);
}

#[test]
fn windows_of_files_follow_the_wall_clock() {
    let mut service = Fixture::new();
    assert_eq!(service.hit(3), 3);
    service.set(-HOUR);
    assert_eq!(service.hit(9), 2, "the same quota of five");
    service.set(3 * HOUR);
    assert_eq!(service.hit(1), 0);
    // From 14:00 to midnight of the wall clock: five anew.
    service.clock.clock.advance(Nanos::from_secs(10 * 3_600));
    assert_eq!(service.hit(9), 5);
}

#[test]
fn a_clock_set_forward_ends_windows_by_the_wall_clock() {
    let mut service = Fixture::new();
    assert_eq!(service.ask("/day", 9), 5);
    assert_eq!(service.wait("/day"), 12 * 3_600);
    service.set(3 * HOUR);
    assert_eq!(service.ask("/day", 5), 0);
    assert_eq!(service.wait("/day"), 9 * 3_600);
    // Past midnight: five at most in the new day too, and five anew in the next.
    service.set(10 * HOUR);
    assert!(service.ask("/day", 9) <= 5);
    let rest = service.wait("/day");
    assert_eq!(rest, 23 * 3_600);
    service.clock.clock.advance(Nanos::from_secs(rest));
    assert_eq!(service.ask("/day", 9), 5);
}
