//! The dashboard: its files, the access to its state, and the stream of states.

use std::io::BufRead as _;

use super::Fixture;
use super::client::Client;
use ratekeeper_core::Nanos;
use ratekeeper_policy::AdminWrites;
use ratekeeper_server::Event;
use serde_json::{Value, json};

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
    assert_eq!(admin.get("/v1/dashboard/stream").status, 401);
    for path in ["/v1/dashboard", "/v1/history?limit=login"] {
        assert_eq!(admin.get(path).status, 401, "{path}");
        let head = format!("GET {path}\nauthorization: Bearer open-sesame");
        assert_eq!(admin.ask(&head, b"").status, 200, "{path}");
    }
    assert_eq!(admin.post("/dashboard", "").status, 405);
}

#[test]
fn the_state_has_times_memory_and_requests_near_a_limit() {
    let fixture = Fixture::new(&POLICY.replace("size = 1", "size = 3"));
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
        for path in ["/v1/dashboard", "/v1/dashboard/stream"] {
            let answer = admin.ask(&format!("GET {path}\n{field}"), b"");
            assert_eq!(answer.status, 403, "{path} {field}");
        }
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
    assert_eq!(admin.post("/v1/reload", "").status, 200);
    std::fs::write(fixture.path("ratekeeper.toml"), "version = 7").unwrap();
    assert_eq!(admin.post("/v1/reload", "").status, 422);
    fixture.clock.advance(Nanos::from_secs(1)); // the state is made once a second
    let state = admin.get("/v1/dashboard").json();
    for change in state["changes"].as_array().unwrap() {
        let by = change["by"].as_str();
        assert!(
            by.is_some_and(|by| by.starts_with("127.0.0.1:")),
            "{change}"
        );
    }
    let texts = state["changes"].as_array().unwrap().iter();
    let texts: Vec<_> = texts
        .map(|change| change["text"].as_str().unwrap())
        .collect();
    assert!(
        texts[0].starts_with("policy refused (by request)"),
        "{texts:?}"
    );
    assert_eq!(
        texts[1..],
        [
            "key ip=192.0.2.1 of limit login freed of its ban",
            "key ip=192.0.2.1 of limit login banned",
            "reset: login (ip=192.0.2.1)",
        ]
    );
}

/// Both by the old text and by a new one; `top` notes an error for 15 minutes.
#[test]
fn a_policy_that_was_repaired_ends_its_own_error() {
    for repaired in [POLICY.to_owned(), format!("{POLICY}# new\n")] {
        let fixture = Fixture::new(POLICY);
        let mut admin = fixture.admin();
        let mut errors = || {
            fixture.clock.advance(Nanos::from_secs(1)); // the state is made once a second
            let state = admin.get("/v1/dashboard").json();
            let changes = state["changes"].as_array().unwrap().iter();
            let errors = changes.filter(|change| change["kind"] == "error").count();
            let notes = admin.get("/v1/top").json()["notes"].clone();
            (errors, notes.as_array().unwrap().len())
        };
        assert_eq!(errors(), (0, 0));
        let mut write = fixture.admin();
        for (text, status, expected) in [("version = 7", 422, (1, 2)), (&*repaired, 200, (0, 0))] {
            std::fs::write(fixture.path("ratekeeper.toml"), text).unwrap();
            assert_eq!(write.post("/v1/reload", "").status, status);
            assert_eq!(errors(), expected, "{text}");
        }
    }
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

/// Opens a stream; returns its connection behind the head of the answer.
pub(super) fn stream(fixture: &Fixture, query: &str, fields: &str) -> Client {
    let mut client = fixture.admin();
    client.send(&format!("GET /v1/dashboard/stream{query}{fields}"), b"");
    let answer = client.answer(true);
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    client
}

/// Returns the next state of a stream; `None` at its end.
pub(super) fn next_state(client: &mut Client) -> Option<Value> {
    let mut line = String::new();
    loop {
        line.clear();
        client.stream.read_line(&mut line).unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            assert!(line.ends_with('\n'), "a state is one line");
            return Some(serde_json::from_str(data).unwrap());
        }
        if line == "0\r\n" || line.is_empty() {
            return None; // the last chunk
        }
    }
}

#[test]
fn a_stream_has_a_state_each_second_with_the_chosen_limit() {
    let fixture = Fixture::with(KEYS, |mut config| {
        config.admin_token = Some("open-sesame".into());
        config
    });
    let token = "\nauthorization: Bearer open-sesame";
    let request = r#"{"request":{"path":"/network","ip":"2001:db8::1"}}"#;
    let mut admin = fixture.admin();
    let mut minute = || {
        let head = format!("GET /v1/history?limit=by-network{token}");
        admin.ask(&head, b"").json()["minutes"][0].clone()
    };
    while minute().is_null() {} // the counters are read for the first time
    for _ in 0..3 {
        fixture.http().post("/v1/check", request);
    }
    while minute() != json!([2, 1, 0]) {}
    let mut pages = [
        stream(&fixture, "?limit=by-key", token),
        stream(&fixture, "", token),
        stream(&fixture, "?limit=gone", token),
    ];
    for (page, limit) in pages.iter_mut().zip(["by-key", "by-network", "by-network"]) {
        for _ in 0..2 {
            let state = next_state(page).expect("it goes on");
            assert_eq!(state["state"]["limits"][0]["name"], "by-network");
            assert_eq!(
                state["limit"]["name"], limit,
                "the one that refuses most, if none has the name"
            );
        }
    }
    let state = next_state(&mut pages[1]).expect("it goes on");
    assert_eq!(state["limit"]["top"]["keys"][0]["denied"]["count"], 1);
    assert_eq!(state["limit"]["bans"], Value::Null, "it has no bans");
    for (head, status) in [
        ("GET /v1/dashboard/stream?limits=a", 400),
        ("POST /v1/dashboard/stream", 405),
        ("HEAD /v1/dashboard/stream", 405),
    ] {
        let answer = admin.ask(&format!("{head}{token}"), b"");
        assert_eq!(answer.status, status, "{head}");
    }
}

#[test]
fn streams_leave_connections_for_other_calls() {
    let fixture = Fixture::new(POLICY);
    let mut pages: Vec<_> = (0..32).map(|_| stream(&fixture, "", "")).collect();
    for page in &mut pages {
        assert!(next_state(page).is_some());
    }
    let mut admin = fixture.admin();
    let refused = fixture.admin().get("/v1/dashboard/stream");
    assert_eq!(refused.status, 503);
    assert_eq!(refused.json()["code"], "RK0527");
    let detail = "32 dashboards are open, and 32 may be at once; close one of them";
    assert_eq!(refused.json()["detail"], detail);
    for path in ["/healthz", "/metrics", "/v1/top"] {
        assert_eq!(fixture.admin().get(path).status, 200, "{path}");
    }
    fixture.clock.advance(Nanos::from_secs(1));
    assert_eq!(admin.get("/v1/dashboard").json()["streams"], 32);
    drop(pages.pop());
    let room = || {
        fixture.clock.advance(Nanos::from_secs(1)); // the state is made once a second
        let state = fixture.admin().get("/v1/dashboard").json();
        state["streams"] == 31
    };
    let mut looks = (0..100_000).map(|_| room());
    assert!(
        looks.any(|is_there| is_there),
        "a page that leaves makes room"
    );
    let mut page = stream(&fixture, "", "");
    assert!(next_state(&mut page).is_some());
}

#[test]
fn a_stop_ends_streams_at_once() {
    // So long that a busy machine asks in time.
    let fixture = Fixture::new(&POLICY.replace("[listen]", "[listen]\ndrain = \"3s\""));
    let mut page = stream(&fixture, "", "");
    assert!(next_state(&mut page).is_some());
    // A request that is half received keeps the service from ending.
    let mut busy = fixture.http();
    assert_eq!(busy.post("/v1/check", LOGIN).status, 200);
    busy.send(
        "POST /v1/check\ncontent-length: 2\nexpect: 100-continue",
        b"",
    );
    let mut line = String::new();
    busy.stream.read_line(&mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    let mut admin = fixture.admin();
    assert_eq!(admin.get("/readyz").status, 200);
    fixture.service.stop();
    assert_eq!(admin.get("/readyz").status, 503, "it drains");
    let refused = fixture.admin().get("/v1/dashboard/stream");
    assert_eq!(refused.status, 503);
    assert!(
        refused.body.contains("the service is stopping"),
        "{}",
        refused.body
    );
    while next_state(&mut page).is_some() {}
    drop(busy);
    fixture.await_event(|event| matches!(event, Event::Stopped).then_some(()));
    fixture.service.wait();
}
