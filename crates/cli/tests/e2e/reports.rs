//! Results reported to real services: counted, given back, settled, and once for two services on
//! one Redis server, also after a restart.

use std::net::SocketAddr;
use std::time::Duration;

use ratekeeper_core::Nanos;
use ratekeeper_server::Door;
use serde_json::{Value, json};

use crate::harness::clock;
use crate::harness::in_process::InProcess;
use crate::harness::redis::Redis;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::Visitor;
use crate::store;

const LIMITS: &str = r#"
[[limit]]
name     = "login-failures"
match    = { path = "/login" }
key      = ["header:x-user"]
missing_key = "skip"
bucket   = { size = 3, refill = "1/1h", step = true }
count    = { status = [401, 403] }
reset_on = { status = 200 }

[[limit]]
name   = "llm-tokens"
match  = { path = "/complete" }
key    = ["attr:user"]
missing_key = "skip"
bucket = { size = 1000, refill = "1/1h" }
cost   = { reserve = "attr:max_tokens" }
"#;

fn post(to: SocketAddr, path: &str, body: &Value) -> (u16, Value) {
    let answer = Visitor::at(2).post_json(to, path, &body.to_string());
    let json = serde_json::from_str(&answer.body).expect("an answer is JSON");
    (answer.status, json)
}

fn login(to: SocketAddr, user: &str) -> (u16, Value) {
    let request = json!({ "path": "/login", "headers": { "x-user": user } });
    post(to, "/v1/check", &json!({ "request": request }))
}

fn report(to: SocketAddr, decision: &Value, status: u16) -> (u16, Value) {
    let body = json!({ "decision": decision, "status": status });
    post(to, "/v1/report", &body)
}

fn remaining(answer: &Value) -> &Value {
    &answer["limits"][0]["remaining"]
}

#[test]
fn failures_count_and_good_logins_empty_the_record() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &write_policy(dir.path(), LIMITS));
    let http = service.http();
    for left in [2, 1] {
        let (status, answer) = login(http, "ann");
        assert_eq!((status, remaining(&answer)), (200, &json!(left)));
        assert_eq!(answer["expires_in_ms"], 120_000);
        let reported = report(http, &answer["decision"], 401);
        assert_eq!(reported, (200, json!({ "done": "corrected" })));
        let again = report(http, &answer["decision"], 404);
        assert_eq!(again, (200, json!({ "done": "repeated" })));
    }
    let (_, third) = login(http, "ann");
    let (status, refused) = login(http, "ann");
    assert_eq!((status, &refused["decision"]), (429, &Value::Null));
    assert_eq!(report(http, &third["decision"], 500).0, 200);
    let (_, good) = login(http, "ann");
    assert_eq!(remaining(&good), 0, "a server error was given back");
    assert_eq!(report(http, &good["decision"], 200).0, 200);
    assert_eq!(remaining(&login(http, "ann").1), 2);

    // A proxy hands the id on in a header.
    let visitor = Visitor::at(1)
        .with("x-original-uri", "/login")
        .with("x-user", "bob");
    let auth = visitor.get(http, "/v1/auth");
    let id = json!(auth.header("x-ratekeeper-decision").expect("an id"));
    assert_eq!(report(http, &id, 404).0, 200);
    assert_eq!(remaining(&login(http, "bob").1), 2);

    for (body, expected) in [
        (
            json!({ "decision": "nonsense", "status": 401 }),
            (400, "RK0503"),
        ),
        (json!({ "decision": id, "status": 42 }), (400, "RK0503")),
        (json!({ "decision": id }), (400, "RK0503")),
        (json!({ "decision": id, "cost": 5 }), (400, "RK0503")),
        (
            json!({ "decision": id, "costs": { "llm-tokens": 5 } }),
            (400, "RK0504"),
        ),
        (json!({ "decision": id, "stauts": 401 }), (400, "RK0502")),
        (json!({ "status": 401 }), (400, "RK0503")),
    ] {
        let (status, problem) = post(http, "/v1/report", &body);
        assert_eq!(
            (status, problem["code"].as_str()),
            (expected.0, Some(expected.1)),
            "{body}"
        );
    }
    let count =
        |result: &str| service.metric(&format!("ratekeeper_reports_total{{result=\"{result}\"}}"));
    let counts = format!("{} {}", count("corrected"), count("repeated"));
    assert_eq!(counts, "5 2");
}

#[test]
fn estimates_become_actual_costs() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &write_policy(dir.path(), LIMITS));
    let http = service.http();
    let complete = |max: u32| {
        let attributes = json!({ "user": "ann", "max_tokens": max });
        let body = json!({ "request": { "path": "/complete" }, "attributes": attributes });
        post(http, "/v1/check", &body).1
    };
    let first = complete(400);
    assert_eq!(remaining(&first), 600);
    let body = json!({ "decision": first["decision"], "cost": 63 });
    assert_eq!(post(http, "/v1/report", &body).0, 200);
    let second = complete(100);
    assert_eq!(remaining(&second), 837);
    let body = json!({ "decision": second["decision"], "costs": { "llm-tokens": 1_500 } });
    assert_eq!(post(http, "/v1/report", &body).0, 200);
    assert_eq!(complete(1)["allowed"], false, "563 are owed");
}

/// Reserves 400 tokens, and settles them after `wait`; returns the answer to the report.
fn settled_after(http: SocketAddr, wait: impl FnOnce()) -> (u16, Value) {
    let attributes = json!({ "user": "ann", "max_tokens": 400 });
    let body = json!({ "request": { "path": "/complete" }, "attributes": attributes });
    let (status, reserved) = post(http, "/v1/check", &body);
    assert_eq!(
        (status, &reserved["limits"][0]["remaining"]),
        (200, &json!(600))
    );
    wait();
    let settle = json!({ "decision": reserved["decision"], "cost": 63 });
    let answer = post(http, "/v1/report", &settle);
    let peeked = post(http, "/v1/peek", &body).1;
    let left = if answer.0 == 200 { 937 } else { 600 };
    assert_eq!(remaining(&peeked), &json!(left), "{answer:?}");
    answer
}

/// The limit of tokens, which reserves for `expire`.
fn reserving(expire: &str) -> String {
    let tokens = LIMITS.split_once("[[limit]]\nname   = \"llm-tokens\"");
    let (_, tokens) = tokens.expect("it is the last");
    format!("[[limit]]\nname   = \"llm-tokens\"{tokens}report_within = \"{expire}\"\n")
}

#[test]
fn a_reservation_in_memory_expires_to_the_moment() {
    for (seconds, status) in [(119, 200), (121, 410)] {
        let service = InProcess::start(&format!("version = 1\n{}", reserving("2m")));
        let wait = || service.clock.clock.advance(Nanos::from_secs(seconds));
        let answer = settled_after(service.door(Door::Http), wait);
        assert_eq!(answer.0, status, "{answer:?}");
        assert!(status == 200 || answer.1["code"] == "RK0590", "{answer:?}");
    }
}

#[test]
fn a_reservation_in_redis_expires() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let url = format!("url = \"{}\"\ndeadline = \"5s\"", redis.url());
    let service = store::start(dir.path(), "a", &url, &reserving("1s"));
    // Redis decides by its own clock, so the second has to pass.
    let wait = || clock::wait(Duration::from_millis(1_100));
    let (status, problem) = settled_after(service.http(), wait);
    assert_eq!((status, &problem["code"]), (410, &json!("RK0590")));
}

#[test]
fn an_expired_reservation_is_reported_once_in_the_log() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let service = Service::start(dir.path(), &write_policy(dir.path(), &reserving("1s")));
    let attributes = json!({ "user": "ann", "max_tokens": 400 });
    let body = json!({ "request": { "path": "/complete" }, "attributes": attributes });
    assert_eq!(post(service.http(), "/v1/check", &body).0, 200);
    let log = service.process.log_with("settle.expired");
    let line = log.lines().find(|line| line.contains("settle.expired"));
    let line = line.expect("the log has it");
    for field in ["llm-tokens", "count=1", "units=400"] {
        assert!(line.contains(field), "{field}: {line}");
    }
    let expired = r#"ratekeeper_settlements_total{limit="llm-tokens",result="expired"}"#;
    assert!(service.metric(expired) > 0.9);
}

#[test]
fn reservations_are_right_in_the_sum_over_services_on_one_redis() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let url = format!("url = \"{}\"\ndeadline = \"5s\"\nnodes = 2", redis.url());
    let start = |name: &str| store::start(dir.path(), name, &url, &reserving("20s"));
    let services = [start("a"), start("b")];
    let sum = |series: &str| -> f64 { services.iter().map(|it| it.metric(series)).sum() };
    let reserved = || sum(r#"ratekeeper_reserved_units{limit="llm-tokens"}"#);
    let settled = |result: &str| {
        let labels = format!(r#"limit="llm-tokens",result="{result}""#);
        sum(&format!("ratekeeper_settlements_total{{{labels}}}"))
    };
    let [a, b] = services.each_ref().map(Service::http);
    let reserve = || {
        let attributes = json!({ "user": "ann", "max_tokens": 100 });
        let body = json!({ "request": { "path": "/complete" }, "attributes": attributes });
        post(a, "/v1/check", &body).1["decision"].clone()
    };
    let [here, there, _never] = [reserve(), reserve(), reserve()];
    assert!((reserved() - 300.0).abs() < 0.1);
    for (to, decision) in [(a, here), (b, there)] {
        let report = json!({ "decision": decision, "cost": 63 });
        assert_eq!(post(to, "/v1/report", &report).0, 200);
    }
    assert!((settled("ok") - 2.0).abs() < 0.1);
    let open = services[1].metric(r#"ratekeeper_reserved_units{limit="llm-tokens"}"#);
    assert!(
        (reserved() - 100.0).abs() < 0.1 && (open + 100.0).abs() < 0.1,
        "{open}"
    );
    // The slots of the three end one after the other.
    let ended = clock::poll(
        "the end of the reservations",
        Duration::from_secs(60),
        || {
            let ends = [settled("expired"), settled("elsewhere"), reserved()];
            let differ = |(end, due): (f64, f64)| (end - due).abs() > 0.1;
            (!ends.into_iter().zip([2.0, 1.0, 0.0]).any(differ)).then_some(())
        },
    );
    ended.unwrap_or_else(|error| panic!("{error}"));
    for service in &services {
        let log = service.process.log();
        assert!(!log.contains("settle.expired"), "{log}");
    }
}

#[test]
fn any_service_on_one_redis_takes_a_report_once_also_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        return;
    };
    let url = format!("url = \"{}\"\ndeadline = \"5s\"", redis.url());
    let start = |name: &str| store::start(dir.path(), name, &url, LIMITS);
    let (a, b) = (start("a"), start("b"));
    let (_, first) = login(a.http(), "ann");
    let (_, second) = login(a.http(), "ann");
    assert_eq!(remaining(&second), 1);
    drop(a);
    let again = start("again");
    let done = |word: &str| (200, json!({ "done": word }));
    assert_eq!(report(b.http(), &first["decision"], 404), done("corrected"));
    assert_eq!(
        report(again.http(), &first["decision"], 404),
        done("repeated")
    );
    assert_eq!(
        report(again.http(), &second["decision"], 404),
        done("corrected")
    );
    assert_eq!(report(b.http(), &second["decision"], 200), done("repeated"));
    assert_eq!(remaining(&login(b.http(), "ann").1), 2);
    // Another store knows nothing of it.
    let (_, third) = login(b.http(), "ann");
    let elsewhere = Service::start(dir.path(), &write_policy(dir.path(), LIMITS));
    let (status, problem) = report(elsewhere.http(), &third["decision"], 200);
    assert_eq!((status, &problem["code"]), (410, &json!("RK0590")));
    assert_eq!(remaining(&login(b.http(), "ann").1), 0);
}
