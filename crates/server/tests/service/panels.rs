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
        state["seconds"]
            .as_array()
            .is_some_and(|all| !all.is_empty())
    });
    let api = &quiet["limits"][0];
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
        state["limits"][0]["highest_percent"] == 75
    });
    assert_eq!(state["limits"][1]["highest_percent"], 70);
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
    let state = await_state(&fixture, &mut page, |state| {
        state["limits"][0]["highest_percent"] == 100
    });
    let [api, pages] = [&state["limits"][0], &state["limits"][1]];
    assert_eq!(
        api["plans"],
        json!([["pro", 0], ["team", 2], ["(other)", 7]])
    );
    assert_eq!(
        pages["shed"], 2,
        "room was left for priority; then it was spent"
    );
    assert_eq!(
        api["hour"],
        json!({ "keys": 3, "first": 3 }),
        "two of the limit, and one for all that are blocked"
    );
}

#[test]
fn a_key_is_refused_for_the_first_time_once() {
    let fixture = Fixture::new(PLANS);
    let mut page = stream(&fixture, "", "");
    check(&fixture, &json!({ "tenant": "a" }), 5);
    check(&fixture, &json!({ "tenant": "b" }), 5);
    let is = |keys: u64, first: u64| {
        move |state: &Value| state["limits"][0]["hour"] == json!({ "keys": keys, "first": first })
    };
    await_state(&fixture, &mut page, is(2, 2));
    fixture.clock.advance(Nanos::from_secs(3_600));
    await_state(&fixture, &mut page, is(2, 0));
    check(&fixture, &json!({ "tenant": "a" }), 5);
    check(&fixture, &json!({ "tenant": "c" }), 5);
    await_state(&fixture, &mut page, is(3, 1));
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
fn countries_are_counted_by_hour_with_the_hours_of_their_limits() {
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
    let row = |state: &Value, country: &str| {
        let rows = state["countries"]["countries"].as_array().cloned();
        let mut rows = rows.into_iter().flatten();
        rows.find(|row| row["country"] == country)
            .unwrap_or_default()
    };
    let state = await_state(&fixture, &mut page, |state| {
        row(state, "NO")["hours"][23] == json!([5, 3])
            && row(state, "DE")["hours"][23] == json!([4, 0])
    });
    let scheduled = |country: &str| row(&state, country)["scheduled"].clone();
    // The last 24 hours begin at 02:00 of the day before in Oslo.
    let mut night = [false; 24];
    night[..4].fill(true);
    night[23] = true;
    assert_eq!(scheduled("NO"), json!(night));
    assert_eq!(
        scheduled("DE"),
        json!(vec![false; 24]),
        "no limit with hours is for it"
    );
    assert_eq!(
        state["countries"]["scheduled"],
        json!([{ "limit": "night", "active": "01:00-06:00 in Europe/Oslo" }])
    );
    assert_eq!(state["countries"]["since"], "2025-12-31T01:00:00Z");
    assert_eq!(
        fixture.admin().get("/v1/top").json()["countries"],
        state["countries"]
    );

    fixture.clock.advance(Nanos::from_secs(3_600));
    ask("NO", 1);
    let state = await_state(&fixture, &mut page, |state| {
        row(state, "NO")["hours"][23] == json!([1, 0])
    });
    assert_eq!(row(&state, "NO")["hours"][22], json!([5, 3]));

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
