//! `/v1/check`, batch, peek, reset, refund: whole answers.

use std::thread;

use ratekeeper_core::Nanos;
use ratekeeper_server::Door;

use super::Fixture;
use super::client::{Client, Talk};
use super::reviewed::assert_reviewed;

const POLICY: &str = r#"
version = 1

[[limit]]
name   = "login"
match  = { method = "POST", path = "/login" }
key    = ["ip"]
bucket = { size = 2, refill = "1/1m" }

[[limit]]
name  = "per-user"
match = { path = "/api/**" }
key   = ["attr:user_id"]
limit = "100/1h"
algorithm = "fixed-window"

[[limit]]
name   = "rehearsed"
match  = { path = "/shadow" }
key    = ["all"]
bucket = { size = 1, refill = "1/1h" }
mode   = "shadow"
"#;

const LOGIN: &str = r#"{"request":{"method":"POST","path":"/login","ip":"192.0.2.1"}}"#;

#[test]
fn burst_then_pace() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    for _ in 0..3 {
        talk.ask(&mut http, "POST /v1/check", LOGIN);
    }
    talk.say("another address has its own bucket");
    talk.ask(&mut http, "POST /v1/check", &LOGIN.replace("2.1", "2.2"));
    talk.say("59.999999999 s later, and 1 ns more");
    fixture.clock.advance(Nanos::from_nanos(59_999_999_999));
    talk.ask(&mut http, "POST /v1/check?status=200", LOGIN);
    fixture.clock.advance(Nanos::from_nanos(1));
    talk.ask(&mut http, "POST /v1/check", LOGIN);
    assert_reviewed!(talk.text());
}

#[test]
fn a_refusal_for_a_missing_key_says_so() {
    let denies = "limit = \"100/1h\"\nmissing_key = \"deny\"";
    let fixture = Fixture::new(&POLICY.replace("limit = \"100/1h\"", denies));
    for (attributes, expected) in [(r"{}", true), (r#"{"user_id":"u1"}"#, false)] {
        let body =
            format!(r#"{{"request":{{"path":"/api/x"}},"attributes":{attributes},"cost":101}}"#);
        let answer = fixture
            .http()
            .ask("POST /v1/check?status=200", body.as_bytes());
        assert!(answer.body.contains("deny_forever"), "{}", answer.body);
        let is_said = answer.body.contains("\"key_missing\":true");
        assert_eq!(is_said, expected, "{}", answer.body);
    }
    let instead = Fixture::new(POLICY); // counted by address, and refused for its cost
    let body = r#"{"request":{"path":"/api/x","ip":"192.0.2.1"},"cost":101}"#;
    let answer = instead
        .http()
        .ask("POST /v1/check?status=200", body.as_bytes());
    assert!(answer.body.contains("deny_forever"), "{}", answer.body);
    assert!(!answer.body.contains("key_missing"), "{}", answer.body);
}

#[test]
fn a_request_that_matches_no_limit_is_allowed() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    talk.ask(&mut http, "POST /v1/check", "{}");
    talk.ask(&mut http, "POST /v1/check", r#"{"request":{"path":"/"}}"#);
    assert_reviewed!(talk.text());
}

#[test]
fn costs_above_the_capacity_and_shadow_denials_are_shown() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    talk.say("a cost above the capacity of the limit");
    talk.ask(
        &mut http,
        "POST /v1/check",
        r#"{"request":{"path":"/api/x"},"attributes":{"user_id":"u1"},"cost":101}"#,
    );
    talk.say("in shadow mode the second request is allowed too");
    let shadow = r#"{"request":{"path":"/shadow"}}"#;
    talk.ask(&mut http, "POST /v1/check", shadow);
    talk.ask(&mut http, "POST /v1/check", shadow);
    assert_reviewed!(talk.text());
}

#[test]
fn requests_are_read_as_the_application_sees_them() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    talk.say("numbers and booleans are read as text; null is absent");
    talk.ask(
        &mut http,
        "POST /v1/check",
        r#"{"request":{"path":"/api/x?a=b"},"attributes":{"user_id":42,"beta":true,"plan":null},"cost":null}"#,
    );
    talk.say("escapes are decoded and encoded again");
    talk.ask(
        &mut http,
        "POST /v1/check",
        r#"{"request":{"path":"/api/x"},"attributes":{"user_id":"a\"\\\u0007b"}}"#,
    );
    talk.say("the address replaces a missing part of the key");
    talk.ask(
        &mut http,
        "POST /v1/check",
        r#"{"request":{"path":"/api/x","ip":"::ffff:192.0.2.9"}}"#,
    );
    assert_reviewed!(talk.text());
}

#[test]
fn peek_charges_nothing() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    for _ in 0..2 {
        talk.ask(&mut http, "POST /v1/peek", LOGIN);
    }
    talk.ask(
        &mut http,
        "POST /v1/peek",
        &LOGIN.replace("}}", r#"},"cost":3}"#),
    );
    assert_reviewed!(talk.text());
}

#[test]
fn reset_and_refund_return_their_effects() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    for _ in 0..2 {
        assert_eq!(http.post("/v1/check", LOGIN).status, 200);
    }
    let mut talk = Talk::default();
    talk.ask(&mut http, "POST /v1/refund", LOGIN);
    talk.ask(&mut http, "POST /v1/reset", LOGIN);
    talk.ask(&mut http, "POST /v1/peek", LOGIN);
    talk.say("calls through a proxy and from a web page are refused");
    talk.ask(
        &mut http,
        "POST /v1/reset\nx-forwarded-for: 192.0.2.7",
        LOGIN,
    );
    talk.ask(
        &mut http,
        "POST /v1/refund\norigin: http://elsewhere.example",
        LOGIN,
    );
    assert_reviewed!(talk.text());
}

#[test]
fn a_refund_that_cannot_be_made_is_a_conflict() {
    let fixture = Fixture::new(
        r#"
version = 1
[[limit]]
name  = "pages"
match = { path = "/pages" }
key   = ["all"]
limit = "4/1h"
algorithm = "hybrid"
[[limit]]
name  = "paid-later"
match = { path = "/paid" }
key   = ["all"]
limit = "4/1h"
algorithm = "smooth-bursty"
[[limit]]
name  = "bucket"
match = { path = "/paid" }
key   = ["all"]
bucket = { size = 10, refill = "10/1h" }
"#,
    );
    let mut http = fixture.http();
    // The hybrid was spent, and all of it comes back.
    let pages = r#"{"request":{"path":"/pages"},"cost":4}"#;
    assert_eq!(http.post("/v1/check", pages).status, 200);
    let refund = http.post("/v1/refund", pages);
    assert_eq!(refund.status, 200);
    assert_eq!(refund.json()["limits"][0]["remaining"], 4);
    // A charge that is paid later does not come back, and neither do the charges beside it.
    let paid = r#"{"request":{"path":"/paid"}}"#;
    assert_eq!(http.post("/v1/check", paid).status, 200);
    let refund = http.post("/v1/refund", paid);
    assert_eq!(refund.status, 409);
    assert_eq!(refund.json()["code"], "RK0519");
    let bucket = http.post(
        "/v1/peek",
        r#"{"request":{"path":"/paid"},"limits":["bucket"]}"#,
    );
    assert_eq!(bucket.json()["limits"][0]["remaining"], 9);
}

#[test]
fn a_batch_is_decided_one_by_one() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let three = format!(r#"{{"checks":[{LOGIN},{LOGIN},{LOGIN}]}}"#);
    talk.ask(&mut http, "POST /v1/check/batch", &three);
    talk.ask(&mut http, "POST /v1/check/batch", r#"{"checks":[]}"#);
    talk.say("one invalid check refuses the whole batch: nothing is charged");
    let other = LOGIN.replace("2.1", "2.3");
    let broken = format!(r#"{{"checks":[{other},{{"limits":["logon"]}}]}}"#);
    talk.ask(&mut http, "POST /v1/check/batch", &broken);
    let broken = format!(r#"{{"checks":[{other},{{"request":{{"ip":"::g"}}}}]}}"#);
    talk.ask(&mut http, "POST /v1/check/batch", &broken);
    talk.ask(&mut http, "POST /v1/peek", &other);
    assert_reviewed!(talk.text());
}

#[test]
fn a_batch_has_a_bound() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let batch = |count: usize| format!(r#"{{"checks":[{}]}}"#, vec!["{}"; count].join(","));
    let answer = http.post("/v1/check/batch", &batch(1000));
    assert_eq!(answer.json()["results"].as_array().unwrap().len(), 1000);
    let answer = http.post("/v1/check/batch", &batch(1001));
    assert_eq!(answer.status, 400);
    assert!(
        answer
            .body
            .contains("`checks`: invalid length 1001, expected a list of at most 1000 items"),
        "{}",
        answer.body
    );
}

#[test]
fn limits_narrows_a_check() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let named = |names: &str| LOGIN.replace("}}", &format!(r#"}},"limits":{names}}}"#));
    talk.ask(&mut http, "POST /v1/check", &named(r#"["login"]"#));
    talk.ask(&mut http, "POST /v1/check", &named(r#"["per-user"]"#));
    talk.ask(&mut http, "POST /v1/check", &named(r#"["log-in"]"#));
    talk.ask(&mut http, "POST /v1/check", &named("[]"));
    assert_reviewed!(talk.text());
}

#[test]
fn forty_requests_at_once_against_a_limit_of_ten_admit_ten() {
    let policy = r#"
        version = 1
        [[limit]]
        name   = "ten"
        key    = ["all"]
        bucket = { size = 10, refill = "1/1h" }
    "#;
    let fixture = Fixture::new(policy);
    let address = fixture.service.address(Door::Http).unwrap();
    let ask = || Client::new(address).post("/v1/check", "{}").status;
    let statuses: Vec<u16> = thread::scope(|scope| {
        let threads: Vec<_> = (0..40).map(|_| scope.spawn(ask)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let count = |status| statuses.iter().filter(|&&found| found == status).count();
    assert_eq!((count(200), count(429)), (10, 30));
}

#[test]
fn limits_on_descriptors_are_checked_with_descriptors() {
    let fixture = Fixture::new(
        r#"
version = 1

[[limit]]
name   = "per-user"
match  = { domain = "edge", descriptor."generic_key#2" = "b" }
key    = ["descriptor:user", "descriptor:generic_key"]
bucket = { size = 2, refill = "1/1h" }
"#,
    );
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let entry = |key: &str, value: &str| format!(r#"{{"key":"{key}","value":"{value}"}}"#);
    let ask = |entries: &[String]| {
        let entries = entries.join(",");
        format!(r#"{{"descriptor":{{"domain":"edge","entries":[{entries}]}}}}"#)
    };
    let (user, a, b) = (
        entry("user", "ada"),
        entry("generic_key", "a"),
        entry("generic_key", "b"),
    );
    let whole = ask(&[a.clone(), b.clone(), user.clone()]);
    talk.ask(&mut http, "POST /v1/check", &whole);
    talk.say("another order of the same key is another descriptor, fewer entries too");
    talk.ask(
        &mut http,
        "POST /v1/check",
        &ask(&[b.clone(), a.clone(), user.clone()]),
    );
    talk.ask(&mut http, "POST /v1/check", &ask(&[a, user.clone()]));
    talk.ask(&mut http, "POST /v1/peek", &whole);
    talk.say("a request beside it, an entry without a key, an unknown field, too many entries");
    talk.ask(
        &mut http,
        "POST /v1/check",
        r#"{"descriptor":{},"request":{"path":"/"}}"#,
    );
    talk.ask(&mut http, "POST /v1/check", &ask(&[entry("", "x")]));
    talk.ask(
        &mut http,
        "POST /v1/check",
        r#"{"descriptor":{"entry":[]}}"#,
    );
    talk.ask(&mut http, "POST /v1/check", &ask(&vec![b; 65]));
    assert_reviewed!(talk.text());
}
