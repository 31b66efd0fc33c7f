//! Fields that clients receive, refused or not.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ratekeeper::core::{Log as SlidingLog, Nanos, Permits};
use ratekeeper::policy::{Body, HeaderStyle};
use ratekeeper::store::MemoryConfig;
use ratekeeper::tower::{Counts, RateLimitLayer, RequestHead};
use ratekeeper::{KeyedLimiter, Limiter};
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Log, Stage, clock, content, get, header, headers, limiter, now, poll, status};

fn pairs(headers: &[(&str, &str)]) -> Vec<(String, String)> {
    let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    headers.iter().map(text).collect()
}

#[test]
fn a_refusal_returns_the_wait() {
    let clock = clock();
    let layer = RateLimitLayer::new(limiter("2/1m", &clock)).named("login");
    let stage = Stage::default();
    let mut service = layer.layer(stage.clone());
    let first = now(&mut service, get("/", &[])).unwrap();
    let expected = [
        ("ratelimit-policy", "\"login\";q=2;w=60"),
        ("ratelimit", "\"login\";r=1;t=30"),
    ];
    assert_eq!(headers(&first), pairs(&expected));
    assert_eq!(content(first), "helloworld");
    let _ = now(&mut service, get("/", &[]));
    let refused = now(&mut service, get("/", &[])).unwrap();
    assert_eq!(refused.status(), 429);
    let expected = [
        ("content-type", "application/problem+json"),
        ("ratelimit-policy", "\"login\";q=2;w=60"),
        ("ratelimit", "\"login\";r=0;t=30"),
        ("retry-after", "30"),
    ];
    assert_eq!(headers(&refused), pairs(&expected));
    let expected = "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
                    \"title\":\"Too many requests\",\"status\":429,\
                    \"detail\":\"Limit login allows 2/1m. Try again in 30 s.\",\
                    \"violated-policies\":[\"login\"],\"retry_after\":30}";
    assert_eq!(content(refused), expected);
    assert_eq!(stage.served(), 2);
    clock.advance(Nanos::from_secs(30));
    assert_eq!(status(&mut service, get("/", &[])), 200);
    let counts = Counts {
        passed: 3,
        refused: 1,
        shadowed: 0,
    };
    assert_eq!(layer.counts(), counts);
}

#[test]
fn grpc_calls_are_refused_with_a_grpc_status() {
    let layer = RateLimitLayer::new(limiter("1/1m", &clock())).named("calls");
    let mut service = layer.layer(Stage::default());
    let call = || get("/p.S/M", &[("content-type", "application/grpc+proto")]);
    assert_eq!(status(&mut service, call()), 200);
    let refused = now(&mut service, call()).unwrap();
    assert_eq!(
        refused.status(),
        200,
        "the HTTP status of a gRPC call is 200"
    );
    // code: 8 message: ".." details { [google.rpc.RetryInfo] { retry_delay { seconds: 60 } } };
    // that others read it so is shown by a tonic client, in `servers`.
    let details = "CAgSK0xpbWl0IGNhbGxzIGFsbG93cyAxLzFtLiBUcnkgYWdhaW4gaW4gNjAgcy4aMAoodHlwZS5n\
                   b29nbGVhcGlzLmNvbS9nb29nbGUucnBjLlJldHJ5SW5mbxIECgIIPA";
    let expected = [
        ("content-type", "application/grpc"),
        ("grpc-status", "8"),
        (
            "grpc-message",
            "Limit calls allows 1/1m. Try again in 60 s.",
        ),
        ("grpc-status-details-bin", details),
        ("ratelimit-policy", "\"calls\";q=1;w=60"),
        ("ratelimit", "\"calls\";r=0;t=60"),
        ("retry-after", "60"),
    ];
    assert_eq!(headers(&refused), pairs(&expected));
    assert!(http_body::Body::is_end_stream(refused.body()));
    assert_eq!(content(refused), "");
}

#[test]
fn a_limit_may_have_its_own_refusal_and_headers() {
    let text = Body::Text {
        content: "{limit}: wait {retry_after}".into(),
        content_type: "text/plain".into(),
    };
    for (status, body, style, expected_status, expected, expected_headers) in [
        (503, text, HeaderStyle::Legacy, 503, "a-b: wait 60 s", 6),
        (403, Body::Empty, HeaderStyle::Off, 403, "", 1),
        (200, Body::Empty, HeaderStyle::Ietf, 429, "", 3),
    ] {
        let layer = RateLimitLayer::new(limiter("1/1m", &clock()))
            .named("A_b")
            .refusal(status, body)
            .headers(style);
        let mut service = layer.layer(Stage::default());
        let _ = now(&mut service, get("/", &[]));
        let refused = now(&mut service, get("/", &[])).unwrap();
        assert_eq!(refused.status(), expected_status);
        assert_eq!(
            headers(&refused).len(),
            expected_headers,
            "{:?}",
            headers(&refused)
        );
        assert_eq!(content(refused), expected);
    }
}

#[test]
fn a_changed_limit_is_shown_with_its_new_parameters() {
    let limiter = Arc::new(limiter("2/1m", &clock()));
    let mut service = RateLimitLayer::new(Arc::clone(&limiter)).layer(Stage::default());
    let shown = |service: &mut _| {
        let answer = now(service, get("/", &[])).unwrap();
        header(&answer, "ratelimit-policy").unwrap()
    };
    assert_eq!(shown(&mut service), "\"default\";q=2;w=60");
    limiter.set_quota("600/1h".parse().unwrap()).unwrap();
    assert_eq!(shown(&mut service.clone()), "\"default\";q=600;w=3600");
    assert_eq!(shown(&mut service), "\"default\";q=600;w=3600");
}

#[test]
fn nested_layers_are_all_shown() {
    let clock = clock();
    let inner = RateLimitLayer::new(limiter("1/1s", &clock)).named("inner");
    let outer = RateLimitLayer::new(limiter("9/1s", &clock))
        .named("outer")
        .headers(HeaderStyle::Both);
    let mut service = outer.layer(inner.headers(HeaderStyle::Both).layer(Stage::default()));
    let Poll::Ready(Ok(answer)) = poll(pin!(service.call(get("/", &[])))) else {
        panic!("the call is pending");
    };
    let all = |name: &str| -> Vec<_> {
        let values = answer.headers().get_all(name).iter();
        values
            .map(|value| value.to_str().unwrap().to_owned())
            .collect()
    };
    let policies = ["\"inner\";q=1;w=1", "\"outer\";q=9;w=1"];
    assert_eq!(all("ratelimit-policy"), policies);
    assert_eq!(
        all("x-ratelimit-limit"),
        ["1"],
        "the field of the inner layer stays"
    );
}

#[test]
fn each_key_has_its_own_limit_and_requests_without_a_key_share_one() {
    let keyed = KeyedLimiter::with_clock(
        SlidingLog::sliding("2/1m".parse().unwrap()).unwrap(),
        MemoryConfig::default(),
        clock(),
    );
    let keyed = Arc::new(keyed);
    let token = |head: RequestHead<'_>| {
        let token = head.headers.get("x-token")?;
        Some(token.as_bytes().to_vec())
    };
    let layer = RateLimitLayer::keyed(Arc::clone(&keyed), token);
    let mut service = layer.layer(Stage::default());
    let mut ask = |token: Option<&str>| {
        let headers: Vec<_> = token.iter().map(|token| ("x-token", *token)).collect();
        status(&mut service, get("/", &headers))
    };
    let asked = [
        Some("a"),
        Some("a"),
        Some("a"),
        Some("b"),
        None,
        None,
        None,
        Some("b"),
    ];
    let expected = [200, 200, 429, 200, 200, 200, 429, 200];
    assert_eq!(asked.map(&mut ask), expected);
    assert_eq!(keyed.key("b").peek().remaining, Permits::ZERO);
}

#[test]
fn a_layer_in_shadow_mode_refuses_no_request() {
    let log = Log::default();
    let written = Arc::clone(&log);
    let layer = RateLimitLayer::new(limiter("1/1m", &clock()))
        .named("trial")
        .shadow()
        .on_shadow(move |denial| {
            let names = denial.names().map(str::to_owned);
            written.lock().unwrap().extend(names);
        });
    let mut service = layer.layer(Stage::default());
    let shown: Vec<_> = (0..3)
        .map(|_| {
            let answer = now(&mut service, get("/", &[])).unwrap();
            assert_eq!(answer.status(), 200);
            headers(&answer)
        })
        .collect();
    let shadow = pairs(&[("x-ratekeeper-shadow", "trial")]);
    assert_eq!(shown, [vec![], shadow.clone(), shadow]);
    assert_eq!(*log.lock().unwrap(), ["trial", "trial"]);
    let counts = Counts {
        passed: 3,
        refused: 0,
        shadowed: 2,
    };
    assert_eq!(layer.counts(), counts);
}

#[test]
fn requests_may_cost_more_than_one() {
    let size = |head: RequestHead<'_>| {
        let size = head
            .headers
            .get("x-size")
            .and_then(|size| size.to_str().ok());
        Permits::new(size.and_then(|size| size.parse().ok()).unwrap_or(1))
    };
    let layer = RateLimitLayer::new(limiter("10/1h", &clock())).cost(size);
    let mut service = layer.layer(Stage::default());
    let mut ask = |size| status(&mut service, get("/", &[("x-size", size)]));
    assert_eq!(
        ["8", "3", "2", "1", "11"].map(&mut ask),
        [200, 429, 200, 429, 429]
    );
}

#[test]
fn ten_thousand_clones_share_one_limit() {
    let limiter = Arc::new(Limiter::per("1000/24h").unwrap());
    let layer = RateLimitLayer::new(Arc::clone(&limiter));
    let services: Vec<_> = (0..10_000)
        .map(|at| match at % 3 {
            0 => layer.layer(Stage::default()),
            1 => layer.clone().layer(Stage::default()),
            _ => layer.layer(Stage::default()).clone(),
        })
        .collect();
    let passed: usize = std::thread::scope(|scope| {
        let work = |services: Vec<_>| {
            let mut services = services;
            let passes = |service: &mut _| status(service, get("/", &[])) == 200;
            services
                .iter_mut()
                .map(passes)
                .filter(|passes| *passes)
                .count()
        };
        let threads: Vec<_> = services
            .chunks(2_500)
            .map(|services| scope.spawn(move || work(services.to_vec())))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(passed, 1_000);
    assert_eq!(layer.counts().refused, 9_000);
}
