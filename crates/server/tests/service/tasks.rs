//! Tasks: a panic in one ends neither the service nor, for long, the task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ratekeeper::{Clock, ManualClock, Timer};
use ratekeeper_core::{Nanos, Origin, Time};
use ratekeeper_server::{Config, Door, Service};

use super::NEW_YEAR;
use super::client::Client;

/// Panics once in the main thread of the service, when it is set.
struct Trap {
    clock: ManualClock,
    set: AtomicBool,
}

impl Clock for Trap {
    fn now(&self) -> Time {
        let main = std::thread::current().name() == Some("ratekeeper");
        assert!(!main || !self.set.swap(false, Ordering::Relaxed), "trapped");
        self.clock.now()
    }

    fn origin(&self) -> Origin {
        self.clock.origin()
    }
}

impl Timer for Trap {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        self.clock.sleep_async(span)
    }
}

const POLICY: &str = r#"
version = 1
[[limit]]
name   = "all"
key    = ["all"]
bucket = { size = 10, refill = "1/1h" }
"#;

#[test]
fn a_task_that_panics_is_restarted() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("ratekeeper.toml");
    std::fs::write(&policy, POLICY).unwrap();
    let mut config = Config::new(policy);
    config.watch = false;
    let doors = ["http=off", "grpc=off", "admin=127.0.0.1:0"];
    let config = doors
        .iter()
        .fold(config, |config, door| config.listen(door).unwrap());
    let trap = Arc::new(Trap {
        clock: ManualClock::at(Origin::from_unix_nanos(NEW_YEAR)),
        set: AtomicBool::new(false),
    });
    let service = Service::start_with(&config, Arc::clone(&trap)).unwrap();
    let mut admin = Client::new(service.address(Door::Admin).unwrap());
    assert_eq!(admin.get("/readyz").status, 200);
    for failures in 1..=2 {
        trap.set.store(true, Ordering::Relaxed);
        // The sweep is the one that reads the clock without being asked.
        while trap.set.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        while admin.get("/readyz").status != 503 {}
        let expected = format!("ratekeeper_task_failures_total {failures}\n");
        assert!(admin.get("/metrics").body.contains(&expected));
        while admin.get("/readyz").status != 200 {}
    }
    service.shutdown();
}
