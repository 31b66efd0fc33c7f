//! A service in this process, whose clock and wall clock the test sets.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ratekeeper::{Clock, ManualClock, Timer};
use ratekeeper_core::{Nanos, Origin, Time};
use ratekeeper_server::{Config, Door, Event, Service};
use serde_json::json;

use super::clock::poll;
use super::staged::Scrape;
use super::visitor::{Answer, Caller, Visitor};

const PATIENCE: Duration = Duration::from_secs(30);
/// 2026-01-01 00:00 UTC.
pub(crate) const NEW_YEAR: u64 = 1_767_225_600;

/// The admin token that this test presents; a service without one takes any.
pub(crate) const TOKEN: &str = "open-sesame";

/// A clock that stands still, with a wall clock that the test sets.
pub(crate) struct SetClock {
    pub(crate) clock: ManualClock,
    pub(crate) ahead_seconds: AtomicI64,
    /// Nanoseconds that pass at each look.
    pub(crate) stride: AtomicU64,
    /// Makes the next look of a task panic.
    pub(crate) trap: AtomicBool,
}

impl Clock for SetClock {
    fn now(&self) -> Time {
        let is_main = std::thread::current().name() == Some("ratekeeper");
        let panics = is_main && self.trap.swap(false, Ordering::Relaxed);
        assert!(!panics, "the trap of this test");
        let stride = self.stride.load(Ordering::Relaxed);
        self.clock.advance(Nanos::from_nanos(stride));
        self.clock.now()
    }

    fn origin(&self) -> Origin {
        self.clock.origin()
    }

    fn wall(&self) -> u64 {
        let ahead = self.ahead_seconds.load(Ordering::Relaxed) * 1_000_000_000;
        let unix = self.origin().unix_nanos(self.clock.now());
        unix.saturating_add_signed(ahead)
    }
}

impl Timer for SetClock {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        self.clock.sleep_async(span)
    }
}

pub(crate) struct InProcess {
    service: Service,
    pub(crate) clock: Arc<SetClock>,
    events: Receiver<Event>,
    dir: tempfile::TempDir,
}

impl InProcess {
    /// Starts with a policy; the HTTP and the admin listener are open.
    pub(crate) fn start(policy: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory of its own");
        Self::start_with(dir, policy, |config| config)
    }

    /// Starts with a policy in a directory, and a changed configuration.
    pub(crate) fn start_with(
        dir: tempfile::TempDir,
        policy: &str,
        change: impl FnOnce(Config) -> Config,
    ) -> Self {
        let path = dir.path().join("ratekeeper.toml");
        std::fs::write(&path, policy).expect("it is writable");
        let (sink, events) = channel();
        let mut config = Config::new(path);
        config.watch = false;
        config.admin_writes = Some(ratekeeper_policy::AdminWrites::Open);
        let mut doors = vec!["http=127.0.0.1:0", "grpc=off", "admin=127.0.0.1:0"];
        if policy.lines().any(|line| line == "[listen.proxy]") {
            doors.push("proxy=127.0.0.1:0"); // its port may be in use on this machine
        }
        let config = doors.iter().fold(config, |config, door| {
            config.listen(door).expect("it is right")
        });
        let config = config.on_event(move |event| {
            let _ = sink.send(event.clone()); // the test may be over
        });
        let clock = Arc::new(SetClock {
            clock: ManualClock::at(Origin::from_unix_nanos(NEW_YEAR * 1_000_000_000)),
            ahead_seconds: AtomicI64::default(),
            stride: AtomicU64::default(),
            trap: AtomicBool::default(),
        });
        let service = Service::start_with(&change(config), Arc::clone(&clock)).expect("it starts");
        Self {
            service,
            clock,
            events,
            dir,
        }
    }

    pub(crate) fn door(&self, door: Door) -> SocketAddr {
        self.service.address(door).expect("it is open")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        let dir: &Path = self.dir.path();
        dir.join(name)
    }

    pub(crate) fn get(&self, target: &str) -> String {
        let presented = Visitor::at(1).with("authorization", &format!("Bearer {TOKEN}"));
        presented.get(self.door(Door::Admin), target).body
    }

    /// Posts to the HTTP listener.
    pub(crate) fn post(&self, target: &str, body: &serde_json::Value) -> Answer {
        Visitor::at(1).post_json(self.door(Door::Http), target, &body.to_string())
    }

    /// Asks once for each value of an attribute.
    pub(crate) fn ask(&self, attribute: &str, values: impl IntoIterator<Item = String>) {
        let mut caller = Caller::connect(self.door(Door::Http));
        for value in values {
            let body = json!({ "attributes": { (attribute): value } }).to_string();
            caller.post_json("/v1/check", &body);
        }
    }

    /// Asks once for each path.
    pub(crate) fn ask_paths(&self, paths: impl IntoIterator<Item = String>) {
        let mut caller = Caller::connect(self.door(Door::Http));
        for path in paths {
            let body = json!({ "request": { "path": path, "ip": "192.0.2.1" } }).to_string();
            caller.post_json("/v1/check", &body);
        }
    }

    /// Waits for an event.
    pub(crate) fn wait(&self, wanted: impl Fn(&Event) -> bool) {
        let next = || self.events.recv_timeout(PATIENCE).expect("the event comes");
        while !wanted(&next()) {}
    }

    pub(crate) fn scrape(&self) -> Scrape {
        let since = self.clock.clock.now().as_nanos() / 1_000_000_000;
        Scrape::read(&self.get("/metrics")).at(NEW_YEAR + since)
    }

    /// Waits until a scrape has a value of some series above zero; returns it.
    pub(crate) fn scrape_with(&self, series: &str) -> Scrape {
        let scrape = || Some(self.scrape()).filter(|scrape| scrape.is_above_zero(series));
        poll(series, PATIENCE, scrape).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Ends the service; returns what Prometheus sees of it then.
    pub(crate) fn end(self) -> Scrape {
        let admin = self.door(Door::Admin);
        self.service.shutdown();
        let answer = Visitor::at(1).ask(admin, "GET", "/metrics");
        assert!(answer.is_err(), "nothing listens");
        Scrape::failed()
    }
}
