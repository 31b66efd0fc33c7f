//! Prepaid credits through the real service: a waterfall of a quota, a promotion and credits, grants
//! by the command and by the admin listener, and their way back; in memory, and in Redis, where a
//! restart keeps them.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::redis::Redis;
use crate::harness::say;
use crate::harness::service::{Service, write_policy};
use crate::harness::visitor::{Answer, Visitor};

/// Periods of many days: nothing is refilled during the test.
const LIMITS: &str = r#"
[[limit]]
name = "month"
match = { path = "/api" }
key = ["attr:user"]
missing_key = "shared"
limit = "3/100d"
on_store_error = "deny"
otherwise = ["promo", "credits"]

[[limit]]
name = "promo"
key = ["attr:user"]
missing_key = "shared"
limit = "2/100d"
on_store_error = "deny"

[[limit]]
name = "credits"
key = ["attr:user"]
missing_key = "shared"
balance = { start = 1, max = 1000 }
"#;

fn post(service: &Service, path: &str, body: &Value) -> Answer {
    let address = match path {
        "/v1/check" => service.http(),
        _ => service.admin(),
    };
    Visitor::at(1).post_json(address, path, &body.to_string())
}

fn request(limits: Option<&str>) -> Value {
    let mut body = json!({ "request": { "path": "/api" }, "attributes": { "user": "ann" } });
    if let Some(limit) = limits {
        body["limits"] = json!([limit]);
    }
    body
}

/// Returns the name of the limit that was charged; `None` if the request is refused.
fn source(answer: &Answer) -> Option<String> {
    let told: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
    let limits = told["limits"].as_array().expect("a list");
    let first = &limits[0];
    match first["covered_by"].as_str() {
        Some(other) => Some(other.to_owned()),
        None if answer.status == 200 => Some(first["name"].as_str().expect("a name").to_owned()),
        None => None,
    }
}

fn ask(service: &Service) -> Option<String> {
    source(&post(service, "/v1/check", &request(None)))
}

fn grant(service: &Service, permits: u32, id: &str) -> (String, u64, u64) {
    let body = json!({
        "limit": "credits",
        "key": { "user": "ann" },
        "permits": permits,
        "id": id,
    });
    let answer = post(service, "/v1/grant", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let told: Value = serde_json::from_str(&answer.body).expect("an answer is JSON");
    let number = |field: &str| told[field].as_u64().expect("a number");
    let done = told["done"].as_str().expect("a word").to_owned();
    (done, number("added"), number("balance"))
}

/// Runs `ratekeeper grant`; returns its exit code and what it prints.
fn command(service: &Service, arguments: &[&str]) -> (Option<i32>, String) {
    let server = format!("http://localhost:{}", service.admin().port());
    let ran = Command::new(env!("CARGO_BIN_EXE_ratekeeper"))
        .arg("grant")
        .args(arguments)
        .args(["--server", &server])
        .env("NO_COLOR", "1")
        .output()
        .expect("the command runs");
    let text = [ran.stdout, ran.stderr].concat();
    (ran.status.code(), String::from_utf8(text).expect("text"))
}

fn check(service: &Service) {
    let sources: Vec<_> = (0..7).map(|_| ask(service)).collect();
    let named = |name: &str| Some(name.to_owned());
    let (month, promo, credits) = (named("month"), named("promo"), named("credits"));
    let expected = [&month, &month, &month, &promo, &promo, &credits, &None];
    assert_eq!(sources.iter().collect::<Vec<_>>(), expected);

    let refused = post(service, "/v1/check", &request(Some("credits")));
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert_eq!(refused.header("retry-after"), None, "no wait helps");

    assert_eq!(grant(service, 2, "payment-1"), ("granted".into(), 2, 2));
    assert_eq!(grant(service, 2, "payment-1"), ("repeated".into(), 0, 2));
    assert_eq!(
        [ask(service), ask(service), ask(service)],
        [credits.clone(), credits.clone(), None]
    );

    // A refund goes to the allowance that is named, and nowhere else.
    assert_eq!(
        post(service, "/v1/refund", &request(Some("credits"))).status,
        200
    );
    assert_eq!([ask(service), ask(service)], [credits.clone(), None]);

    let by_hand = [
        "500",
        "--limit",
        "credits",
        "--key",
        "user=ann",
        "--id",
        "payment-2",
    ];
    let added = (Some(0), "added 500; the balance is 500\n".to_owned());
    assert_eq!(command(service, &by_hand), added);
    let repeated = (Some(1), "granted before; the balance is 500\n".to_owned());
    assert_eq!(command(service, &by_hand), repeated);
    let too_much = ("granted".into(), 500, 1_000);
    assert_eq!(grant(service, 900, "payment-3"), too_much);

    let peeked = Visitor::at(1).get(service.admin(), "/v1/keys/credits?key=ann");
    let peeked: Value = serde_json::from_str(&peeked.body).expect("an answer is JSON");
    assert_eq!(peeked["remaining"], 1_000);
    assert_eq!(peeked["reset_after_ms"], Value::Null);
    let metric = "ratekeeper_grants_total{result=\"repeated\"}";
    assert!((service.metric(metric) - 2.0).abs() < f64::EPSILON);
    let log = service.process.log_with("credits.granted");
    assert!(log.contains("credits granted"), "{log}");
    assert!(!log.contains("user=ann"), "keys are hashes unless revealed");

    for (body, part) in [
        (
            json!({ "limit": "month", "key": { "user": "ann" }, "permits": 1, "id": "a" }),
            "balance",
        ),
        (
            json!({ "limit": "credits", "key": {}, "permits": 1, "id": "a" }),
            "attr:user",
        ),
        (
            json!({ "limit": "credits", "key": { "user": "a", "team": "b" }, "permits": 1, "id": "a" }),
            "`team`",
        ),
        (
            json!({ "limit": "credits", "key": { "user": 7 }, "permits": 1, "id": "a" }),
            "is not a string",
        ),
        (
            json!({ "limit": "credits", "key": { "user": "ann" }, "permits": 0, "id": "a" }),
            "from 1 to 9007199254740991",
        ),
        (
            json!({ "limit": "credits", "key": { "user": "ann" }, "permits": 1, "id": "" }),
            "`id`",
        ),
        (
            json!({ "limit": "credits", "key": { "user": "ann" }, "permits": 1 }),
            "`id`",
        ),
    ] {
        let refused = post(service, "/v1/grant", &body);
        assert_eq!(refused.status, 400, "{body}: {}", refused.body);
        assert!(refused.body.contains(part), "{body}: {}", refused.body);
    }
}

fn start(dir: &Path, name: &str, head: &str, limits: &str) -> Service {
    let dir = dir.join(name);
    std::fs::create_dir_all(&dir).expect("the test's directory is writable");
    let open = "[listen]\nadmin_writes = \"open\"\n";
    let policy = write_policy(&dir, &format!("{open}{head}\n{limits}"));
    Service::start(&dir, &policy)
}

#[test]
fn credits_in_memory() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    check(&start(dir.path(), "alone", "", LIMITS));
}

#[test]
fn credits_in_redis_outlive_a_restart_and_a_reload() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let Some(redis) = Redis::start(dir.path()) else {
        say("skipped: redis-server is not installed");
        return;
    };
    let head = format!(
        "[store.redis]\nurl = \"{}\"\ndeadline = \"5s\"\n",
        redis.url()
    );
    check(&start(dir.path(), "one", &head, LIMITS));
    // Another process, with other numbers: known keys keep their credits.
    let limits = LIMITS.replace("start = 1, max = 1000", "start = 50, max = 5000");
    let other = start(dir.path(), "two", &head, &limits);
    assert_eq!(
        grant(&other, 900, "payment-3"),
        ("repeated".into(), 0, 1_000)
    );
    assert_eq!(
        grant(&other, 900, "payment-4"),
        ("granted".into(), 900, 1_900)
    );
    assert_eq!(ask(&other).as_deref(), Some("credits"));
}

#[test]
fn clients_grant_themselves_nothing() {
    let dir = tempfile::tempdir().expect("a directory of its own");
    let policy = write_policy(dir.path(), LIMITS);
    let service = Service::start(dir.path(), &policy);
    let body = json!({ "limit": "credits", "key": { "user": "ann" }, "permits": 1, "id": "a" });
    let closed = post(&service, "/v1/grant", &body);
    assert_eq!(closed.status, 403, "writes are closed: {}", closed.body);
    let open = Visitor::at(2).post_json(service.http(), "/v1/grant", &body.to_string());
    assert_eq!(open.status, 404, "{}", open.body);
}
