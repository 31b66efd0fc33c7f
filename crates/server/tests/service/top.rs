//! The keys that a service refuses, at the admin listener and in the log.

use ratekeeper_core::Nanos;
use serde_json::{Value, json};

use super::Fixture;

const POLICY: &str = r#"
version = 1
REVEAL

[[limit]]
name  = "login"
match = { path = "/login" }
key   = ["ip"]
limit = "2/1m"
algorithm = "fixed-window"

[[limit]]
name  = "quiet"
match = { path = "/quiet" }
key   = ["ip"]
limit = "2/1m"
"#;

fn fixture(reveal: &str) -> Fixture {
    Fixture::new(&POLICY.replace("REVEAL", reveal))
}

fn ask(fixture: &Fixture, ip: &str, times: usize) {
    let body = format!(r#"{{"request":{{"path":"/login","ip":"{ip}"}}}}"#);
    let mut http = fixture.http();
    (0..times).for_each(|_| drop(http.post("/v1/check", &body)));
}

fn top(fixture: &Fixture, query: &str) -> Value {
    fixture.admin().get(&format!("/v1/top?{query}")).json()
}

#[test]
fn the_most_refused_and_the_busiest_keys_are_listed() {
    let fixture = fixture("reveal_keys = \"raw\"");
    ask(&fixture, "192.0.2.1", 2);
    ask(&fixture, "192.0.2.9", 12);
    fixture.clock.advance(Nanos::from_secs(10));
    ask(&fixture, "192.0.2.8", 3);
    let found = top(&fixture, "limit=login");
    assert_eq!(found["requests"], 17);
    assert_eq!(found["denied"], 11);
    // An estimate: one of 1,024 seeds of the hash takes two keys for one.
    let distinct = found["distinct_denied"].as_u64();
    assert!([Some(1), Some(2)].contains(&distinct), "{found}");
    assert_eq!(found["covers_ms"], 10_000);
    let first = &found["keys"][0];
    assert_eq!(first["key"][0], "ip=192.0.2.9");
    assert_eq!(first["requests"]["count"], 12);
    assert_eq!(first["denied"]["count"], 10);
    assert_eq!(first["denied"]["error"], 0);
    assert_eq!(first["refused"]["since"], found["since"]);
    let wait = first["refused"]["next_free_in_ms"].as_u64().unwrap();
    assert!((1..=50_000).contains(&wait), "{wait}");
    assert_eq!(found["keys"].as_array().unwrap().len(), 2);
    assert_eq!(found["unlisted_at_most"], 0);

    let busiest = top(&fixture, "limit=login&by=requests&window=1h&count=2");
    assert_eq!(busiest["keys"][1]["key"][0], "ip=192.0.2.8");
    assert_eq!(busiest["unlisted_at_most"], 2);
    let limits = top(&fixture, "");
    assert_eq!(limits["limits"][0]["limit"], "login");
    assert_eq!(limits["limits"][0]["busiest"]["count"], 10);
    assert_eq!(limits["limits"][0]["decisions"]["denied"], 11);
    assert_eq!(limits["limits"][1]["requests"], 0);
    assert_eq!(
        top(&fixture, "limit=quiet")["keys"]
            .as_array()
            .unwrap()
            .len(),
        0
    );

    fixture.clock.advance(Nanos::from_secs(120));
    assert_eq!(top(&fixture, "limit=login")["denied"], 0);
    assert_eq!(top(&fixture, "limit=login&window=1h")["denied"], 11);
}

const COUNTED: &str = r#"
version = 1

[plan]
from    = "attr:plan"
default = "free"

[[limit]]
name  = "messages"
key   = ["attr:user"]
missing_key = "deny"
limit = "2/1h"
soft  = { extra = "50%" }

[[limit]]
name  = "api"
key   = ["attr:customer"]
missing_key = "skip"
limit = "2/1h"
plans = { ended = "blocked" }

[[limit]]
name  = "trial"
mode  = "shadow"
key   = ["attr:user"]
missing_key = "deny"
limit = "1/1h"
"#;

#[test]
fn limits_have_the_counts_of_the_metrics_and_the_cause_of_their_refusals() {
    let fixture = Fixture::new(COUNTED);
    let mut http = fixture.http();
    for (attributes, times, name, cause) in [
        (json!({ "user": "a" }), 9, "messages", "one key"),
        (json!({ "user": "a" }), 1, "messages+soft", "one key"),
        (json!({}), 20, "messages", "no key"),
        (
            json!({ "user": "b", "customer": "c", "plan": "ended" }),
            3,
            "api",
            "blocked",
        ),
    ] {
        let body = json!({ "attributes": attributes }).to_string();
        (0..times).for_each(|_| drop(http.post("/v1/check", &body)));
        let answer = top(&fixture, "");
        let limits = answer["limits"].as_array().unwrap();
        for limit in limits {
            let decisions = limit["decisions"].as_object().unwrap();
            let all: u64 = decisions.values().filter_map(Value::as_u64).sum();
            assert_eq!(limit["requests"], all, "{limit:#}");
            assert_eq!(limit["denied"], decisions["denied"], "{limit:#}");
        }
        let limit = limits.iter().find(|limit| limit["limit"] == name);
        assert_eq!(limit.unwrap()["cause"], cause, "{limit:#?}");
    }
    // More requests of `trial` would be refused than `messages` refuses.
    let answer = top(&fixture, "");
    assert_eq!(answer["limits"][0]["limit"], "messages");
    assert_eq!(answer["limits"][0]["key_missing"], 20);
    assert_eq!(top(&fixture, "limit=api")["blocked"], 3);
}

#[test]
fn keys_are_shown_as_far_as_the_policy_allows() {
    for (reveal, prefix) in [
        ("", "ip=~"),
        ("reveal_keys = \"hash\"", "ip=~"),
        ("reveal_keys = \"prefix\"", "ip=192~"),
    ] {
        let fixture = fixture(reveal);
        ask(&fixture, "192.0.2.9", 3);
        let found = top(&fixture, "limit=login");
        let key = found["keys"][0]["key"][0].as_str().unwrap();
        assert!(key.starts_with(prefix), "{key}");
        assert!(!found.to_string().contains("192.0.2.9"));
        // The operator who has the key finds its state.
        let state = fixture.admin().get("/v1/keys/login?key=192.0.2.9").json();
        assert_eq!(state["remaining"], 0);
    }
}

#[test]
fn wrong_queries_are_refused() {
    let fixture = fixture("");
    let mut admin = fixture.admin();
    for (query, status, hint) in [
        ("limit=logon", 404, "did you mean"),
        ("by=name", 400, "`denied` or `requests`"),
        ("window=1d", 400, "`1m` or `1h`"),
        ("count=0", 400, "`count=0` must be a number from 1 to 1000"),
        (
            "top=5",
            400,
            "expected `limit` or `by` or `window` or `count`",
        ),
    ] {
        let answer = admin.get(&format!("/v1/top?{query}"));
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.body.contains(hint), "{}", answer.body);
    }
    assert_eq!(admin.post("/v1/top", "").status, 405);
}
