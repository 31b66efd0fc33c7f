//! The state folder: a service goes on where the last one ended, or starts without it and says so.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use ratekeeper::ManualClock;
use ratekeeper_core::{Nanos, Origin, Time};
use ratekeeper_policy::AdminWrites;
use ratekeeper_server::{Config, Door, Event, Service, StartError};
use serde_json::{Value, json};

use super::NEW_YEAR;
use super::client::Client;

const POLICY: &str = r#"
version = 1

[store.memory]
state = "state"

[[limit]]
name  = "bucket"
match = { path = "/bucket" }
key   = ["attr:user"]
limit = "10/1h"

[[limit]]
name  = "window"
match = { path = "/window" }
key   = ["attr:user"]
limit = "10/1h"
algorithm = "fixed-window"

[[limit]]
name  = "banned"
match = { path = "/banned" }
key   = ["attr:user"]
limit = "10/1h"
ban   = { after = 1, within = "1h", for = "2h" }

[[limit]]
name    = "credits"
match   = { path = "/credits" }
key     = ["attr:user"]
balance = { start = 1, max = 1000 }
"#;

const HOUR: Nanos = Nanos::from_secs(3_600);

struct Run {
    service: Service,
    notices: Arc<Mutex<Vec<String>>>,
}

impl Run {
    /// Starts a service so long after New Year, on the clock of the first process.
    fn start(directory: &Path, after: Nanos) -> Self {
        Self::try_start(directory, after).unwrap()
    }

    fn try_start(directory: &Path, after: Nanos) -> Result<Self, StartError> {
        let clock = Arc::new(ManualClock::at(Origin::from_unix_nanos(NEW_YEAR)));
        clock.set(Time::ZERO + after);
        let notices = Arc::<Mutex<Vec<String>>>::default();
        let heard = Arc::clone(&notices);
        let mut config = Config::new(directory.join("ratekeeper.toml"));
        config.watch = false;
        config.admin_writes = Some(AdminWrites::Open);
        let doors = ["http=127.0.0.1:0", "grpc=off", "admin=127.0.0.1:0"];
        let config = doors
            .iter()
            .fold(config, |config, door| config.listen(door).unwrap());
        let config = config.on_event(move |event| {
            if let Event::Notice(text) = event {
                heard.lock().unwrap().push(text.clone());
            }
        });
        let service = Service::start_with(&config, clock)?;
        Ok(Self { service, notices })
    }

    fn http(&self) -> Client {
        Client::new(self.service.address(Door::Http).unwrap())
    }

    fn admin(&self) -> Client {
        Client::new(self.service.address(Door::Admin).unwrap())
    }

    /// Returns how many of `times` requests pass.
    fn ask(&self, path: &str, times: usize) -> usize {
        let body = json!({ "request": { "path": path }, "attributes": { "user": "ada" } });
        let (mut http, body) = (self.http(), body.to_string());
        let mut admitted = || http.post("/v1/check", &body).status == 200;
        (0..times).filter(|_| admitted()).count()
    }

    fn notices(&self) -> String {
        self.notices.lock().unwrap().join("\n")
    }
}

fn directory(policy: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("ratekeeper.toml"), policy).unwrap();
    directory
}

fn grant(run: &Run) -> Value {
    let body = json!({
        "limit": "credits", "key": { "user": "ada" }, "permits": 5, "id": "invoice-7",
    });
    run.admin().post("/v1/grant", &body.to_string()).json()
}

#[test]
fn usage_bans_credits_and_the_history_outlive_the_process() {
    let directory = directory(POLICY);
    let half = Nanos::from_secs(1_800);
    let first = Run::start(directory.path(), half);
    // Requests before the first reading of the counters are not in the history.
    let day = || first.admin().get("/v1/history?limit=bucket").json();
    while day()["minutes"].is_null() {}
    assert_eq!(first.ask("/bucket", 12), 10);
    assert_eq!(first.ask("/window", 12), 10);
    assert_eq!(first.ask("/banned", 12), 10);
    assert_eq!(grant(&first)["added"], 5);
    assert_eq!(first.ask("/credits", 2), 2);
    first.service.shutdown();

    // Half an hour later: half of the bucket has refilled, and a new window has begun.
    let second = Run::start(directory.path(), HOUR);
    assert_eq!(second.notices(), "");
    assert_eq!(second.ask("/bucket", 12), 5);
    assert_eq!(second.ask("/window", 12), 10);
    assert_eq!(second.ask("/banned", 12), 0, "the ban lasts for two hours");
    assert_eq!(grant(&second)["added"], 0, "the id of a grant is known");
    assert_eq!(second.ask("/credits", 12), 4);
    let day = second.admin().get("/v1/history?limit=bucket").json();
    let minutes = day["minutes"].as_array().unwrap();
    assert_eq!(minutes[minutes.len() - 31], json!([10, 2, 0]));
    let metrics = second.admin().get("/metrics").body;
    assert!(metrics.contains("ratekeeper_state_saves_total{result=\"ok\"} 0\n"));
    assert!(metrics.contains("ratekeeper_bans_active{limit=\"banned\"} 1\n"));
    second.service.shutdown();

    // At once: a restart gives nothing.
    let third = Run::start(directory.path(), HOUR);
    assert_eq!((third.ask("/bucket", 1), third.ask("/window", 1)), (0, 0));
}

#[test]
fn the_history_of_a_limit_has_its_requests_just_after_a_reload() {
    let directory = directory(POLICY);
    let first = Run::start(directory.path(), HOUR);
    let new = POLICY.replace("name  = \"bucket\"", "name  = \"new\"");
    fs::write(directory.path().join("ratekeeper.toml"), new).unwrap();
    assert_eq!(first.admin().post("/v1/reload", "").status, 200);
    assert_eq!(first.ask("/bucket", 12), 10);
    first.service.shutdown();
    let second = Run::start(directory.path(), HOUR);
    let day = second.admin().get("/v1/history?limit=new").json();
    let minutes = &day["minutes"];
    assert!(
        minutes.as_array().unwrap().contains(&json!([10, 2, 0])),
        "{minutes}"
    );
}

/// Every byte of the file, one after the other: the damage is noticed, and the service starts as it
/// does without a file.
#[test]
fn a_damaged_file_is_kept_aside_and_gives_no_more_than_no_file() {
    let directory = directory(POLICY);
    let first = Run::start(directory.path(), HOUR);
    assert_eq!(first.ask("/bucket", 12), 10);
    first.service.shutdown();
    let state = directory.path().join("state");
    let file = state.join("counters.state");
    let good = fs::read(&file).unwrap();
    // Each start takes a while, so that a third of the bytes must do here: see `state/file.rs`.
    for at in (0..good.len()).step_by(3) {
        let mut bad = good.clone();
        bad[at] ^= 0x20;
        fs::write(&file, &bad).unwrap();
        let cold = Run::start(directory.path(), HOUR);
        assert!(cold.notices().contains("is not used"), "{at}");
        assert_eq!(cold.ask("/bucket", 12), 10, "{at}");
        assert_eq!(fs::read(state.join("counters.state.refused")).unwrap(), bad);
        cold.service.shutdown();
    }
    fs::write(&file, &good[..good.len() - 1]).unwrap();
    let cold = Run::start(directory.path(), HOUR);
    assert!(cold.notices().contains("its checksum is wrong"));
    assert_eq!(cold.ask("/bucket", 12), 10);
}

#[test]
fn a_changed_policy_carries_usage_and_names_limits_that_are_gone() {
    let directory = directory(POLICY);
    let first = Run::start(directory.path(), HOUR);
    assert_eq!(first.ask("/bucket", 10), 10);
    assert_eq!(first.ask("/window", 4), 4);
    first.service.shutdown();
    let changed = POLICY.replace("10/1h\"\nalgorithm", "20/1m\"\nalgorithm");
    let changed = changed.replace("name  = \"bucket\"", "name  = \"other\"");
    fs::write(directory.path().join("ratekeeper.toml"), changed).unwrap();
    let second = Run::start(directory.path(), HOUR);
    let notices = second.notices();
    assert!(notices.contains("no limit `bucket` any more"), "{notices}");
    assert_eq!(second.ask("/bucket", 12), 10);
    assert_eq!(second.ask("/window", 30), 16);
}

#[test]
fn a_clock_that_was_set_back_and_a_folder_in_use_are_refused() {
    let directory = directory(POLICY);
    let first = Run::start(directory.path(), HOUR);
    let again = Run::try_start(directory.path(), HOUR);
    let error = again
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(error.contains("another process uses it"), "{error}");
    first.service.shutdown();
    // This clock cannot continue the earlier one; the machine's does, and stands still instead.
    let second = Run::start(directory.path(), Nanos::ZERO);
    let notices = second.notices();
    assert!(notices.contains("of another clock"), "{notices}");
}

#[test]
fn a_state_that_is_not_saved_is_a_present_fault_until_it_is() {
    let directory = directory(&POLICY.replace(
        "state = \"state\"",
        "state = \"state\"\nstate_every = \"1s\"",
    ));
    let obstacle = directory.path().join("state/.counters.state.tmp");
    fs::create_dir_all(&obstacle).unwrap();
    let run = Run::start(directory.path(), HOUR);
    let text = "the state cannot be saved: a crash forgives the usage since the last save";
    let is_noted = || {
        let top = run.admin().get("/v1/top").json();
        top["notes"].as_array().unwrap().contains(&json!(text))
    };
    while !is_noted() {}
    fs::remove_dir(&obstacle).unwrap();
    while is_noted() {}
    let page = run.admin().get("/v1/dashboard").json();
    let changes = page["changes"].as_array().unwrap().iter();
    let texts: Vec<&str> = changes.filter_map(|it| it["text"].as_str()).collect();
    assert_eq!(texts, ["the state is saved again", text]);
}
