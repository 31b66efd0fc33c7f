//! The grpc door as Envoy meets it: over HTTP/2, whole answers, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bounds;
mod client;
mod conformance;
mod files;
mod health;
mod json;
#[path = "../../../store/tests/redis/ports.rs"]
mod ports;
mod rls;
mod stop;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use ratekeeper::ManualClock;
use ratekeeper_core::Origin;
use ratekeeper_server::{Config, Door, Event, Service, StartError};
use tempfile::TempDir;

/// Maximum wait for an event that must happen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// 2026-01-01 00:00 UTC.
const NEW_YEAR: u64 = 1_767_225_600_000_000_000;

/// A service of its own for one test.
struct Fixture {
    service: Service,
    clock: Arc<ManualClock>,
    events: Receiver<Event>,
    directory: TempDir,
}

impl Fixture {
    fn new(policy: &str) -> Self {
        Self::in_directory(policy, tempfile::tempdir().unwrap())
    }

    /// Starts a service with files beside the policy.
    fn in_directory(policy: &str, directory: TempDir) -> Self {
        let clock = Arc::new(ManualClock::at(Origin::from_unix_nanos(NEW_YEAR)));
        Self::start(policy, directory, clock).unwrap()
    }

    /// Starts a service with files beside the policy, which may be refused, and a time of its own.
    fn start(
        policy: &str,
        directory: TempDir,
        clock: Arc<ManualClock>,
    ) -> Result<Self, StartError> {
        let path = directory.path().join("ratekeeper.toml");
        std::fs::write(&path, policy).unwrap();
        let (sink, events) = channel();
        let mut config = Config::new(path);
        config.watch = false;
        config.admin_writes = Some(ratekeeper_policy::AdminWrites::Open);
        let config = ["http", "grpc", "admin"]
            .iter()
            .fold(config, |config, door| {
                config.listen(&format!("{door}=127.0.0.1:0")).unwrap()
            });
        let config = config.on_event(move |event| {
            let _ = sink.send(event.clone()); // the test may be over
        });
        let service = Service::start_with(&config, Arc::clone(&clock))?;
        Ok(Self {
            service,
            clock,
            events,
            directory,
        })
    }

    fn grpc(&self) -> SocketAddr {
        self.service.address(Door::Grpc).unwrap()
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

/// Runs a test to its end, within [`PATIENCE`].
fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let test = async { tokio::time::timeout(PATIENCE, test).await };
    runtime.block_on(test).expect("the call took too long")
}
