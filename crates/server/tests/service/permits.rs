//! `/v1/acquire`, `/v1/renew`, `/v1/release`: whole answers, races, and metrics.

use std::thread;

use ratekeeper_core::Nanos;
use ratekeeper_server::Event;
use serde_json::{Value, json};

use super::client::{Answer, Client, Talk};
use super::reviewed::assert_reviewed;
use super::{Fixture, masked};

const POLICY: &str = r#"
version = 1

[[limit]]
name = "in-flight"
key = ["attr:user"]
concurrency = { max = 2, lease = "60s" }

[[limit]]
name = "per-hour"
key = ["attr:user"]
limit = "5/1h"
algorithm = "fixed-window"
"#;

const ANN: &str = r#"{"attributes":{"user":"ann"}}"#;
const FOR_BOTH: &str = r#"{"attributes":{"user":"ann"},"cost":2}"#;

/// Returns the ids of an answer to an acquire.
fn ids(answer: &Answer) -> Vec<String> {
    let json = answer.json();
    let permits = json["permits"].as_array().unwrap();
    let id = |permit: &Value| permit["id"].as_str().unwrap().to_owned();
    permits.iter().map(id).collect()
}

fn of(ids: &[String]) -> String {
    json!({ "permits": ids }).to_string()
}

/// Returns the numbers of a metric, of all limits.
fn metric(fixture: &Fixture, name: &str) -> Vec<String> {
    let text = fixture.admin().get("/metrics").body;
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(str::to_owned).collect()
}

#[test]
fn permits_are_taken_and_expire() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    talk.ask(&mut http, "POST /v1/acquire", FOR_BOTH);
    talk.say("no permit is free: the rate is not charged either");
    talk.ask(&mut http, "POST /v1/acquire", ANN);
    talk.ask(&mut http, "POST /v1/acquire?status=200", ANN);
    talk.say("a check only looks");
    talk.ask(&mut http, "POST /v1/check", ANN);
    talk.say("the holder has crashed");
    fixture.clock.advance(Nanos::from_secs(60));
    talk.ask(&mut http, "POST /v1/check", ANN);
    talk.ask(&mut http, "POST /v1/acquire", ANN);
    let ids = [(r#""id":"[\w-]{40,}""#, r#""id":"[id]""#)];
    assert_reviewed!(masked(talk.text(), &ids));
}

#[test]
fn a_permit_is_renewed_and_released_once() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let held = ids(&http.post("/v1/acquire", FOR_BOTH));
    assert_eq!(held.len(), 1, "one id covers the whole cost");
    fixture.clock.advance(Nanos::from_secs(59));
    let renewed = http.post("/v1/renew", &of(&held));
    assert_eq!(renewed.status, 200);
    assert_eq!(
        renewed.json(),
        json!({"permits": [{"limit": "in-flight", "id": held[0], "renewed": true,
                            "expires_in_ms": 60_000}]})
    );
    fixture.clock.advance(Nanos::from_secs(59));
    assert_eq!(http.post("/v1/acquire", ANN).status, 429);
    for released in [2, 0, 0] {
        let answer = http.post("/v1/release", &of(&held));
        let expected = json!({"limit": "in-flight", "id": held[0], "released": released});
        assert_eq!(
            (answer.status, answer.json()),
            (200, json!({"permits": [expected]}))
        );
    }
    let gone = http.post("/v1/renew", &of(&held)).json();
    assert_eq!(gone["permits"][0]["renewed"], false);
    assert_eq!(
        http.post("/v1/release", &of(&[])).json(),
        json!({"permits": []})
    );
}

#[test]
fn invalid_permit_ids_are_refused() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let id = ids(&http.post("/v1/acquire", ANN)).remove(0);
    let mut talk = Talk::default();
    for body in [
        "",
        "{}",
        r#"{"permits":null}"#,
        r#"{"permits":"x"}"#,
        r#"{"permits":[1]}"#,
        r#"{"permits":["in-flight"]}"#,
        r#"{"permit":["x"]}"#,
    ] {
        talk.ask(&mut http, "POST /v1/release", body);
    }
    talk.ask(&mut http, "GET /v1/renew", "");
    assert_reviewed!(talk.text());
    let many: Vec<String> = vec![String::new(); 1_001];
    assert_eq!(http.post("/v1/renew", &of(&many)).status, 400);
    // One invalid id spoils the call; the valid ones stay as they were.
    assert_eq!(
        http.post("/v1/release", &of(&[id.clone(), "x".into()]))
            .status,
        400
    );
    let released = http.post("/v1/release", &of(&[id])).json();
    assert_eq!(released["permits"][0]["released"], 1);
}

#[test]
fn forty_requests_at_once_take_exactly_ten_permits() {
    let policy = r#"
version = 1
[[limit]]
name = "in-flight"
key = ["all"]
concurrency = { max = 10, lease = "60s" }
"#;
    let fixture = Fixture::new(policy);
    let address = fixture
        .service
        .address(ratekeeper_server::Door::Http)
        .unwrap();
    let rounds = || {
        let asking: Vec<_> = (0..40)
            .map(|_| thread::spawn(move || Client::new(address).post("/v1/acquire", "{}")))
            .collect();
        let answers = asking.into_iter().map(|thread| thread.join().unwrap());
        let held: Vec<String> = answers
            .filter(|answer| answer.status == 200)
            .flat_map(|answer| ids(&answer))
            .collect();
        assert_eq!(held.len(), 10);
        held
    };
    let mut http = fixture.http();
    let first = rounds();
    assert_eq!(
        metric(&fixture, "ratekeeper_concurrency_in_use{"),
        ["ratekeeper_concurrency_in_use{limit=\"in-flight\"} 10"]
    );
    http.post("/v1/release", &of(&first));
    let second = rounds();
    assert!(
        second.iter().all(|id| !first.contains(id)),
        "ids are never reused"
    );
    fixture.clock.advance(Nanos::from_secs(60));
    let third = rounds();
    assert_eq!(
        metric(&fixture, "ratekeeper_leases_expired_total"),
        ["ratekeeper_leases_expired_total{limit=\"in-flight\"} 10"]
    );
    http.post("/v1/release", &of(&third));
    assert_eq!(
        metric(&fixture, "ratekeeper_concurrency_in_use{"),
        ["ratekeeper_concurrency_in_use{limit=\"in-flight\"} 0"]
    );
}

#[test]
fn leases_that_ended_stay_counted_when_an_override_ends_and_when_it_returns() {
    let with_override = format!(
        "{POLICY}[[override]]\nlimit = \"in-flight\"\nkey = {{ \"attr:user\" = \"ann\" }}\nset = 3\n"
    );
    let fixture = Fixture::new(&with_override);
    let mut http = fixture.http();
    for user in ["ann", "ann", "ann", "bob"] {
        let body = json!({ "attributes": { "user": user } }).to_string();
        let one = http.post("/v1/acquire", &body);
        assert_eq!(one.status, 200, "{}", one.body);
    }
    fixture.clock.advance(Nanos::from_secs(60));
    for user in ["ann", "bob"] {
        http.post(
            "/v1/acquire",
            &json!({ "attributes": { "user": user } }).to_string(),
        );
    }
    let ended = ["ratekeeper_leases_expired_total{limit=\"in-flight\"} 4"];
    assert_eq!(metric(&fixture, "ratekeeper_leases_expired_total"), ended);
    for policy in [POLICY, &with_override] {
        std::fs::write(fixture.path("ratekeeper.toml"), policy).unwrap();
        assert_eq!(fixture.admin().post("/v1/reload", "").status, 200);
        assert_eq!(metric(&fixture, "ratekeeper_leases_expired_total"), ended);
    }
}

#[test]
fn a_notice_at_the_start_names_limits_that_checks_do_not_charge() {
    let fixture = Fixture::new(POLICY);
    let notice = fixture.events.try_iter().find_map(|event| match event {
        Event::Notice(text) if text.contains("/v1/acquire") => Some(text),
        _ => None,
    });
    assert!(notice.unwrap().starts_with("limit `in-flight`: "));
}
