//! The dashboard: its files, and the access to its state.

use super::Fixture;
use ratekeeper_core::Nanos;
use ratekeeper_policy::AdminWrites;

const POLICY: &str = r#"
version = 1
reveal_keys = "raw"

[listen]
admin_writes = "open"

[[limit]]
name   = "login"
key    = ["ip"]
bucket = { size = 1, refill = "1/1h" }
ban    = { after = 9, within = "1h", for = "1h" }
"#;

const LOGIN: &str = r#"{"request":{"ip":"192.0.2.1"}}"#;

#[test]
fn the_files_need_no_token_and_the_state_does() {
    let fixture = Fixture::with(POLICY, |mut config| {
        config.admin_token = Some("open-sesame".into());
        config
    });
    let mut admin = fixture.admin();
    for (path, kind) in [
        ("/dashboard", "text/html; charset=utf-8"),
        ("/dashboard/style.css", "text/css; charset=utf-8"),
        ("/dashboard/script.js", "text/javascript; charset=utf-8"),
    ] {
        let answer = admin.get(path);
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(kind));
        assert_eq!(answer.header("x-frame-options"), Some("DENY"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        assert!(!answer.body.contains("open-sesame"));
    }
    for path in ["/v1/dashboard", "/v1/history?limit=login"] {
        assert_eq!(admin.get(path).status, 401, "{path}");
        let head = format!("GET {path}\nauthorization: Bearer open-sesame");
        assert_eq!(admin.ask(&head, b"").status, 200, "{path}");
    }
    assert_eq!(admin.post("/dashboard", "").status, 405);
}

#[test]
fn the_state_has_times_memory_and_requests_near_a_limit() {
    let fixture = Fixture::new(POLICY);
    for _ in 0..3 {
        fixture.http().post("/v1/check", LOGIN);
    }
    let state = fixture.admin().get("/v1/dashboard").json();
    let decided = state["times"]["decision"].as_array().unwrap();
    let counts = decided.iter().map(|bucket| bucket[1].as_u64().unwrap());
    assert_eq!(counts.sum::<u64>(), 3);
    assert_eq!(decided.last().unwrap()[0], serde_json::Value::Null);
    assert_eq!(state["limits"][0]["near"], 1);
    assert_eq!(state["memory"]["keys"], 1);
    assert_eq!(state["times"]["store"], serde_json::Value::Null);
    assert_eq!(state["reports"]["not_open"], 0);
}

#[test]
fn a_page_of_another_site_does_not_read_the_state() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    for field in [
        "origin: https://evil.example",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        let answer = admin.ask(&format!("GET /v1/dashboard\n{field}"), b"");
        assert_eq!(answer.status, 403, "{field}");
    }
    let own = admin.ask("GET /v1/dashboard\nsec-fetch-site: same-origin", b"");
    assert_eq!(own.status, 200);
    assert_eq!(own.header("cache-control"), Some("no-store"));
}

#[test]
fn resets_and_bans_are_among_the_changes() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    assert_eq!(admin.get("/v1/dashboard").json()["version"], 1);
    admin.post("/v1/reset", LOGIN);
    for method in ["POST", "DELETE"] {
        let span = if method == "POST" { "&for=1h" } else { "" };
        let head = format!("{method} /v1/bans?limit=login&key=192.0.2.1{span}");
        assert_eq!(admin.ask(&head, b"").status, 200);
    }
    fixture.clock.advance(Nanos::from_secs(1)); // the state is made once a second
    let state = admin.get("/v1/dashboard").json();
    let texts = state["changes"].as_array().unwrap().iter();
    let texts: Vec<_> = texts
        .map(|change| change["text"].as_str().unwrap())
        .collect();
    assert_eq!(
        texts[..3],
        [
            "key ip=192.0.2.1 of limit login freed of its ban",
            "key ip=192.0.2.1 of limit login banned",
            "reset: login (ip=192.0.2.1)",
        ]
    );
}

/// Keys of which no request can be made again: a hashed one, and a network.
const KEYS: &str = r#"
version = 1

[listen]
admin_writes = "open"

[[limit]]
name   = "by-key"
match  = { path = "/key" }
key    = ["api_key"]
bucket = { size = 2, refill = "1/1h" }

[[limit]]
name   = "by-network"
match  = { path = "/network" }
key    = ["ip"]
bucket = { size = 2, refill = "1/1h" }
"#;

#[test]
fn a_key_is_reset_as_the_lists_show_it() {
    let fixture = Fixture::new(KEYS);
    let (mut http, mut admin) = (fixture.http(), fixture.admin());
    for (limit, request) in [
        (
            "by-key",
            r#"{"request":{"path":"/key","headers":{"x-api-key":"abc"}}}"#,
        ),
        (
            "by-network",
            r#"{"request":{"path":"/network","ip":"2001:db8::1"}}"#,
        ),
    ] {
        for _ in 0..2 {
            assert_eq!(http.post("/v1/check", request).status, 200);
        }
        assert_eq!(http.post("/v1/check", request).status, 429);
        let listed = admin.get(&format!("/v1/keys?limit={limit}")).json();
        let part = listed["keys"][0]["key"][0].as_str().unwrap();
        let value = part.split_once('=').unwrap().1.to_owned();
        let reset = format!("DELETE /v1/keys/{limit}?key={value}");
        let answer = admin.ask(&reset, b"");
        assert_eq!(answer.status, 200, "{limit} {value}: {}", answer.body);
        assert_eq!(answer.json()["was_counted"], true);
        assert_eq!(admin.ask(&reset, b"").json()["was_counted"], false);
        assert_eq!(http.post("/v1/check", request).status, 200, "{limit}");
    }
    let missing = admin.ask("DELETE /v1/keys/by-key", b"");
    assert_eq!(missing.status, 400, "a reset needs the whole key");
    fixture.clock.advance(Nanos::from_secs(1));
    let state = admin.get("/v1/dashboard").json();
    let text = state["changes"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("reset: by-network (ip=~"), "{text}");
}

#[test]
fn a_reset_of_a_key_is_a_write() {
    let fixture = Fixture::with(POLICY, |mut config| {
        config.admin_writes = Some(AdminWrites::Token);
        config
    });
    let mut admin = fixture.admin();
    let refused = admin.ask("DELETE /v1/keys/login?key=192.0.2.1", b"");
    assert_eq!(refused.status, 403, "{}", refused.body);
}
