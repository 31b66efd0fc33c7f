//! Metrics of limits: the counts of plans, bans, hours and reports, and when each begins.

use ratekeeper_core::Nanos;

use super::client::Client;
use super::promtool::prove;
use super::{Fixture, PATIENCE};

const POLICY: &str = r#"
version = 1

[plan]
from    = "attr:plan"
default = "free"

[[limit]]
name  = "api"
key   = ["attr:tenant"]
missing_key = "skip"
bucket = { size = 10, refill = "1/1h" }
plans = { pro = "1/1h burst 20", team = "1/1h burst 20", internal = "unlimited" }

[[limit]]
name  = "login"
key   = ["attr:user"]
missing_key = "skip"
bucket = { size = 1, refill = "1/1h" }
ban   = { after = 1, within = "1h", for = "2h" }

[[limit]]
name  = "messages"
key   = ["attr:sender"]
missing_key = "skip"
limit = "1/1h"
soft  = { extra = "100%" }

[[limit]]
name  = "night"
key   = ["attr:land"]
missing_key = "skip"
limit = "10/1m"
active = { hours = "01:00-06:00", timezone = "Europe/Oslo" }

[[limit]]
name  = "failures"
match = { path = "/login" }
key   = ["path"]
bucket = { size = 100, refill = "1/1h" }
count = { status = [401] }
"#;

fn ask(http: &mut Client, attributes: &str, cost: u64) {
    let body = format!(r#"{{"attributes":{{{attributes}}},"cost":{cost}}}"#);
    http.post("/v1/check", &body);
}

fn scrape(fixture: &Fixture) -> String {
    fixture.admin().get("/metrics").body
}

/// Asserts that a scrape has each of the lines.
fn has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.contains(&format!("{line}\n")), "{line}\n{text}");
    }
}

/// Waits for a scrape with a line.
fn wait_for(fixture: &Fixture, line: &str) {
    let mut tries = 0;
    while !scrape(fixture).contains(&format!("{line}\n")) {
        tries += 1;
        assert!(
            tries < PATIENCE.as_millis() / 50,
            "{line}\n{}",
            scrape(fixture)
        );
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
}

#[test]
fn what_a_limit_may_do_is_counted_from_zero() {
    let text = scrape(&Fixture::new(POLICY));
    has(
        &text,
        &[
            r#"ratekeeper_decisions_total{limit="messages",outcome="covered",mode="enforce"} 0"#,
            r#"ratekeeper_units_total{limit="messages",outcome="covered",mode="enforce"} 0"#,
            r#"ratekeeper_bans_total{limit="login",mode="enforce"} 0"#,
            r#"ratekeeper_banned_requests_total{limit="login",mode="enforce"} 0"#,
            r#"ratekeeper_bans_active{limit="login"} 0"#,
            r#"ratekeeper_plan_decisions_total{limit="api",plan="pro",outcome="denied"} 0"#,
            r#"ratekeeper_plan_near_limit_total{limit="api",plan="pro"} 0"#,
            "ratekeeper_reports_expected_total 0",
        ],
    );
    for absent in [
        r#"{limit="api",outcome="covered""#,
        r#"bans_active{limit="api""#,
        r#"plan="free""#,
        r#"plan="internal""#,
        r#"path="store""#,
    ] {
        assert!(!text.contains(absent), "{absent}\n{text}");
    }
    prove(&["check", "metrics"], &text);
}

#[test]
fn decisions_with_the_numbers_of_a_plan_are_counted_apart_too() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    ask(&mut http, r#""tenant":"acme","plan":"pro""#, 17);
    ask(&mut http, r#""tenant":"acme","plan":"pro""#, 17);
    ask(&mut http, r#""tenant":"other","plan":"team""#, 1);
    ask(&mut http, r#""tenant":"small""#, 9);
    has(
        &scrape(&fixture),
        &[
            // Two plans with equal numbers have series of their own.
            r#"ratekeeper_plan_decisions_total{limit="api",plan="pro",outcome="allowed"} 1"#,
            r#"ratekeeper_plan_decisions_total{limit="api",plan="team",outcome="allowed"} 1"#,
            r#"ratekeeper_plan_decisions_total{limit="api",plan="pro",outcome="denied"} 1"#,
            r#"ratekeeper_plan_near_limit_total{limit="api",plan="pro"} 1"#,
            r#"ratekeeper_decisions_total{limit="api",outcome="allowed",mode="enforce"} 3"#,
            r#"ratekeeper_decisions_total{limit="api",outcome="denied",mode="enforce"} 1"#,
            r#"ratekeeper_units_total{limit="api",outcome="allowed",mode="enforce"} 27"#,
            r#"ratekeeper_near_limit_total{limit="api"} 2"#,
        ],
    );
}

#[test]
fn the_policy_says_from_where_a_request_is_near() {
    let settings = "version = 1\n[metrics]\nnear_percent = 95";
    let fixture = Fixture::new(&POLICY.replace("version = 1", settings));
    let mut http = fixture.http();
    let near = |count| format!(r#"ratekeeper_near_limit_total{{limit="api"}} {count}"#);
    ask(&mut http, r#""tenant":"small""#, 9);
    has(&scrape(&fixture), &[&near(0)]);
    ask(&mut http, r#""tenant":"small""#, 1);
    has(&scrape(&fixture), &[&near(1)]);
    // A reload keeps the count.
    let policy = POLICY.replace("version = 1", "version = 1\n[metrics]\nnear_percent = 50");
    std::fs::write(fixture.path("ratekeeper.toml"), policy).unwrap();
    assert_eq!(fixture.admin().post("/v1/reload", "").status, 200);
    ask(&mut http, r#""tenant":"third""#, 6);
    has(&scrape(&fixture), &[&near(2)]);
}

#[test]
fn bans_are_counted_while_they_stand() {
    let fixture = Fixture::new(POLICY);
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    let active = |count| format!(r#"ratekeeper_bans_active{{limit="login"}} {count}"#);
    for user in ["ada", "bob", "cy"] {
        for _ in 0..4 {
            ask(&mut http, &format!(r#""user":"{user}""#), 1);
        }
    }
    has(
        &scrape(&fixture),
        &[
            &active(3),
            r#"ratekeeper_bans_total{limit="login",mode="enforce"} 3"#,
            r#"ratekeeper_banned_requests_total{limit="login",mode="enforce"} 6"#,
            r#"ratekeeper_decisions_total{limit="login",outcome="denied",mode="enforce"} 9"#,
        ],
    );
    for _ in 0..4 {
        ask(&mut http, r#""user":"dan""#, 1);
    }
    has(&scrape(&fixture), &[&active(4)]);
    admin.ask("DELETE /v1/bans?limit=login&key=ada", b"");
    admin.ask("DELETE /v1/keys/login?key=bob", b"");
    has(&scrape(&fixture), &[&active(2)]);
    admin.post("/v1/reset", r#"{"attributes":{"user":"dan"}}"#);
    has(&scrape(&fixture), &[&active(1)]);
    fixture.clock.advance(Nanos::from_secs(2 * 3_600));
    wait_for(&fixture, &active(0));
    // A limit that bans no more has no bans, and none when it bans again.
    ask(&mut http, r#""user":"cy""#, 1);
    ask(&mut http, r#""user":"cy""#, 1);
    has(&scrape(&fixture), &[&active(1)]);
    let line = POLICY
        .lines()
        .find(|line| line.starts_with("ban "))
        .unwrap();
    for policy in [POLICY.replace(line, ""), POLICY.to_owned()] {
        std::fs::write(fixture.path("ratekeeper.toml"), policy).unwrap();
        assert_eq!(admin.post("/v1/reload", "").status, 200);
    }
    has(&scrape(&fixture), &[&active(0)]);
}

#[test]
fn a_ban_ends_while_its_limit_still_refuses() {
    let fixture = Fixture::new(&POLICY.replace("for = \"2h\"", "for = \"1s\""));
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    let active = |count| format!(r#"ratekeeper_bans_active{{limit="login"}} {count}"#);
    ask(&mut http, r#""user":"ada""#, 1);
    ask(&mut http, r#""user":"ada""#, 1);
    has(&scrape(&fixture), &[&active(1)]);
    let listed = admin.get("/v1/bans?limit=login").json();
    assert_eq!(listed["bans"][0]["ends_after_ms"], 1_000, "{listed}");
    fixture.clock.advance(Nanos::from_secs(2));
    wait_for(&fixture, &active(0));
}

#[test]
fn a_limit_with_hours_shows_whether_it_applies() {
    let fixture = Fixture::new(POLICY);
    let active = |is: u8| format!(r#"ratekeeper_limit_active{{limit="night"}} {is}"#);
    has(&scrape(&fixture), &[&active(1)]); // 01:00 in Norway
    fixture.clock.advance(Nanos::from_secs(5 * 3_600));
    has(&scrape(&fixture), &[&active(0)]);
}

#[test]
fn decisions_that_a_report_may_correct_are_counted() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let login = r#"{"request":{"path":"/login"}}"#;
    http.post("/v1/check", login);
    let decision = http.post("/v1/check", login).json()["decision"].clone();
    ask(&mut http, r#""tenant":"acme""#, 1);
    http.post(
        "/v1/report",
        &format!(r#"{{"decision":{decision},"status":200}}"#),
    );
    has(
        &scrape(&fixture),
        &[
            "ratekeeper_reports_expected_total 2",
            r#"ratekeeper_reports_total{result="corrected"} 1"#,
        ],
    );
}

#[test]
fn exempt_requests_are_counted_by_limit() {
    let exempt = "[[exempt]]\nlimits = [\"api\", \"failures\"]\nmatch = { path = \"/login\" }\n\
                  [[limit]]\nname = \"also\"\nkey = [\"all\"]\nlimit = \"1/1h\"\nmode = \"shadow\"\n\
                  [[exempt]]\nlimits = [\"also\"]\nmatch = { method = \"OPTIONS\" }\n";
    let fixture = Fixture::new(&format!("{POLICY}{exempt}"));
    let exempt = |limit: &str, mode: &str, count: u8| {
        let labels = format!(r#"limit="{limit}",outcome="exempt",mode="{mode}""#);
        format!("ratekeeper_decisions_total{{{labels}}} {count}")
    };
    let (api, also) = (exempt("api", "enforce", 0), exempt("also", "shadow", 0));
    let text = scrape(&fixture);
    has(&text, &[&api, &also, &exempt("failures", "enforce", 0)]);
    assert!(
        !text.contains(r#"limit="login",outcome="exempt""#),
        "{text}"
    );
    assert!(
        !text.contains(r#"units_total{limit="api",outcome="exempt""#),
        "{text}"
    );

    let mut http = fixture.http();
    for (method, path) in [("GET", "/login"), ("OPTIONS", "/login"), ("GET", "/other")] {
        let request = format!(r#"{{"request":{{"method":"{method}","path":"{path}"}}}}"#);
        http.post("/v1/check", &request);
        http.post("/v1/peek", &request);
    }
    // `api` is not for requests without a tenant, but would be asked.
    let (api, also) = (exempt("api", "enforce", 2), exempt("also", "shadow", 1));
    let text = scrape(&fixture);
    has(&text, &[&api, &also, &exempt("failures", "enforce", 2)]);
    prove(&["check", "metrics"], &text);
}

#[test]
fn decisions_without_the_store_are_counted_by_limit_and_choice() {
    let store = "version = 1\n[store.redis]\nurl = \"redis://127.0.0.1:1\"\n";
    let limit = |name: &str, more: &str| {
        let key = format!("key = [\"attr:{name}\"]\nmissing_key = \"skip\"");
        format!("[[limit]]\nname = \"{name}\"\n{key}\nlimit = \"1/1h\"\n{more}\n")
    };
    let policy = [
        limit("own", ""),
        limit("open", "on_store_error = \"allow\""),
        limit("shut", "on_store_error = \"deny\""),
        limit("tried", "on_store_error = \"deny\"\nmode = \"shadow\""),
    ];
    let fixture = Fixture::new(&format!("{store}{}", policy.concat()));
    let counted = |limit: &str, outcome: &str, count: u8| {
        let mode = if limit == "tried" {
            "shadow"
        } else {
            "enforce"
        };
        let labels = format!(r#"limit="{limit}",outcome="{outcome}",mode="{mode}""#);
        format!("ratekeeper_decisions_total{{{labels}}} {count}")
    };
    let text = scrape(&fixture);
    has(
        &text,
        &[
            &counted("open", "fail_open", 0),
            &counted("shut", "fail_closed", 0),
        ],
    );
    for absent in [
        r#"limit="own",outcome="fail"#,
        r#"limit="open",outcome="fail_closed""#,
    ] {
        assert!(!text.contains(absent), "{absent}\n{text}");
    }
    let mut http = fixture.http();
    let refused = http.post("/v1/check", r#"{"attributes":{"shut":"b"}}"#);
    assert_eq!(
        (refused.status, refused.json()["without_store"].as_bool()),
        (429, Some(true))
    );
    assert_eq!(
        (refused.header("ratelimit"), refused.header("retry-after")),
        (None, Some("1"))
    );
    for attributes in [
        r#""open":"a","own":"a""#,
        r#""open":"a","tried":"a""#,
        r#""open":"a","shut":"a""#,
        r#""own":"a""#,
    ] {
        ask(&mut http, attributes, 1);
    }
    has(
        &scrape(&fixture),
        &[
            &counted("open", "fail_open", 2), // the third was refused
            &counted("open", "allowed", 0),
            &counted("tried", "fail_closed", 1),
            &counted("shut", "fail_closed", 2),
            &counted("shut", "denied", 0),
            &counted("own", "allowed", 1),
            &counted("own", "denied", 1),
            r#"ratekeeper_units_total{limit="open",outcome="fail_open",mode="enforce"} 2"#,
        ],
    );
}

#[test]
fn reservations_are_settled_or_expire() {
    let policy = "version = 1\n[[limit]]\nname = \"tokens\"\nkey = [\"all\"]\n\
                  bucket = { size = 10000, refill = \"1/1h\" }\n\
                  cost = { reserve = \"attr:max\", expire = \"2m\" }\n";
    let fixture = Fixture::new(policy);
    let mut http = fixture.http();
    let mut reserve = |max: u32| {
        let body = format!(r#"{{"attributes":{{"max":"{max}"}}}}"#);
        fixture.http().post("/v1/check", &body).json()["decision"].clone()
    };
    let mut report = |decision: &serde_json::Value, cost: u32| {
        let body = format!(r#"{{"decision":{decision},"cost":{cost}}}"#);
        http.post("/v1/report", &body).status
    };
    let shows = |units: u32, results: [u8; 5]| {
        let names = ["ok", "over_reserve", "late", "expired", "elsewhere"];
        let mut lines = vec![format!(
            r#"ratekeeper_reserved_units{{limit="tokens"}} {units}.0"#
        )];
        lines.extend(names.iter().zip(results).map(|(result, count)| {
            let labels = format!(r#"limit="tokens",result="{result}""#);
            format!("ratekeeper_settlements_total{{{labels}}} {count}")
        }));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        has(&scrape(&fixture), &lines);
    };
    shows(0, [0; 5]);
    let [first, second, third, fourth] = [400, 100, 30, 5].map(&mut reserve);
    shows(535, [0; 5]);
    assert_eq!(report(&first, 63), 200);
    assert_eq!(report(&second, 1_500), 200);
    assert_eq!(report(&second, 1), 200, "repeated");
    shows(35, [1, 1, 0, 0, 0]);
    fixture.clock.advance(Nanos::from_secs(119));
    assert_eq!(report(&third, 30), 200);
    shows(5, [2, 1, 0, 0, 0]);
    fixture.clock.advance(Nanos::from_secs(4));
    shows(0, [2, 1, 0, 1, 0]);
    assert_eq!(report(&fourth, 5), 410);
    shows(0, [2, 1, 1, 1, 0]);
    // A reload with another time closes the open reservations.
    reserve(7);
    std::fs::write(fixture.path("ratekeeper.toml"), policy.replace("2m", "3m")).unwrap();
    assert_eq!(fixture.admin().post("/v1/reload", "").status, 200);
    shows(0, [2, 1, 1, 2, 0]);
    // Of one that stays the counts do.
    reserve(7);
    assert_eq!(fixture.admin().post("/v1/reload", "").status, 200);
    shows(7, [2, 1, 1, 2, 0]);
}
