//! Limits that count values, and limits that keep a part for some requests, by the real service: in
//! memory, and by two processes that share one Redis.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::redis::Redis;
use crate::harness::say;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::{Answer, Visitor};

/// A window that begins once in a year, and a bucket that refills nothing during the test.
const LIMITS: &str = r#"
[[limit]]
name = "accounts"
match = { path = "/login" }
key = ["attr:device"]
missing_key = "shared"
limit = "3/365d"
algorithm = "fixed-window"
distinct = "attr:account"

[[limit]]
name = "all-accounts"
match = { path = "/all" }
key = ["all"]
limit = "3/365d"
algorithm = "fixed-window"
distinct = "attr:account"

[[limit]]
name = "server"
match = { path = "/server/**" }
key = ["all"]
limit = "10/100d"
priority = { last = "20%", match = { path = "/server/health" } }
"#;

fn ask(service: &Service, path: &str, account: &str) -> Answer {
    let attributes = json!({ "device": "phone", "account": account });
    let body = json!({ "request": { "path": path }, "attributes": attributes });
    Visitor::at(2).post_json(service.http(), "/v1/check", &body.to_string())
}

fn check(services: &[Service]) {
    let mut turns = services.iter().cycle();
    let mut ask = |path: &str, account: &str| {
        let service = turns.next().expect("a cycle has no end");
        ask(service, path, account)
    };
    for path in ["/login", "/all"] {
        for (account, status, left) in [
            ("ada", 200, 2),
            ("ada", 200, 2),
            ("bob", 200, 1),
            ("ada", 200, 1),
            ("cid", 200, 0),
            ("dan", 429, 0),
            ("dan", 429, 0),
            ("bob", 200, 0),
        ] {
            let answer = ask(path, account);
            assert_eq!(answer.status, status, "{path} {account}");
            let told: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
            let limits = told["limits"].as_array().expect("the limits are a list");
            assert_eq!(limits.len(), 1, "the condition is not shown: {told}");
            assert_eq!(limits[0]["remaining"], left, "{path} {account}");
        }
    }
    let mut passed = |path: &str| {
        (0..99)
            .take_while(|_| ask(path, "ada").status == 200)
            .count()
    };
    assert_eq!(passed("/server/page"), 8);
    assert_eq!(passed("/server/health"), 2);
    let shed = ask("/server/page", "ada");
    assert_eq!(shed.status, 429);
    assert!(shed.header("retry-after").is_some());
}

fn start(dir: &Path, name: &str, head: &str) -> Service {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).expect("the test's directory is writable");
    let policy = write_policy(&dir, &format!("{head}\n{LIMITS}"));
    Service::start(&dir, &policy)
}

#[test]
fn values_and_priority_of_one_process() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    check(&[start(dir.path(), "alone", "")]);
}

#[test]
fn values_and_priority_that_two_processes_share() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        say("skipped: redis-server is not installed");
        return;
    };
    let head = format!(
        "[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n",
        redis.url()
    );
    check(&["one", "two"].map(|name| start(dir.path(), name, &head)));
}
