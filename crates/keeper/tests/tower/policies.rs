//! Limits of a policy: matching, counting by client, shaping, fields and shadow mode.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;

use http::Request;
use ratekeeper::core::{Nanos, Permits};
use ratekeeper::tower::{Counts, Peer, PolicyError, RateLimitLayer};
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Log, Stage, clock, content, get, header, now, parsed, policy, poll, status};

const LOGINS: &str = r#"
[client_ip]
trusted_proxies = ["10.0.0.0/8"]
[[limit]]
name = "login"
match = { method = "POST", path = "/login", host = "shop.example" }
key = ["ip"]
limit = "2/1m"
algorithm = "token-bucket"
[[limit]]
name = "per-user"
key = ["attr:user", "query:tenant"]
limit = "3/1m"
algorithm = "token-bucket"
missing_key = "skip"
"#;

fn from(peer: &str, mut request: Request<()>) -> Request<()> {
    let peer: SocketAddr = format!("{peer}:4711").parse().unwrap();
    request.extensions_mut().insert(Peer(peer));
    request
}

fn post(uri: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = get(uri, headers);
    *request.method_mut() = http::Method::POST;
    request
}

#[test]
fn a_request_has_the_highest_of_its_prices() {
    let priced = r#"
        [[limit]]
        name = "points"
        key = ["ip"]
        limit = "20/1h"
        cost = [{ path = "/export/**", is = 10 }, { header.x-priority = "high", is = 5 }]
    "#;
    let layer = policy(priced, &clock());
    let mut service = layer.layer(Stage::default());
    for (request, expected) in [
        (post("/export/all", &[("x-priority", "high")]), 200), // 10
        (get("/", &[("x-priority", "high")]), 200),            // 5
        (get("/%65xport/all", &[]), 429),
        (post("/", &[]), 200), // 1
        (get("/", &[("x-priority", "high")]), 429),
    ] {
        let request = from("192.0.2.1", request);
        assert_eq!(status(&mut service, request), expected);
    }
}

#[test]
fn facts_are_those_of_the_request() {
    let layer = policy(LOGINS, &clock());
    let mut service = layer.layer(Stage::default());
    let mut ask = |request| status(&mut service, request);
    let host = ("host", "Shop.Example:8443");
    let absolute = "http://someone@shop.example/login?x=y";
    for (peer, request, expected) in [
        ("192.0.2.1", post("/login", &[host]), 200),
        ("192.0.2.1", post(absolute, &[]), 200),
        ("192.0.2.1", post("/%6cogin", &[host]), 429),
        ("192.0.2.1", get("/login", &[host]), 200),
        (
            "192.0.2.1",
            post("/login", &[("host", "other.example")]),
            200,
        ),
        ("192.0.2.2", post("/login", &[host]), 200),
        // Headers set by strangers are not believed, headers set by proxies are.
        (
            "192.0.2.1",
            post("/login", &[host, ("x-forwarded-for", "192.0.2.9")]),
            429,
        ),
        (
            "10.0.0.1",
            post("/login", &[host, ("x-forwarded-for", "192.0.2.1")]),
            429,
        ),
        (
            "10.0.0.1",
            post("/login", &[host, ("x-forwarded-for", "1.1.1.1, 192.0.2.1")]),
            429,
        ),
        (
            "10.0.0.1",
            post("/login", &[host, ("x-forwarded-for", "192.0.2.3")]),
            200,
        ),
    ] {
        let context = format!("{peer} {request:?}");
        assert_eq!(ask(from(peer, request)), expected, "{context}");
    }
}

#[test]
fn peers_and_attributes_come_from_the_configured_sources() {
    #[derive(Clone)]
    struct Connected(SocketAddr);
    let layer = policy(LOGINS, &clock())
        .peer_from(|connected: &Connected| Some(connected.0))
        .attributes(|head| {
            let user = head
                .headers
                .get("x-user")
                .and_then(|user| user.to_str().ok());
            Vec::from_iter(user.map(|user| ("user", user.to_owned())))
        });
    let mut service = layer.layer(Stage::default());
    let mut ask = |uri: &str, peer: u8, user: &str| {
        let mut request = post(uri, &[("host", "shop.example"), ("x-user", user)]);
        let peer = Connected(([192, 0, 2, peer], 80).into());
        request.extensions_mut().insert(peer);
        status(&mut service, request)
    };
    assert_eq!(
        [1, 1, 1, 2].map(|peer| ask("/login", peer, "")),
        [200, 200, 429, 200]
    );
    let mut user = |user| ask("/?tenant=t", 1, user);
    let users = ["ann", "ann", "ann", "ann", "bob"];
    assert_eq!(users.map(&mut user), [200, 200, 200, 429, 200]);
    assert_eq!(ask("/?tenant=u", 1, "ann"), 200);
}

/// A limit refuses what it cannot count by address, unless its `missing_key` is set, its mode is
/// shadow, or it finds another key.
#[test]
fn a_limit_by_address_refuses_requests_of_a_server_that_sets_none() {
    const BUCKET: &str = "limit = \"2/1m\"\nalgorithm = \"token-bucket\"\n";
    for (key, expected) in [
        ("key = [\"ip\"]", [500; 3]),
        ("key = [\"ip/24\", \"path\"]", [500; 3]),
        ("key = [\"header:x-user\"]", [500; 3]),
        ("key = [\"header:host\"]", [200, 200, 429]),
        ("key = [\"ip\"]\nmissing_key = \"shared\"", [200, 200, 429]),
        ("key = [\"ip\"]\nmissing_key = \"skip\"", [200; 3]),
        ("key = [\"ip\"]\nmissing_key = \"deny\"", [429; 3]),
        (
            "key = [\"ip\"]\nmissing_key = \"use:path\"",
            [200, 200, 429],
        ),
        ("key = [\"ip\"]\nmode = \"shadow\"", [200; 3]),
        ("key = [\"all\"]", [200, 200, 429]),
    ] {
        let layer = policy(
            &format!("[[limit]]\nname = \"a\"\n{key}\n{BUCKET}"),
            &clock(),
        );
        let mut service = layer.layer(Stage::default());
        let mut ask = || status(&mut service, get("/", &[("host", "shop.example")]));
        assert_eq!([ask(), ask(), ask()], expected, "{key}");
        let refused = expected.iter().filter(|status| **status != 200).count();
        assert_eq!(layer.counts().refused, refused as u64, "{key}");
    }
}

#[test]
fn refusals_are_configured_by_the_limit() {
    let text = r#"
[response.busy]
status = 503
detail = "Come back in {retry_after}."
[[limit]]
name = "busy"
key = ["all"]
limit = "1/1m"
algorithm = "token-bucket"
response = "busy"
"#;
    for (headers, expected) in [
        ("ietf", ["\"busy\";r=0;t=60", "-"]),
        ("legacy", ["-", "0"]),
        ("both", ["\"busy\";r=0;t=60", "0"]),
        ("off", ["-", "-"]),
    ] {
        let layer = policy(&format!("headers = \"{headers}\"\n{text}"), &clock());
        let mut service = layer.layer(Stage::default());
        let fields = |answer: &_| {
            let names = ["ratelimit", "x-ratelimit-remaining"];
            names.map(|name| header(answer, name).unwrap_or("-".into()))
        };
        let passed = now(&mut service, get("/", &[])).unwrap();
        assert_eq!(fields(&passed), expected);
        let refused = now(&mut service, get("/", &[])).unwrap();
        assert_eq!(refused.status(), 503);
        assert_eq!(fields(&refused), expected);
        assert_eq!(header(&refused, "retry-after").unwrap(), "60");
        let body = content(refused);
        assert!(body.contains("\"detail\":\"Come back in 60 s.\""), "{body}");
        let call = get("/", &[("content-type", "application/grpc")]);
        let refused = now(&mut service, call).unwrap();
        assert_eq!(
            header(&refused, "grpc-message").unwrap(),
            "Come back in 60 s."
        );
    }
}

#[test]
fn limits_in_shadow_mode_only_report() {
    let text = r#"
[[limit]]
name = "trial"
key = ["all"]
limit = "1/1m"
mode = "shadow"
[[limit]]
name = "held"
key = ["all"]
limit = "3/1m"
"#;
    let log = Log::default();
    let [shadowed, refused] = [Arc::clone(&log), Arc::clone(&log)];
    let layer = policy(text, &clock())
        .on_shadow(move |denial| {
            let names = denial.names().map(str::to_owned);
            shadowed.lock().unwrap().extend(names);
        })
        .on_refused(move |denial| {
            let name = denial.by().unwrap().name.to_string();
            refused.lock().unwrap().push(name);
        });
    let mut service = layer.layer(Stage::default());
    let mut ask = || {
        let answer = now(&mut service, get("/", &[])).unwrap();
        let shadow = header(&answer, "x-ratekeeper-shadow");
        (answer.status().as_u16(), shadow.unwrap_or_default())
    };
    let answers: Vec<_> = (0..4).map(|_| ask()).collect();
    let expected = [(200, ""), (200, "trial"), (200, "trial"), (429, "")];
    assert_eq!(
        answers,
        expected.map(|(status, shadow)| (status, shadow.to_owned()))
    );
    assert_eq!(*log.lock().unwrap(), ["trial", "trial", "held"]);
    let counts = Counts {
        passed: 3,
        refused: 1,
        shadowed: 2,
    };
    assert_eq!(layer.counts(), counts);
}

#[test]
fn a_queue_of_the_policy_delays_requests() {
    let clock = clock();
    let text = r#"
[[limit]]
name = "paced"
key = ["all"]
bucket = { size = 1, refill = "1/100ms" }
queue = { max = 2 }
"#;
    let stage = Stage::default();
    let mut service = policy(text, &clock).layer(stage.clone());
    let mut calls: Vec<_> = (0..4)
        .map(|_| Some(Box::pin(service.call(get("/", &[])))))
        .collect();
    let mut statuses = || -> Vec<_> {
        let polled = calls
            .iter_mut()
            .map(|call| match call.as_mut().map(|it| poll(it.as_mut())) {
                Some(Poll::Ready(answer)) => {
                    *call = None;
                    Some(answer.unwrap().status().as_u16())
                }
                _ => None,
            });
        polled.collect()
    };
    assert_eq!(statuses(), [Some(200), None, None, Some(429)]);
    clock.advance(Nanos::from_millis(99));
    assert_eq!(statuses(), [None; 4]);
    clock.advance(Nanos::from_millis(1));
    assert_eq!(statuses(), [None, Some(200), None, None]);
    clock.advance(Nanos::from_millis(100));
    assert_eq!(statuses(), [None, None, Some(200), None]);
    assert_eq!(stage.served(), 3);
}

#[test]
fn a_new_policy_applies_to_existing_services() {
    let clock = clock();
    let text = "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"2/1m\"\nalgorithm = \"fixed-window\"\n";
    let layer = policy(text, &clock);
    let mut service = layer.layer(Stage::default());
    let mut ask = || status(&mut service, get("/", &[]));
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);
    layer
        .keeper()
        .install(parsed(&text.replace("2/1m", "3/1m")));
    assert_eq!([ask(), ask()], [200, 429], "the used permits stay charged");
}

#[test]
fn costs_may_come_from_the_request() {
    let layer = policy(LOGINS, &clock()).cost(|_| Permits::new(2));
    let mut service = layer.layer(Stage::default());
    let login = || post("/login", &[("host", "shop.example")]);
    let mut ask = || status(&mut service, from("192.0.2.1", login()));
    assert_eq!([ask(), ask()], [200, 429]);
}

#[test]
fn texts_and_files_are_read_or_refused() {
    let text = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n";
    let layer = RateLimitLayer::policy_text(text).unwrap();
    let mut service = layer.layer(Stage::default());
    assert_eq!(status(&mut service, get("/", &[])), 200);
    assert_eq!(status(&mut service, get("/", &[])), 429);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    std::fs::write(&path, text).unwrap();
    let layer = RateLimitLayer::policy_file(&path).unwrap();
    assert_eq!(
        status(&mut layer.layer(Stage::default()), get("/", &[])),
        200
    );

    let wrong = text.replace("1/1h", "1/1x");
    let Err(error) = RateLimitLayer::policy_text(&wrong) else {
        panic!("a policy with an error was accepted");
    };
    assert!(error.to_string().contains("policy:5"), "{error}");
    let redis = format!("{text}[store.redis]\nurl = \"redis://127.0.0.1:1\"\n");
    let error = RateLimitLayer::policy_text(&redis).err();
    assert_eq!(error, Some(PolicyError::Shared));
    let error = RateLimitLayer::policy_file(directory.path().join("none"))
        .err()
        .unwrap();
    assert!(
        error.to_string().contains("none` cannot be read: "),
        "{error}"
    );
}
