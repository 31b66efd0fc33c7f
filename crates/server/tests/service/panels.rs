//! What the panels of the dashboard show: the numbers of a state, in a running service.

use ratekeeper_core::Nanos;
use serde_json::{Value, json};

use super::Fixture;
use super::client::Client;
use super::dashboard::{next_state, stream};

/// Returns the first state for which `wanted` is true; the clock goes on by a second for each.
fn await_state(fixture: &Fixture, page: &mut Client, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut last = Value::Null;
    for _ in 0..20 {
        fixture.clock.advance(Nanos::SECOND);
        last = next_state(page).expect("it goes on")["state"].clone();
        if wanted(&last) {
            return last;
        }
    }
    panic!("not among the states: {last:#}");
}

/// Returns a limit of a state.
fn limit<'s>(state: &'s Value, name: &str) -> &'s Value {
    let mut limits = state["limits"].as_array().into_iter().flatten();
    limits
        .find(|limit| limit["name"] == name)
        .unwrap_or(&Value::Null)
}

fn check(fixture: &Fixture, attributes: &Value, times: usize) {
    let body = json!({ "attributes": attributes }).to_string();
    let mut http = fixture.http();
    (0..times).for_each(|_| drop(http.post("/v1/check", &body)));
}

const PLANS: &str = r#"
version = 1

[plan]
from    = "attr:plan"
default = "free"

[[limit]]
name  = "api"
key   = ["attr:tenant"]
missing_key = "skip"
limit = "4/1h"
algorithm = "fixed-window"
plans = { pro = "8/1h", team = "8/1h", internal = "unlimited", ended = "blocked" }

[[limit]]
name  = "pages"
key   = ["attr:visitor"]
missing_key = "skip"
limit = "10/1h"
algorithm = "fixed-window"
priority = { last = "20%", match = { attr.plan = "pro" } }
"#;

#[test]
fn a_state_has_the_highest_key_denials_by_plan_and_those_for_priority() {
    let fixture = Fixture::new(PLANS);
    let mut page = stream(&fixture, "", "");
    let quiet = await_state(&fixture, &mut page, |state| {
        state["counts"]["1m"]["spans"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    let api = limit(&quiet, "api");
    assert_eq!(api["highest_percent"], 0);
    assert_eq!(
        api["plans"],
        json!([["pro", 0], ["team", 0], ["(other)", 0]])
    );
    assert_eq!(api["shed"], Value::Null, "it has no priority");

    check(&fixture, &json!({ "tenant": "a" }), 1);
    check(&fixture, &json!({ "tenant": "b" }), 3);
    check(&fixture, &json!({ "visitor": "v" }), 7);
    let state = await_state(&fixture, &mut page, |state| {
        limit(state, "api")["highest_percent"] == 75
    });
    assert_eq!(limit(&state, "pages")["highest_percent"], 70);
    let top = fixture.admin().get("/v1/top").json();
    let busiest = &top["limits"][0]; // of two that refuse none
    assert_eq!(
        (&busiest["limit"], &busiest["highest_percent"]),
        (&json!("pages"), &json!(70))
    );

    check(&fixture, &json!({ "tenant": "b" }), 3);
    check(&fixture, &json!({ "tenant": "c", "plan": "team" }), 10);
    check(&fixture, &json!({ "tenant": "d", "plan": "ended" }), 5);
    check(&fixture, &json!({ "visitor": "v" }), 3);
    check(&fixture, &json!({ "visitor": "v", "plan": "pro" }), 4);
    // A blocked key is not counted. A state between two checks has fewer.
    let plans = json!([["pro", 0], ["team", 2], ["(other)", 7]]);
    await_state(&fixture, &mut page, |state| {
        let api = limit(state, "api");
        // Room was left for priority; then it was spent.
        let is_last = api["plans"] == plans && limit(state, "pages")["shed"] == 2;
        is_last && api["highest_percent"] == 100 && is_near(&api["hour"], [3, 2, 2])
    });
}

/// Returns true if the numbers of keys asked, refused, and refused for the first time are about
/// these: a hash of one of 1,024 seeds takes two keys for one.
fn is_near(hour: &Value, keys: [u64; 3]) -> bool {
    let numbers = ["asked", "keys", "first"].into_iter().zip(keys);
    let mut numbers = numbers.map(|(name, keys)| (keys, hour[name].as_u64()));
    numbers
        .all(|(keys, found)| (keys.saturating_sub(1)..=keys).contains(&found.unwrap_or(u64::MAX)))
}

#[test]
fn a_key_is_refused_for_the_first_time_once() {
    let fixture = Fixture::new(PLANS);
    let mut page = stream(&fixture, "", "");
    check(&fixture, &json!({ "tenant": "a" }), 5);
    check(&fixture, &json!({ "tenant": "b" }), 5);
    let is = |keys: [u64; 3]| move |state: &Value| is_near(&state["limits"][0]["hour"], keys);
    await_state(&fixture, &mut page, is([2, 2, 2]));
    fixture.clock.advance(Nanos::from_secs(3_600));
    await_state(&fixture, &mut page, is([2, 2, 0]));
    check(&fixture, &json!({ "tenant": "a" }), 5);
    check(&fixture, &json!({ "tenant": "c" }), 5);
    check(&fixture, &json!({ "tenant": "e" }), 5);
    check(&fixture, &json!({ "tenant": "d" }), 1);
    await_state(&fixture, &mut page, is([5, 4, 2]));
}

const COUNTRIES: &str = r#"
version = 1

[client_ip]
trusted_proxies = ["10.0.0.0/8"]

[geo]
header = "cf-ipcountry"

[[limit]]
name   = "night"
match  = { country = ["NO", "SE"] }
key    = ["country"]
active = { hours = "01:00-06:00", timezone = "Europe/Oslo" }
limit  = "2/1h"
algorithm = "fixed-window"

[[limit]]
name   = "others"
match  = { country = "!NO" }
key    = ["country"]
limit  = "100/1h"
"#;

#[test]
fn countries_are_counted_by_hour() {
    let fixture = Fixture::new(COUNTRIES); // it is 01:00 in Oslo
    let mut http = fixture.http();
    let mut ask = |country: &str, times: usize| {
        let request = json!({ "ip": "10.0.0.1", "headers": { "cf-ipcountry": country } });
        let body = json!({ "request": request }).to_string();
        (0..times).for_each(|_| drop(http.post("/v1/check", &body)));
    };
    ask("NO", 5);
    ask("DE", 4);
    let mut page = stream(&fixture, "", "");
    let hours = |state: &Value, country: &str| {
        let rows = state["countries"]["countries"].as_array();
        let mut rows = rows.into_iter().flatten();
        let row = rows.find(|row| row["country"] == country);
        row.map_or(Value::Null, |row| row["hours"].clone())
    };
    let state = await_state(&fixture, &mut page, |state| {
        hours(state, "NO")[23] == json!([5, 3]) && hours(state, "DE")[23] == json!([4, 0])
    });
    assert_eq!(state["countries"]["since"], "2025-12-31T01:00:00Z");
    let top = fixture.admin().get("/v1/top").json();
    assert_eq!(top["countries"], state["countries"]);
    fixture.clock.advance(Nanos::from_secs(3_600));
    ask("NO", 1);
    let state = await_state(&fixture, &mut page, |state| {
        hours(state, "NO")[23] == json!([1, 0])
    });
    assert_eq!(hours(&state, "NO")[22], json!([5, 3]));

    let without = Fixture::new(PLANS);
    assert_eq!(
        without.admin().get("/v1/dashboard").json()["countries"],
        Value::Null
    );
}

const ELASTIC: &str = r#"
version = 1

[[limit]]
name  = "jobs"
key   = ["all"]
limit = "5/1h"
algorithm = "fixed-window"
elastic = { up_to = "15/1h", while = { signal = "queue", below = "50%" } }
"#;

#[test]
fn an_elastic_limit_has_its_factor_and_what_it_let_pass() {
    let fixture = Fixture::new(ELASTIC);
    let mut page = stream(&fixture, "", "");
    let elastic = |percent: u64, passed: u64| {
        move |state: &Value| {
            let one = &state["elastic"][0];
            one["percent"] == percent && one["passed"] == passed
        }
    };
    let closed = await_state(&fixture, &mut page, elastic(100, 0));
    let expected = json!({
        "limit": "jobs", "signal": "queue", "below": "50%", "open": false, "percent": 100, "passed": 0,
    });
    assert_eq!(closed["elastic"], json!([expected]));
    let level = br#"{"value":0.4,"expires_in_ms":3600000}"#;
    let set = fixture.admin().ask("PUT /v1/signals/queue", level);
    assert_eq!(set.status, 200, "{}", set.body);
    check(&fixture, &json!({}), 8);
    let open = await_state(&fixture, &mut page, elastic(300, 3));
    assert_eq!(open["signals"], json!({ "queue": "40 %" }));
}
