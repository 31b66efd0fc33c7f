//! Limits that replace others, are enforced for a share of keys, have a candidate, or count in each
//! process by itself, by the real service: in memory, and by two processes that share one Redis.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::redis::Redis;
use crate::harness::say;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::{Answer, Visitor};

/// Periods of days: nothing is refilled during the test.
const LIMITS: &str = r#"
[[limit]]
name = "all"
key = ["all"]
match = { path = ["/all", "/login"] }
limit = "3/100d"

[[limit]]
name = "login"
match = { path = "/login" }
key = ["attr:user"]
missing_key = "skip"
limit = "5/100d"
replaces = ["all"]

[[limit]]
name = "rollout"
match = { path = "/rollout" }
key = ["attr:user"]
missing_key = "skip"
limit = "1/100d"
percent = 30

[[limit]]
name = "api"
match = { path = "/api" }
key = ["attr:user"]
missing_key = "skip"
limit = "6/100d"
candidate = "4/100d"

[[limit]]
name = "server-total"
match = { path = "/node" }
key = ["all"]
limit = "4/100d"
scope = "node"

[[limit]]
name = "beside"
match = { path = "/node" }
key = ["attr:user"]
missing_key = "skip"
limit = "100/100d"
"#;

fn ask(service: &Service, path: &str, user: &str) -> Answer {
    let body = json!({ "request": { "path": path }, "attributes": { "user": user } });
    Visitor::at(2).post_json(service.http(), "/v1/check", &body.to_string())
}

/// Returns the number of requests that pass, asked of the services in turn.
fn passed(services: &[Service], path: &str, user: &str) -> usize {
    let mut turns = services.iter().cycle();
    let mut passes = |_: &usize| {
        let service = turns.next().expect("a cycle has no end");
        ask(service, path, user).status == 200
    };
    (0..50).take_while(&mut passes).count()
}

/// Returns the limits of an answer.
fn limits(answer: &Answer) -> Vec<Value> {
    let told: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
    told["limits"].as_array().cloned().expect("limits")
}

fn check(services: &[Service]) {
    let first = &services[0];
    // Replaced: `login` alone is asked and charged.
    assert_eq!(passed(services, "/login", "ada"), 5);
    assert_eq!(passed(services, "/all", "ada"), 3);
    assert_eq!(limits(&ask(first, "/login", "bob")).len(), 1);

    // Enforced for the same keys in each process.
    let users: Vec<_> = (0..40).map(|number| format!("u{number}")).collect();
    let mut enforced = 0;
    for user in &users {
        assert_eq!(ask(first, "/rollout", user).status, 200);
        let each: Vec<_> = services
            .iter()
            .map(|service| ask(service, "/rollout", user))
            .collect();
        let mode = &limits(&each[0])[0]["mode"];
        enforced += usize::from(mode == "enforce");
        for answer in &each {
            let told = limits(answer);
            assert_eq!(told[0]["verdict"], "deny");
            assert_eq!(&told[0]["mode"], mode);
            assert_eq!(answer.status, if mode == "enforce" { 429 } else { 200 });
        }
    }
    assert!((4..24).contains(&enforced), "{enforced} of 40");
    let series = |limit: &str, outcome: &str, mode: &str| {
        let labels = format!("limit=\"{limit}\",outcome=\"{outcome}\",mode=\"{mode}\"");
        first.metric(&format!("ratekeeper_decisions_total{{{labels}}}"))
    };
    assert!(series("rollout", "denied", "shadow") >= 1.0);
    assert!(series("rollout", "denied", "enforce") >= 1.0);

    // Tried beside the limit: it refuses nothing, and clients are not shown it.
    for asked in 1..=6 {
        let answer = ask(first, "/api", "ada");
        assert_eq!(answer.status, 200);
        let told = limits(&answer);
        assert_eq!(told[1]["name"], "api+candidate");
        assert_eq!(told[1]["mode"], "shadow");
        assert_eq!(
            told[1]["verdict"],
            if asked <= 4 { "allow" } else { "deny" }
        );
        let policy = answer.header("ratelimit-policy").expect("the limit");
        assert!(!policy.contains("candidate"), "{policy}");
    }
    assert_eq!(ask(first, "/api", "ada").status, 429);
    assert!(series("api+candidate", "allowed", "candidate") >= 4.0);
    assert!(series("api+candidate", "denied", "candidate") >= 2.0);

    // Each process counts by itself; the limit beside it is shared, in the same act.
    assert_eq!(passed(services, "/node", "ada"), 4 * services.len());
    for service in services {
        assert_eq!(ask(service, "/node", "ada").status, 429);
    }
    let beside = &limits(&ask(first, "/node", "ada"))[1];
    assert_eq!(beside["name"], "beside");
    assert_eq!(beside["remaining"], 100 - 4 * services.len());

    let listed = Visitor::at(1).get(first.admin(), "/v1/limits").body;
    for written in [
        r#""candidate":"api+candidate""#,
        r#""percent":30"#,
        r#""replaces":["all"]"#,
        r#""scope":"node""#,
    ] {
        assert!(listed.contains(written), "{written} in {listed}");
    }
}

fn start(dir: &Path, name: &str, head: &str) -> Service {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).expect("the test's directory is writable");
    let policy = write_policy(&dir, &format!("{head}\n{LIMITS}"));
    Service::start(&dir, &policy)
}

#[test]
fn trials_of_one_process() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    check(&[start(dir.path(), "alone", "")]);
}

#[test]
fn trials_of_two_processes_that_share_a_store() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        say("skipped: redis-server is not installed");
        return;
    };
    let head = |node: &str| {
        let url = redis.url();
        format!("[store.redis]\nurl = \"{url}\"\ndeadline = \"5s\"\n{node}")
    };
    let services = [
        start(dir.path(), "one", &head("node = \"edge-1\"")),
        start(dir.path(), "two", &head("")),
    ];
    check(&services);
    assert_eq!(
        redis.query(&["EXISTS", "rk:{server-total&edge-1}"]).trim(),
        "1"
    );

    // Under its name the limit continues after a restart, without one it begins anew.
    drop(services);
    let first = start(dir.path(), "one", &head("node = \"edge-1\""));
    assert_eq!(ask(&first, "/node", "ada").status, 429);
    let second = start(dir.path(), "two", &head(""));
    assert_eq!(passed(&[second], "/node", "ada"), 4);
}
