//! `/v1/auth`: the questions of proxies.

use ratekeeper_core::Nanos;

use super::Fixture;
use super::client::Talk;
use super::reviewed::assert_reviewed;

/// Every proxy on this machine is trusted, and the address that Envoy gives itself.
const POLICY: &str = r#"
version = 1

[client_ip]
trusted_proxies = ["127.0.0.0/8", "10.0.0.5"]

[[limit]]
name   = "login"
match  = { method = "POST", path = "/login" }
key    = ["ip"]
bucket = { size = 1, refill = "1/1m" }

[[limit]]
name   = "shop"
match  = { host = "shop.example" }
key    = ["ip"]
bucket = { size = 1, refill = "1/1m" }

[[limit]]
name   = "rehearsed"
match  = { path = "/shadow" }
key    = ["all"]
bucket = { size = 1, refill = "1/1h" }
mode   = "shadow"

[[limit]]
name   = "second-rehearsal"
match  = { path = "/shadow" }
key    = ["all"]
bucket = { size = 1, refill = "1/1h" }
mode   = "shadow"
"#;

#[test]
fn requests_of_nginx_are_decided() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let question = "GET /v1/auth?deny=403&body=none
        x-original-method: POST
        x-original-uri: /login?next=/
        x-forwarded-for: 192.0.2.1";
    talk.ask(&mut http, question, "");
    talk.ask(&mut http, question, "");
    talk.say("the visitor's own claims do not help: the rightmost address counts");
    let spoofed = question.replace("192.0.2.1", "198.51.100.1, 192.0.2.1");
    talk.ask(&mut http, &spoofed, "");
    talk.say("another visitor");
    talk.ask(&mut http, &question.replace("192.0.2.1", "192.0.2.2"), "");
    assert_reviewed!(talk.text());
}

#[test]
fn requests_of_caddy_and_traefik_are_decided() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let question = "GET /v1/auth
        x-forwarded-method: POST
        x-forwarded-uri: /login
        x-forwarded-host: shop.example
        x-forwarded-for: 192.0.2.1";
    talk.ask(&mut http, question, "");
    talk.ask(&mut http, question, "");
    talk.say("HEAD is answered alike, without a body");
    talk.ask(&mut http, &question.replace("GET", "HEAD"), "");
    assert_reviewed!(talk.text());
}

#[test]
fn requests_of_envoy_are_decided() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let question = "POST /v1/auth/login?deny=403
        host: shop.example
        x-forwarded-for: 192.0.2.1";
    talk.ask(&mut http, question, "");
    talk.ask(&mut http, question, "");
    assert_reviewed!(talk.text());
}

/// The request of Traefik's `forwardAuth`: the visitor's headers, and its own.
#[test]
fn requests_of_traefik_with_all_headers_are_decided() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let question = "GET /v1/auth
        Host: 127.0.0.1:8080
        User-Agent: curl/8.14.1
        Accept: */*
        Accept-Encoding: gzip
        X-Forwarded-For: 192.0.2.1
        X-Forwarded-Host: shop.example:8443
        X-Forwarded-Method: POST
        X-Forwarded-Port: 8443
        X-Forwarded-Proto: https
        X-Forwarded-Server: edge-1
        X-Forwarded-Uri: /login?next=%2F
        X-Real-Ip: 192.0.2.1";
    talk.ask(&mut http, question, "");
    talk.ask(&mut http, question, "");
    talk.say("another visitor, whatever its headers claim");
    let other = question
        .replace("For: 192.0.2.1", "For: 192.0.2.2")
        .replace(
            "X-Real-Ip: 192.0.2.1",
            "X-Real-Ip: 192.0.2.2\nForwarded: for=192.0.2.1",
        );
    talk.ask(&mut http, &other, "");
    assert_reviewed!(talk.text());
}

/// The request of Envoy's `ext_authz` over HTTP: method, path and host of the visitor, no body,
/// the headers it is set to pass on, and its own address at the end of `X-Forwarded-For`.
#[test]
fn requests_of_envoy_with_all_headers_are_decided() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    let question = "POST /v1/auth/login?next=%2F
        host: shop.example:8443
        content-length: 0
        x-envoy-internal: true
        x-forwarded-for: 192.0.2.1,10.0.0.5
        x-envoy-expected-rq-timeout-ms: 250";
    talk.ask(&mut http, question, "");
    talk.ask(&mut http, question, "");
    talk.say("another visitor, with an address before its own");
    let other = question.replace("192.0.2.1", "192.0.2.1, 192.0.2.2");
    talk.ask(&mut http, &other, "");
    assert_reviewed!(talk.text());
}

#[test]
fn a_problem_holds_the_status_of_its_response() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let question = |deny| {
        format!(
            "GET /v1/auth{deny}
            x-original-method: POST
            x-original-uri: /login"
        )
    };
    assert_eq!(http.ask(&question(""), b"").status, 200);
    for (deny, status) in [("", 429), ("?deny=403", 403), ("?deny=503", 503)] {
        let answer = http.ask(&question(deny), b"");
        let problem = answer.json();
        assert_eq!(answer.status, status, "{deny}");
        assert_eq!(problem["status"], status, "{deny}");
        assert_eq!(problem["title"], "Too many requests", "{deny}");
    }
}

#[test]
fn the_body_of_an_auth_request_is_ignored() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    for method in ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"] {
        let answer = http.ask(&format!("{method} /v1/auth/free"), b"ignored");
        assert_eq!(answer.status, 200, "{method}");
        assert_eq!(answer.body, "");
    }
}

#[test]
fn shadow_denials_are_reported() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    talk.ask(&mut http, "GET /v1/auth/shadow", "");
    talk.ask(&mut http, "GET /v1/auth/shadow", "");
    assert_reviewed!(talk.text());
}

#[test]
fn invalid_and_ambiguous_requests_are_refused() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    let mut talk = Talk::default();
    talk.ask(&mut http, "GET /v1/auth?denny=403", "");
    talk.ask(&mut http, "GET /v1/auth?deny=200", "");
    talk.ask(
        &mut http,
        "GET /v1/auth\nx-original-uri: /free\nx-forwarded-uri: /login",
        "",
    );
    talk.ask(
        &mut http,
        "GET /v1/auth\nx-original-uri: /free\nx-original-uri: /login",
        "",
    );
    assert_reviewed!(talk.text());
}

#[test]
fn an_untrusted_peer_is_limited_by_its_own_address() {
    let policy = r#"
        version = 1
        [[limit]]
        name   = "each"
        key    = ["ip", "path"]
        bucket = { size = 1, refill = "1/1h" }
    "#;
    let fixture = Fixture::new(policy);
    let mut http = fixture.http();
    let question = "GET /v1/auth\nx-original-uri: /a\nx-forwarded-for: 192.0.2.1";
    assert_eq!(http.ask(question, b"").status, 200);
    let other = question
        .replace(": /a", ": /b")
        .replace("192.0.2.1", "192.0.2.2");
    assert_eq!(
        http.ask(&other, b"").status,
        429,
        "the headers changed, the caller did not"
    );
    let notice = fixture.await_event(|event| {
        let text = event.to_string();
        text.contains("RK-W101").then_some(text)
    });
    assert!(notice.contains("127.0.0.1"), "{notice}");
    // Once an hour of the service.
    for (seconds, notices) in [(3_599, 1), (1, 2), (1, 2), (3_600, 3)] {
        fixture.clock.advance(Nanos::from_secs(seconds));
        fixture.http().ask(question, b"");
        let state = fixture.admin().get("/v1/dashboard").body;
        assert_eq!(state.matches("RK-W101").count(), notices, "{state}");
    }
}

#[test]
fn shaping_returns_the_delay() {
    let paced = r#"
        version = 1
        [[limit]]
        name   = "paced"
        key    = ["all"]
        bucket = { size = 1, refill = "1/1s" }
        queue  = { max = 2, max_wait = "2s", order = "fifo" }
    "#;
    for (mode, expected) in [
        (
            "enforce",
            [
                (200, None),
                (200, Some("1000")),
                (200, Some("2000")),
                (429, None),
            ],
        ),
        ("shadow", [(200, None); 4]),
    ] {
        let fixture = Fixture::new(&format!("{paced}mode = \"{mode}\"\n"));
        let mut http = fixture.http();
        for expected in expected {
            let answer = http.get("/v1/auth?wait=false");
            let delay = answer.header("x-ratekeeper-delay-ms");
            assert_eq!((answer.status, delay), expected, "{mode}");
        }
    }
}
