//! The service as its callers meet it: over TCP, whole answers, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin;
mod alerts;
mod auth;
mod bans;
mod bounds;
mod check;
mod client;
mod connections;
mod dashboard;
mod envoy_files;
mod event_schema;
mod hold;
mod hours;
mod limit_metrics;
mod malformed;
mod metrics_page;
mod monitoring;
mod overrides;
mod panels;
mod permits;
mod promtool;
mod reload;
#[path = "../../../policy/tests/reviewed/mod.rs"]
mod reviewed;
mod routes;
mod state;
mod stop;
mod tasks;
mod top;
mod wall_clock;
mod whatif;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ratekeeper::ManualClock;
use ratekeeper_core::Origin;
use ratekeeper_policy::AdminWrites;
use ratekeeper_server::{Config, Door, Event, Service};
use regex::Regex;
use tempfile::TempDir;

use client::Client;

/// Maximum wait for an event that must happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// 2026-01-01 00:00 UTC.
const NEW_YEAR: u64 = 1_767_225_600_000_000_000;

#[test]
fn every_reviewed_text_has_its_test() {
    reviewed::check_all("tests/service", 29);
}

/// Returns the text with a word in place of each part that differs from run to run.
fn masked(text: impl Into<String>, masks: &[(&str, &str)]) -> String {
    let mask = |text: String, (pattern, word): &(&str, &str)| {
        let pattern = Regex::new(pattern).unwrap();
        pattern.replace_all(&text, *word).into_owned()
    };
    masks.iter().fold(text.into(), mask)
}

/// A service of its own for one test.
struct Fixture {
    service: Service,
    clock: Arc<ManualClock>,
    events: Receiver<Event>,
    directory: TempDir,
}

impl Fixture {
    fn new(policy: &str) -> Self {
        Self::with(policy, |config| config)
    }

    fn with(policy: &str, change: impl FnOnce(Config) -> Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ratekeeper.toml");
        std::fs::write(&path, policy).unwrap();
        Self::at(directory, &path, change)
    }

    /// Starts the service of the policy at `path`, which lies somewhere in `directory`.
    fn at(directory: TempDir, path: &Path, change: impl FnOnce(Config) -> Config) -> Self {
        let clock = Arc::new(ManualClock::at(Origin::from_unix_nanos(NEW_YEAR)));
        let (sink, events) = channel();
        let mut config = Config::new(path);
        config.watch = false;
        config.admin_writes = Some(AdminWrites::Open);
        let config = config
            .listen("http=127.0.0.1:0")
            .unwrap()
            .listen("admin=127.0.0.1:0")
            .unwrap()
            .listen("grpc=off")
            .unwrap()
            .on_event(move |event| {
                let _ = sink.send(event.clone()); // the test may be over
            });
        let service = Service::start_with(&change(config), Arc::clone(&clock)).unwrap();
        Self {
            service,
            clock,
            events,
            directory,
        }
    }

    fn http(&self) -> Client {
        Client::new(self.service.address(Door::Http).unwrap())
    }

    fn admin(&self) -> Client {
        Client::new(self.service.address(Door::Admin).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the next event that `wanted` picks.
    fn await_event<T>(&self, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        loop {
            let event = self
                .events
                .recv_timeout(PATIENCE)
                .expect("the event did not arrive in time");
            if let Some(found) = wanted(event) {
                return found;
            }
        }
    }
}
