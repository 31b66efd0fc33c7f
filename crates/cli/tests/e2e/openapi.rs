//! `docs/openapi.yaml`: it has the routes of the service and no other, answers of the service fit
//! it, and a client that is generated from it works.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use ratekeeper_server::{ADMIN_ROUTES, Door, HTTP_ROUTES, ListenerRoute};
use serde_json::json;

use crate::harness::in_process::InProcess;
use crate::harness::process::{carried, find};
use crate::harness::visitor::Visitor;

const DOCUMENT: &str = include_str!("../../../../docs/openapi.yaml");
const PLACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.yaml");

const POLICY: &str = r#"
version = 1
overrides = "overrides.csv"

[listen]
admin_writes = "open"

[[limit]]
name  = "login"
match = { path = "/login" }
key   = ["ip"]
limit = "5/1m"
ban   = { after = 100, within = "1m", for = "1m" }

[[limit]]
name        = "in-flight"
key         = ["attr:user"]
missing_key = "skip"
concurrency = { max = 50, lease = "60s" }

[[limit]]
name   = "failures"
match  = { path = "/form" }
key    = ["ip"]
bucket = { size = 3, refill = "1/1h" }
count  = { status = [401] }

[[limit]]
name        = "credits"
key         = ["attr:tenant"]
missing_key = "skip"
balance     = { start = 100, max = 1000 }

[[limit]]
name  = "not-yet"
key   = ["ip"]
limit = "5/1m"
mode  = "off"

[[limit]]
name        = "busy"
key         = ["attr:job"]
missing_key = "skip"
limit       = "5/1m"
elastic     = { up_to = "10/1m", while = { signal = "depth", below = "50%" } }
"#;

const LOGIN: &str = r#"{"request": {"path": "/login", "ip": "192.0.2.1"}}"#;

/// Calls of the http listener, in order; `ID` is the permit or the decision of the answer before.
const CHECKS: [(&str, &str, &str); 23] = [
    ("POST", "/v1/check", r#"{"attributes": {"tenant": "ann"}}"#),
    ("POST", "/v1/check", LOGIN),
    ("POST", "/v1/peek", LOGIN),
    ("POST", "/v1/check?status=200", LOGIN),
    (
        "POST",
        "/v1/check",
        r#"{"request": {"path": "/login", "ip": "192.0.2.1"}, "cost": 5}"#,
    ),
    ("POST", "/v1/check", r#"{"reqest": {}}"#),
    (
        "POST",
        "/v1/check/batch",
        r#"{"checks": [{"request": {"path": "/login", "ip": "192.0.2.1"}}, {}]}"#,
    ),
    ("GET", "/v1/auth", ""),
    ("GET", "/v1/auth/login", ""),
    ("POST", "/v1/acquire", r#"{"attributes": {"user": "ann"}}"#),
    ("POST", "/v1/renew", r#"{"permits": ["ID"]}"#),
    ("POST", "/v1/release", r#"{"permits": ["ID"]}"#),
    (
        "POST",
        "/v1/check",
        r#"{"request": {"path": "/form", "ip": "192.0.2.1"}}"#,
    ),
    ("POST", "/v1/report", r#"{"decision": "ID", "status": 401}"#),
    ("POST", "/v1/report", r#"{"decision": "ID", "status": 401}"#),
    (
        "POST",
        "/v1/report",
        r#"{"decision": "unknown", "status": 401}"#,
    ),
    (
        "POST",
        "/json",
        r#"{"domain": "edge", "descriptors": [{"entries": [{"key": "a", "value": "b"}]}]}"#,
    ),
    ("POST", "/json", r#"{"domain": "edge"}"#),
    ("GET", "/healthcheck", ""),
    ("POST", "/v1/refund", LOGIN),
    ("POST", "/v1/reset", LOGIN),
    ("POST", "/v1/check", LOGIN),
    ("GET", "/nowhere", ""),
];

/// Calls of the admin listener.
const OPERATOR: [(&str, &str, &str); 40] = [
    ("GET", "/v1/keys?limit=credits&top=5", ""),
    ("GET", "/v1/bans?limit=login&top=5&reveal=policy", ""),
    ("GET", "/", ""),
    ("GET", "/healthz", ""),
    ("GET", "/readyz", ""),
    ("GET", "/dashboard", ""),
    ("GET", "/favicon.ico", ""),
    ("GET", "/dashboard/style.css", ""),
    ("GET", "/dashboard/script.js", ""),
    ("GET", "/v1/dashboard", ""),
    ("GET", "/v1/history?limit=login", ""),
    ("GET", "/metrics", ""),
    ("GET", "/v1/policy", ""),
    ("GET", "/v1/limits", ""),
    ("GET", "/rlconfig", ""),
    ("GET", "/v1/alerts", ""),
    ("GET", "/v1/explain?limit=login", ""),
    ("GET", "/v1/explain?limit=absent", ""),
    ("GET", "/v1/top", ""),
    ("GET", "/v1/top?limit=login&by=denied&window=1m&count=3", ""),
    ("GET", "/v1/whatif?limit=login&number=80/1m&number=9/1m", ""),
    ("GET", "/v1/keys?limit=login&top=5", ""),
    ("GET", "/v1/keys/login?key=192.0.2.1", ""),
    ("POST", "/v1/bans?limit=login&key=192.0.2.2&for=1m", ""),
    (
        "POST",
        "/v1/bans?limit=login&key=192.0.2.3&act=allow&for=1m",
        "",
    ),
    ("GET", "/v1/keys/login?key=192.0.2.3", ""),
    ("GET", "/v1/bans?limit=login", ""),
    ("GET", "/v1/bans", ""),
    ("DELETE", "/v1/bans?limit=login&key=192.0.2.2", ""),
    (
        "PUT",
        "/v1/overrides?limit=login&key=192.0.2.2&set=9/1m",
        "",
    ),
    ("GET", "/v1/overrides", ""),
    ("DELETE", "/v1/overrides?limit=login&key=192.0.2.2", ""),
    ("DELETE", "/v1/keys/login?key=192.0.2.1", ""),
    (
        "PUT",
        "/v1/signals/depth",
        r#"{"value": 0.4, "expires_in_ms": 60000}"#,
    ),
    ("PUT", "/v1/signals/depth", ""),
    ("POST", "/v1/reload", ""),
    ("POST", "/v1/refund", LOGIN),
    ("POST", "/v1/reset", LOGIN),
    (
        "POST",
        "/v1/grant",
        r#"{"limit": "credits", "key": {"tenant": "ann"}, "permits": 5, "id": "p"}"#,
    ),
    ("POST", "/v1/grant", r#"{"limit": "login"}"#),
];

#[test]
fn the_document_has_the_routes_of_the_service() {
    let mut documented = BTreeSet::new();
    let mut path = "";
    let paths = DOCUMENT.split("\npaths:\n").nth(1).expect("paths");
    let paths = paths.split("\ncomponents:\n").next().expect("paths");
    for line in paths.lines() {
        if let Some(name) = line.strip_prefix("  /") {
            path = name.strip_suffix(':').expect("a path");
        } else if let Some(method) = line
            .strip_prefix("    ")
            .and_then(|it| it.split(':').next())
            && ["get", "post", "put", "delete"].contains(&method)
        {
            documented.insert(format!("{} /{path}", method.to_uppercase()));
        }
    }
    // What a path ends with has a name in the document.
    let is_named = |start: &str| {
        let mut each = documented.iter();
        each.find(|call| {
            let rest = call.strip_prefix(start);
            rest.is_some_and(|rest| rest.starts_with('{') && !rest.contains('/'))
        })
    };
    let mut served = BTreeSet::new();
    for route in HTTP_ROUTES.iter().chain(ADMIN_ROUTES) {
        let methods = match route.methods {
            ListenerRoute::ANY => "GET",
            methods => methods,
        };
        for method in methods.split(", ").filter(|method| *method != "HEAD") {
            let call = format!("{method} {}", route.path);
            let call = match call.strip_suffix('*') {
                Some(start) => is_named(start).cloned().unwrap_or(call),
                None => call,
            };
            served.insert(call);
        }
    }
    assert_eq!(documented, served);
}

#[test]
fn answers_fit_the_document_and_a_generated_client_asks() {
    let generator = carried("target/openapi-python-client-0.29.1/openapi_python_client/cli.py");
    let (Some(generator), Some(python)) = (generator, find("python3")) else {
        return;
    };
    let library = generator.ancestors().nth(2).expect("its library");
    let dir = tempfile::tempdir().expect("a directory of its own");
    std::fs::write(dir.path().join("overrides.csv"), "limit,key,set\n").expect("it is writable");
    let service = InProcess::start_with(dir, POLICY, |config| config);
    let out = tempfile::tempdir().expect("a directory of its own");
    let mut lines = String::new();
    let mut id = String::new();
    let checks = CHECKS.map(|call| (Door::Http, call));
    for (door, (method, target, body)) in checks
        .into_iter()
        .chain(OPERATOR.map(|call| (Door::Admin, call)))
    {
        let body = body.replace("ID", &id);
        let visitor = Visitor::at(1).with("X-Original-URI", "/login");
        let answer = visitor.ask_with(service.door(door), (method, target), &body);
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(&answer.body) {
            let found = value["decision"]
                .as_str()
                .or(value["permits"][0]["id"].as_str());
            id = found.map_or(id, str::to_owned);
        }
        if target == "/nowhere" {
            assert_eq!(answer.status, 404);
            continue; // no operation, and so no schema
        }
        let line = json!({
            "method": method,
            "target": target,
            "status": answer.status,
            "type": answer.header("content-type").unwrap_or_default(),
            "body": answer.body,
        });
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    let target = "/v1/dashboard/stream?limit=login";
    let mut stream = Visitor::at(1).begin(service.door(Door::Admin), target);
    let mut head = [0; 15];
    stream.read_exact(&mut head).expect("it answers");
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let stream = json!({
        "method": "GET", "target": target, "status": 200, "type": "text/event-stream", "body": "",
    });
    lines.push_str(&stream.to_string());
    lines.push('\n');
    let url = format!("http://{}", service.door(Door::Http));
    let mut command = Command::new(python);
    command
        .args(["-c", include_str!("openapi/fit.py"), PLACE])
        .arg(out.path())
        .arg(url)
        .env("PYTHONPATH", library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut program = command.spawn().expect("python starts");
    let mut input = program.stdin.take().expect("it is piped");
    input.write_all(lines.as_bytes()).expect("it reads");
    drop(input);
    let output = program.wait_with_output().expect("it ends");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}");
}
