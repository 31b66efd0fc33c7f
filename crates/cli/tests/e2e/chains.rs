//! Soft and elastic limits, and limits that ask others, by the real service: in memory, and by two
//! processes that share one Redis.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::clock;
use crate::harness::redis::Redis;
use crate::harness::say;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::{Answer, Visitor};

/// Periods of a day: nothing is refilled during the test.
const LIMITS: &str = r#"
[[limit]]
name = "soft"
match = { path = "/soft" }
key = ["attr:user"]
missing_key = "shared"
limit = "20/100d"
soft = { extra = "10%" }

[[limit]]
name = "elastic"
match = { path = "/elastic" }
key = ["attr:user"]
missing_key = "shared"
limit = "10/100d"
elastic = { up_to = "30/100d", while = { signal = "queue", below = "70%" } }

[[limit]]
name = "idle"
match = { path = "/idle" }
key = ["attr:user"]
missing_key = "shared"
limit = "10/100d"
elastic = { up_to = "30/100d", while = { signal = "load", below = "70%" } }

[[limit]]
name = "api"
match = { path = "/api" }
key = ["attr:user"]
missing_key = "shared"
limit = "5/100d"
otherwise = ["team"]

[[limit]]
name = "team"
key = ["attr:team"]
missing_key = "skip"
limit = "7/100d"

[[limit]]
name = "tokens"
match = { path = "/tokens" }
key = ["attr:user"]
missing_key = "shared"
limit = "10/100d"
cost = { reserve = 6 }
otherwise = ["spare-tokens"]

[[limit]]
name = "spare-tokens"
key = ["attr:user"]
missing_key = "shared"
limit = "20/100d"
cost = { reserve = 6 }
"#;

fn ask(service: &Service, path: &str, user: &str) -> Answer {
    let attributes = json!({ "user": user, "team": "red" });
    let body = json!({ "request": { "path": path }, "attributes": attributes });
    Visitor::at(2).post_json(service.http(), "/v1/check", &body.to_string())
}

/// Returns the number of requests that pass, asked of the services in turn.
fn passed(services: &[Service], path: &str, user: &str) -> usize {
    let mut turns = services.iter().cycle();
    let mut passes = |_: &usize| {
        let service = turns.next().expect("a cycle has no end");
        ask(service, path, user).status == 200
    };
    (0..99).take_while(&mut passes).count()
}

/// Sets a signal of a service.
fn push(service: &Service, name: &str, body: &str) -> u16 {
    let request = Visitor::at(1);
    request.put_json(service.admin(), &format!("/v1/signals/{name}"), body)
}

fn check(services: &[Service]) {
    let first = &services[0];
    for _ in 0..20 {
        assert_eq!(ask(first, "/soft", "ada").header("x-ratekeeper-soft"), None);
    }
    let over = ask(first, "/soft", "ada");
    assert_eq!(over.status, 200);
    assert_eq!(over.header("x-ratekeeper-soft"), Some("soft"));
    let told: Value = serde_json::from_str(&over.body).expect("an answer is JSON");
    assert_eq!(told["limits"][0]["verdict"], "deny");
    assert_eq!(told["limits"][0]["covered_by"], "soft+soft");
    assert_eq!(told["limits"][1]["verdict"], "allow");
    assert_eq!(told["limits"][1]["remaining"], 1);
    assert_eq!(passed(services, "/soft", "ada"), 1);
    assert_eq!(passed(services, "/soft", "bob"), 22);
    let covered = "ratekeeper_decisions_total{limit=\"soft\",outcome=\"covered\",mode=\"enforce\"}";
    assert!(first.metric(covered) >= 1.0);

    assert_eq!(
        passed(services, "/elastic", "ada"),
        10,
        "nothing was pushed"
    );
    let low = r#"{"value": 0.5, "expires_in_ms": 60000}"#;
    let high = r#"{"value": 0.7, "expires_in_ms": 60000}"#;
    for service in services {
        assert_eq!(push(service, "queue", low), 200);
        assert_eq!(push(service, "queu", low), 404);
        assert_eq!(push(service, "load", low), 400);
        assert_eq!(
            push(service, "queue", r#"{"value": -1, "expires_in_ms": 60000}"#),
            400
        );
        assert_eq!(
            push(
                service,
                "queue",
                r#"{"value": 0, "expires_in_ms": 3600001}"#
            ),
            400
        );
        assert_eq!(push(service, "queue", "{}"), 400);
    }
    assert_eq!(passed(services, "/elastic", "ada"), 20, "and the 10 before");
    assert_eq!(passed(services, "/elastic", "bob"), 30);
    for service in services {
        assert_eq!(push(service, "queue", high), 200);
    }
    assert_eq!(passed(services, "/elastic", "eve"), 10);

    assert_eq!(
        passed(services, "/api", "ada"),
        12,
        "and the whole of the team"
    );
    let log = first.process.log_with("covered_by=\"team\" remaining=");
    let covered = log
        .lines()
        .find(|line| line.contains("decision.covered") && line.contains("\"api\""));
    assert!(
        covered.is_some_and(|line| line.contains("covered_by=\"team\" remaining=")),
        "{log}"
    );
    assert_eq!(passed(services, "/api", "bob"), 5);
    assert_eq!(
        passed(services, "/team", "bob"),
        99,
        "the team is asked by no other request"
    );
}

/// A report gives back to the limit of the chain that was charged, by whichever process.
fn check_reports(services: &[Service]) {
    let (first, last) = (&services[0], &services[services.len() - 1]);
    let asked = |service: &Service| -> Value {
        let answer = ask(service, "/tokens", "ada");
        serde_json::from_str(&answer.body).expect("an answer is JSON")
    };
    let left = |answer: &Value| {
        let limits = answer["limits"].as_array().expect("a list");
        let left = limits.iter().map(|limit| limit["remaining"].as_u64());
        left.collect::<Vec<_>>()
    };
    let (by_limit, by_spare) = (asked(first), asked(last));
    assert_eq!(left(&by_limit), [Some(4), Some(20)]);
    assert_eq!(left(&by_spare), [Some(4), Some(14)]);
    for (answer, cost) in [(&by_spare, 1), (&by_limit, 2)] {
        let report = json!({ "decision": answer["decision"], "cost": cost });
        let reported = Visitor::at(2).post_json(last.http(), "/v1/report", &report.to_string());
        assert_eq!(reported.status, 200, "{}", reported.body);
    }
    assert_eq!(left(&asked(first)), [Some(2), Some(19)]);
}

fn start(dir: &Path, name: &str, head: &str) -> Service {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).expect("the test's directory is writable");
    let open = "[listen]\nadmin_writes = \"open\"\n";
    let policy = write_policy(&dir, &format!("{open}{head}\n{LIMITS}"));
    Service::start(&dir, &policy)
}

#[test]
fn chains_of_one_process() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = start(dir.path(), "alone", "");
    check(std::slice::from_ref(&service));
    check_reports(std::slice::from_ref(&service));
    if cfg!(target_os = "linux") {
        // How high it is depends on the machine: on a busy one the limit is closed.
        let is_known = clock::poll("load", Duration::from_secs(60), || {
            let state = Visitor::at(1).get(service.admin(), "/v1/dashboard").body;
            let state: Value = serde_json::from_str(&state).expect("a state is JSON");
            state["signals"]["load"].is_string().then_some(())
        });
        assert_eq!(is_known, Ok(()), "the load is read");
    }
}

#[test]
fn chains_that_two_processes_share() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        say("skipped: redis-server is not installed");
        return;
    };
    let head = format!(
        "[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n",
        redis.url()
    );
    let services = ["one", "two"].map(|name| start(dir.path(), name, &head));
    check(&services);
    check_reports(&services);
}
