//! The admin door: whole answers, and access.

use std::io::Write;

use ratekeeper_core::Nanos;
use ratekeeper_server::{Config, Door, Event, Service, StartError};

use super::client::{Client, Talk};
use super::reviewed::assert_reviewed;
use super::{Fixture, masked};

const POLICY: &str = r#"
version = 1

[[limit]]
name   = "login"
match  = { path = "/login" }
key    = ["ip", "method"]
bucket = { size = 5, refill = "1/1m" }

[[limit]]
name   = "rehearsed"
match  = { path = "/login" }
key    = ["attr:user_id"]
bucket = { size = 1, refill = "1/1h" }
mode   = "shadow"
"#;

const LOGIN: &str = r#"{"request":{"method":"POST","path":"/login","ip":"192.0.2.1"}}"#;

#[test]
fn metrics_are_zero_from_the_start() {
    let fixture = Fixture::new(POLICY);
    let page = fixture.admin().get("/metrics").body;
    assert_reviewed!(masked(&page, &MASKS));
}

/// Parts that differ from one machine or build to the next.
const MASKS: [(&str, &str); 3] = [
    (r#"sha="[0-9a-f]{64}""#, r#"sha="[sha]""#),
    (
        r"ratekeeper_memory_bytes \d+",
        "ratekeeper_memory_bytes [bytes]",
    ),
    (r#""(sha|bytes)":("[0-9a-f]{64}"|\d+)"#, r#""$1":"[$1]""#),
];

#[test]
fn metrics_count_requests_and_decisions() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    for _ in 0..6 {
        http.post("/v1/check", LOGIN);
    }
    http.post("/v1/check", "{");
    http.post(
        "/v1/check",
        r#"{"request":{"path":"/login","ip":"192.0.2.2"},"cost":9}"#,
    );
    http.post("/v1/peek", LOGIN);
    let metrics = fixture.admin().get("/metrics").body;
    let counted: Vec<&str> = metrics
        .lines()
        .filter(|line| !line.starts_with('#') && !line.ends_with(" 0"))
        .filter(|line| !line.contains("_bucket") && !line.contains("_info"))
        .filter(|line| !line.contains("_bytes"))
        .collect();
    assert_reviewed!(counted.join("\n"));
}

#[test]
fn the_admin_listener_shows_health_policy_limits_and_keys() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    for ip in ["192.0.2.1", "192.0.2.1", "192.0.2.2"] {
        http.post("/v1/check", &LOGIN.replace("192.0.2.1", ip));
    }
    let mut admin = fixture.admin();
    let mut talk = Talk::default();
    for target in [
        "/healthz",
        "/readyz",
        "/v1/policy",
        "/v1/limits",
        "/v1/keys?limit=login",
        "/v1/keys?limit=login&top=1",
        "/v1/keys/login?key=192.0.2.1&key=POST",
        "/v1/keys/login?key=192.0.2.1&key=%50OST",
    ] {
        talk.ask(&mut admin, &format!("GET {target}"), "");
    }
    talk.ask(&mut admin, "POST /v1/reset", LOGIN);
    talk.ask(&mut admin, "POST /v1/refund", &LOGIN.replace("2.1", "2.2"));
    talk.ask(&mut admin, "POST /v1/reload", "");
    assert_reviewed!(masked(talk.text(), &MASKS));
}

#[test]
fn invalid_calls_are_refused() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    let mut talk = Talk::default();
    for head in [
        "GET /",
        "GET /v1/check",
        "POST /metrics",
        "GET /v1/reload",
        "POST /v1/keys/login?key=192.0.2.1",
        "GET /v1/keys",
        "GET /v1/keys?limit=logn",
        "GET /v1/keys?limit=login&top=0",
        "GET /v1/keys?limit=login&top=9999999999999999999999",
        "GET /v1/keys?limit=%ff",
        "GET /v1/keys?limits=login",
        "GET /v1/keys/nothing?key=a",
        "GET /v1/keys/login?key=192.0.2.77&key=POST",
        "GET /v1/keys/login",
    ] {
        talk.ask(&mut admin, head, "");
    }
    talk.say("the http listener");
    let mut http = fixture.http();
    for head in [
        "GET /",
        "GET /metrics",
        "GET /v1/check",
        "PUT /v1/check/batch",
        "GET /v1/reset",
        "POST /v1/authentic",
    ] {
        talk.ask(&mut http, head, "");
    }
    talk.ask(&mut http, "POST /v1/check?status=429", "{}");
    assert_reviewed!(talk.text());
}

#[test]
fn a_token_guards_everything_but_health() {
    let fixture = Fixture::with(POLICY, |mut config| {
        config.admin_token = Some("open-sesame".into());
        config
    });
    let mut admin = fixture.admin();
    let mut talk = Talk::default();
    talk.ask(&mut admin, "GET /v1/policy", "");
    assert_reviewed!(talk.text());
    for target in ["/healthz", "/readyz"] {
        assert_eq!(admin.get(target).status, 200, "{target}");
    }
    for target in ["/metrics", "/v1/limits", "/v1/keys?limit=login", "/nothing"] {
        assert_eq!(admin.get(target).status, 401, "{target}");
    }
    for (presented, status) in [
        ("Bearer open-sesame", 200),
        ("bearer open-sesame", 200),
        ("Bearer open-sesam", 401),
        ("Bearer open-sesame ", 200), // HTTP ignores white space at the end
        ("Basic open-sesame", 401),
        ("open-sesame", 401),
    ] {
        let head = format!("GET /metrics\nauthorization: {presented}");
        assert_eq!(admin.ask(&head, b"").status, status, "{presented}");
    }
    let guess = "POST /v1/reset\nx-forwarded-for: 192.0.2.1\nauthorization: Bearer guess";
    assert_eq!(fixture.http().ask(guess, LOGIN.as_bytes()).status, 403);
    let metrics = admin.ask("GET /metrics\nauthorization: Bearer open-sesame", b"");
    assert!(
        metrics
            .body
            .contains("ratekeeper_admin_wrong_tokens_total 4\n")
    );
    let mut http = fixture.http();
    let forwarded = "POST /v1/reset\nx-forwarded-for: 192.0.2.1\nauthorization: Bearer open-sesame";
    assert_eq!(http.ask(forwarded, LOGIN.as_bytes()).status, 200);
}

#[test]
fn a_key_is_found_by_the_plain_api_key() {
    let fixture = Fixture::new(
        r#"
version = 1

[[limit]]
name  = "per-key"
key   = ["api_key", "ip"]
limit = "30/1h"
"#,
    );
    let check = r#"{"request":{"ip":"2001:db8::7","headers":{"x-api-key":"k1"}}}"#;
    fixture.http().post("/v1/check", check);
    let mut admin = fixture.admin();
    let listed = admin.get("/v1/keys?limit=per-key").json();
    let listed = listed["keys"][0]["key"][0].as_str().unwrap().to_owned();
    let hash = listed.strip_prefix("api_key=").unwrap();
    for (key, ip) in [("k1", "2001:db8::9"), (hash, "2001:db8::%2F64")] {
        let target = format!("/v1/keys/per-key?key={key}&key={ip}");
        assert_eq!(admin.get(&target).json()["remaining"], 29, "{target}");
    }
    for wrong in ["key=k2&key=2001:db8::7", "key=k1&key=2001:db9::7"] {
        let answer = admin.get(&format!("/v1/keys/per-key?{wrong}"));
        assert_eq!(answer.status, 404, "{wrong}");
    }
    let answer = admin.get("/v1/keys/per-key?key=k1&key=a&key=b");
    assert_eq!(answer.status, 400, "{}", answer.body);
}

#[test]
fn metrics_come_in_the_format_that_is_accepted() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    let plain = admin.get("/metrics");
    assert_eq!(
        plain.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(
        plain
            .body
            .contains("# TYPE ratekeeper_requests_total counter\n")
    );
    assert!(!plain.body.contains("# EOF"));
    let open = admin.ask(
        "GET /metrics\naccept: application/openmetrics-text; version=1.0.0",
        b"",
    );
    let content_type = open.header("content-type").unwrap();
    assert!(content_type.starts_with("application/openmetrics-text"));
    assert!(open.body.contains("# TYPE ratekeeper_requests counter\n"));
    assert!(open.body.ends_with("# EOF\n"));
}

#[test]
fn calls_that_change_state_need_the_token_unless_the_policy_opens_them() {
    let closed = Fixture::with(POLICY, |mut config| {
        config.admin_writes = None;
        config
    });
    let open = format!("{POLICY}\n[listen]\nadmin_writes = \"open\"\n");
    let open = Fixture::with(&open, |mut config| {
        config.admin_writes = None;
        config
    });
    for target in ["/v1/reload", "/v1/reset", "/v1/refund"] {
        let refused = closed.admin().post(target, LOGIN);
        assert_eq!(refused.status, 403, "{target}: {}", refused.body);
        assert!(refused.body.contains("RATEKEEPER_ADMIN_TOKEN"), "{target}");
        assert_eq!(open.admin().post(target, LOGIN).status, 200, "{target}");
    }
    for target in ["/v1/reset", "/v1/refund"] {
        assert_eq!(closed.http().post(target, LOGIN).status, 403, "{target}");
        assert_eq!(open.http().post(target, LOGIN).status, 200, "{target}");
    }
    // Where a token is set, the http door wants it too.
    let guarded = Fixture::with(POLICY, |mut config| {
        config.admin_writes = None;
        config.admin_token = Some("open-sesame".into());
        config
    });
    assert_eq!(guarded.http().post("/v1/reset", LOGIN).status, 403);
    let presented = "POST /v1/reset\nauthorization: Bearer open-sesame";
    assert_eq!(guarded.http().ask(presented, LOGIN.as_bytes()).status, 200);
}

#[test]
fn web_pages_can_neither_change_nor_read_state() {
    let fixture = Fixture::new(POLICY);
    let mut admin = fixture.admin();
    for page in [
        "host: rebind.example:9090",
        "origin: https://evil.example",
        "origin: null",
        "sec-fetch-site: cross-site",
        "sec-fetch-site: same-site",
    ] {
        for target in ["GET /v1/keys?limit=login", "GET /metrics", "POST /v1/reset"] {
            let answer = admin.ask(&format!("{target}\n{page}"), LOGIN.as_bytes());
            assert_eq!(answer.status, 403, "{target} {page}: {}", answer.body);
        }
    }
    assert_eq!(admin.ask("GET /readyz\nhost: 10.1.2.3", b"").status, 200);
    let mut http = fixture.http();
    for page in ["origin: http://localhost", "sec-fetch-site: same-origin"] {
        for target in [
            "/v1/check",
            "/v1/check/batch",
            "/v1/peek",
            "/v1/acquire",
            "/v1/reset",
        ] {
            let answer = http.ask(&format!("POST {target}\n{page}"), LOGIN.as_bytes());
            assert_eq!(answer.status, 403, "{target} {page}: {}", answer.body);
        }
    }
    assert_eq!(
        http.post("/v1/peek", LOGIN).json()["limits"][0]["remaining"],
        5
    );
}

#[test]
fn a_request_has_one_host() {
    let fixture = Fixture::new(POLICY);
    for address in [Door::Http, Door::Admin].map(|door| fixture.service.address(door).unwrap()) {
        for (version, hosts, status) in [
            ("1.1", "", 400),
            ("1.1", "host: localhost\r\nhost: localhost\r\n", 400),
            ("1.1", "host: localhost\r\n", 404),
            ("1.0", "", 404),
            ("1.0", "host: localhost\r\nhost: b\r\n", 400),
        ] {
            let mut client = Client::new(address);
            let request = format!("GET /nothing HTTP/{version}\r\n{hosts}\r\n");
            client
                .stream
                .get_mut()
                .write_all(request.as_bytes())
                .unwrap();
            assert_eq!(client.answer(false).status, status, "{version} {hosts:?}");
        }
    }
}

#[test]
fn keys_come_and_go_with_time() {
    let fixture = Fixture::new(POLICY);
    fixture.http().post("/v1/check", LOGIN);
    let mut admin = fixture.admin();
    let target = "/v1/keys/login?key=192.0.2.1&key=POST";
    assert_eq!(admin.get(target).json()["remaining"], 4);
    fixture.clock.advance(Nanos::from_secs(60));
    assert_eq!(
        admin.get(target).status,
        404,
        "a key with a full balance is not shown"
    );
}

#[test]
fn the_name_of_a_limit_in_a_path_may_be_encoded() {
    let numbers = "limit = \"5/1m\"\nsoft = { extra = \"20%\" }";
    let policy = POLICY.replace("bucket = { size = 5, refill = \"1/1m\" }", numbers);
    let fixture = Fixture::new(&policy);
    fixture.http().post("/v1/check", LOGIN);
    let mut admin = fixture.admin();
    let keys = "key=192.0.2.1&key=POST";
    for name in ["login", "%6Cogin", "login+soft", "login%2Bsoft"] {
        let answer = admin.ask(&format!("DELETE /v1/keys/{name}?{keys}"), b"");
        let plain = name.replace("%6C", "l").replace("%2B", "+");
        assert_eq!(answer.json()["limit"], plain, "{}", answer.body);
    }
    assert_eq!(admin.get(&format!("/v1/keys/%?{keys}")).status, 400);
}

fn start_error(policy: &str, listen: &[&str]) -> StartError {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ratekeeper.toml");
    std::fs::write(&path, policy).unwrap();
    let mut config = Config::new(&path);
    for text in listen {
        config = config.listen(text).unwrap();
    }
    Service::start(&config).expect_err("the service must not start")
}

#[test]
fn start_errors_name_their_cause() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap();
    let error = start_error(POLICY, &[&format!("http={taken}"), "admin=off"]);
    assert!(
        matches!(error, StartError::InUse { ref address, .. } if address.to_string() == taken.to_string()),
        "{error}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("http address {taken} is in use")),
        "{text}"
    );

    let error = start_error(POLICY, &["http=off", "admin=0.0.0.0:0"]);
    assert!(matches!(error, StartError::AdminExposed(_)), "{error}");
    let error = start_error(POLICY, &["http=off", "admin=off"]);
    assert!(matches!(error, StartError::NoDoor), "{error}");
    let error = start_error("version = 1\nbrust = 3\n", &[]);
    assert!(
        matches!(&error, StartError::Policy { findings, .. } if !findings.is_empty()),
        "{error}"
    );
    for empty in ["", "\n \n"] {
        let error = start_error(empty, &[]);
        assert!(error.to_string().ends_with("the file is empty"), "{error}");
    }
    let error = Service::start(&Config::new("/nonexistent/ratekeeper.toml"));
    assert!(matches!(error, Err(StartError::Unreadable { .. })));
}

#[test]
fn listeners_open_to_the_network_are_reported() {
    let fixture = Fixture::with(POLICY, |config| config.listen("http=0.0.0.0:0").unwrap());
    let notice = fixture.await_event(|event| match event {
        Event::Notice(text) => Some(text),
        _ => None,
    });
    assert!(notice.contains("open to the network"), "{notice}");
}

#[test]
fn limits_show_their_helpers_and_their_exceptions() {
    let fixture = Fixture::new(
        r#"
version = 1
timezone = "UTC"

[[limit]]
name     = "accounts"
key      = ["header:x-device"]
distinct = "attr:account"
limit    = "5/day"

[[limit]]
name     = "api"
key      = ["ip"]
limit    = "10/1m"
priority = { last = "20%", match = { path = "/health" } }
"#,
    );
    let answer = fixture.admin().get("/v1/limits").json();
    let limits = answer["limits"].as_array().unwrap();
    let named = |name| limits.iter().find(|limit| limit["name"] == name).unwrap();
    assert_eq!(named("accounts")["distinct"], "attr:account");
    assert!(named("accounts")["part_of"].is_null());
    assert_eq!(named("accounts+seen")["part_of"], "accounts");
    assert_eq!(named("api")["priority"]["last_percent"], 20);
    assert!(named("api")["distinct"].is_null());
}
