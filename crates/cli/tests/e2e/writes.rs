//! Calls of operators that change something: each that is let in has one line in the log.

use std::path::Path;
use std::time::Duration;

use ratekeeper_server::{ADMIN_ROUTES, HTTP_ROUTES, ListenerRoute, Right};
use serde_json::{Value, json};

use crate::harness::clock;
use crate::harness::service::Service;
use crate::harness::visitor::Visitor;

const POLICY: &str = r#"
version = 1
reveal_keys = "raw"
overrides = "overrides.csv"

[listen]
admin_writes = "open"

[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
limit = "5/1h"
ban   = { after = 9, within = "1h", for = "1h" }

[[limit]]
name    = "credits"
key     = ["attr:owner"]
missing_key = "skip"
balance = { start = 1, max = 1000 }

[[limit]]
name    = "jobs"
key     = ["all"]
match   = { path = "/jobs" }
limit   = "5/1h"
elastic = { up_to = "10/1h", while = { signal = "queue", below = "50%" } }
"#;

/// Returns true if the call is one of the route.
fn is_of(route: &ListenerRoute, method: &str, target: &str) -> bool {
    let path = target.split('?').next().unwrap_or_default();
    let start = route.path.strip_suffix('*');
    method == route.methods && start.map_or(path == route.path, |start| path.starts_with(start))
}

fn writes(routes: &[ListenerRoute]) -> impl Iterator<Item = &ListenerRoute> {
    routes.iter().filter(|route| route.right == Right::Write)
}

/// A call, at least, of each route of the admin listener that writes, with its body and the status
/// of its answer.
const CALLS: [(&str, &str, &str, u16); 11] = [
    ("POST", "/v1/reload", "", 200),
    ("POST", "/v1/reset", r#"{"attributes":{"user":"ada"}}"#, 200),
    (
        "POST",
        "/v1/refund",
        r#"{"attributes":{"user":"ada"}}"#,
        200,
    ),
    (
        "POST",
        "/v1/grant",
        r#"{"limit":"credits","key":{"owner":"ann"},"permits":5,"id":"p-1"}"#,
        200,
    ),
    (
        "PUT",
        "/v1/signals/queue",
        r#"{"value":0.4,"expires_in_ms":60000}"#,
        200,
    ),
    ("POST", "/v1/bans?limit=login&key=mallory&for=1h", "", 200),
    ("DELETE", "/v1/bans?limit=login&key=mallory", "", 200),
    (
        "PUT",
        "/v1/overrides?limit=login&key=mallory&set=9/1h",
        "",
        200,
    ),
    ("DELETE", "/v1/overrides?limit=login&key=mallory", "", 200),
    ("DELETE", "/v1/keys/login?key=mallory", "", 200),
    ("DELETE", "/v1/keys/none?key=mallory", "", 404),
];

fn start(dir: &Path, policy: &str) -> Service {
    std::fs::create_dir_all(dir).expect("the directory is writable");
    std::fs::write(dir.join("policy.toml"), policy).expect("the directory is writable");
    let overrides = "limit,key,set\n";
    std::fs::write(dir.join("overrides.csv"), overrides).expect("the directory is writable");
    Service::start_with(dir, &dir.join("policy.toml"), &["--log-format", "json"])
}

/// Returns method, path and status of each line, and that its caller is on this machine.
fn written(service: &Service) -> Vec<Value> {
    let log = service.process.log();
    let lines = log.lines().filter(|line| line.starts_with('{'));
    let lines = lines.map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let lines = lines.filter(|line| line["event"] == "admin.write");
    let facts = lines.map(|line| {
        let caller = line["caller"].as_str().expect("an address");
        assert!(caller.starts_with("127.0.0.1:"), "{caller}");
        json!([line["method"], line["path"], line["status"]])
    });
    facts.collect()
}

#[test]
fn each_write_that_is_let_in_has_a_line_without_the_key() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let open = start(&dir.path().join("open"), POLICY);
    let mut expected = Vec::new();
    for (method, target, body, status) in CALLS {
        let visitor = Visitor::at(1);
        let answer = visitor.ask_with(open.admin(), (method, target), body);
        assert_eq!(answer.status, status, "{method} {target}: {}", answer.body);
        let path = target.split('?').next();
        expected.push(json!([method, path, status]));
    }
    let state = Visitor::at(1).get(open.admin(), "/v1/dashboard").body;
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state["signals"], json!({ "queue": "40 %" }));
    for route in writes(ADMIN_ROUTES) {
        let called = CALLS.iter().any(|call| is_of(route, call.0, call.1));
        assert!(called, "{route:?} has no call here");
    }
    for path in writes(HTTP_ROUTES).map(|route| route.path) {
        let body = r#"{"attributes":{"user":"ada"}}"#;
        let answer = Visitor::at(1).ask_with(open.http(), ("POST", path), body);
        expected.push(json!(["POST", path, answer.status]));
    }
    for read in ["/metrics", "/v1/bans?limit=login", "/v1/overrides"] {
        assert_eq!(Visitor::at(1).get(open.admin(), read).status, 200, "{read}");
    }
    let all = || (written(&open).len() >= expected.len()).then_some(());
    clock::poll("the lines", Duration::from_secs(20), all)
        .unwrap_or_else(|error| panic!("{error}\n{}", open.process.log()));
    assert_eq!(written(&open), expected);
    for line in open.process.log().lines() {
        assert!(
            !line.contains("admin.write") || !line.contains("mallory"),
            "{line}"
        );
    }

    let closed = POLICY.replace("admin_writes = \"open\"", "");
    let closed = start(&dir.path().join("closed"), &closed);
    for (method, target, body, _) in CALLS {
        let answer = Visitor::at(1).ask_with(closed.admin(), (method, target), body);
        assert_eq!(answer.status, 403, "{method} {target}: {}", answer.body);
    }
    assert!(written(&closed).is_empty(), "none of them was let in");
}
