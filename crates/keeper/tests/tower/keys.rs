//! Keys of requests: where they are found, and the responses to requests without one.

use std::net::SocketAddr;

use http::{HeaderName, Request};
use ratekeeper::core::AnyAlgorithm;
use ratekeeper::policy::{ClientIp, network};
use ratekeeper::store::MemoryStore;
use ratekeeper::tower::{
    Adaptive, AdaptiveSettings, ByAddress, ByExtension, ByHeader, ByPath, ByPolicy, InFlight,
    KeyOr, KeyOrShared, KeySource, Keyed, NoKey, Peer, RateLimitLayer, RequestHead, Single,
    by_address, by_address_from, by_extension, by_header, by_path,
};
use ratekeeper::{KeyedLimiter, LimitKey, Limiter, SystemClock};
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Stage, content, get, header, headers, now, status};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

#[derive(Clone)]
struct Claims {
    subject: String,
    tenant: u32,
}

fn bytes(source: &impl KeySource, request: &Request<()>) -> Option<Vec<u8>> {
    let key = source.key(request.into()).ok()?;
    Some(key.key_bytes().as_ref().to_vec())
}

fn per(quota: &str) -> KeyedLimiter {
    KeyedLimiter::per(quota).unwrap()
}

fn claims(subject: &str) -> Claims {
    let subject = subject.into();
    Claims { subject, tenant: 7 }
}

fn with<T: Clone + Send + Sync + 'static>(extension: T, mut request: Request<()>) -> Request<()> {
    request.extensions_mut().insert(extension);
    request
}

/// Checks the bytes of the key of a request.
fn check(source: &impl KeySource, request: &Request<()>, expected: &[u8]) {
    let key = bytes(source, request);
    assert_eq!(key.as_deref(), Some(expected));
}

#[test]
fn keys_are_those_of_the_request() {
    let subject = by_extension(|claims: &Claims| &*claims.subject);
    let tenant = by_extension(|claims: &Claims| &claims.tenant);
    let key = || get("//a/%62/?q", &[("x-api-key", "k1"), ("x-api-key", "k1")]);
    let two = get("/", &[("x-api-key", "k1"), ("x-api-key", "k2")]);
    check(&by_header(API_KEY), &key(), b"k1");
    assert_eq!(
        bytes(&by_header(API_KEY), &two),
        None,
        "two values are no key"
    );
    check(&by_path(), &key(), b"/a/b");
    check(&subject, &with(claims("ann"), key()), b"ann");
    check(&tenant, &with(claims("ann"), key()), &[7, 0, 0, 0]);
    check(&(by_header(API_KEY), by_path()), &key(), b"\x02k1\x04/a/b");
    let three = (subject.clone(), by_header(API_KEY), by_path());
    check(&three, &with(claims("a"), key()), b"\x01a\x02k1\x04/a/b");
    check(
        &subject.clone().or(by_header(API_KEY)),
        &with(claims("a"), key()),
        b"\x01a",
    );
    check(&subject.or(by_header(API_KEY)), &key(), b"\x02k1");
    let none = |_: RequestHead<'_>| None::<u32>;
    check(&none.or(by_path()), &key(), b"\x02/a/b");
}

#[test]
fn addresses_are_found_in_the_extension_that_is_named() {
    let address: SocketAddr = "192.0.2.1:80".parse().unwrap();
    let expected = "::ffff:192.0.2.1".parse::<std::net::Ipv6Addr>().unwrap();
    let expected = &expected.octets();
    let plain = by_address_from(|address: &SocketAddr| Some(*address));
    check(&plain, &with(address, get("/", &[])), expected);
    check(
        &by_address::<Peer>(),
        &with(Peer(address), get("/", &[])),
        expected,
    );
    let policy = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\nlimit = \"1/1h\"\n";
    let mut service = RateLimitLayer::policy_text(policy)
        .unwrap()
        .layer(Stage::default());
    let other = SocketAddr::from(([192, 0, 2, 2], 80));
    let mut ask = |request| status(&mut service, request);
    assert_eq!(ask(with(address, get("/", &[]))), 200, "by default");
    assert_eq!(
        ask(with(Peer(address), get("/", &[]))),
        429,
        "the same client"
    );
    assert_eq!(ask(with(other, get("/", &[]))), 200);
}

#[test]
fn only_trusted_proxies_set_the_client_address() {
    let client_ip = ClientIp {
        trusted_proxies: vec![network("10.0.0.0/8").unwrap()],
        ..ClientIp::default()
    };
    let address = by_address::<Peer>().behind(client_ip);
    let key = |peer: &str, forwarded: &[&str]| {
        let mut request = Request::new(());
        for line in forwarded {
            let headers = request.headers_mut();
            headers.append("x-forwarded-for", line.parse().unwrap());
        }
        let peer = format!("{peer}:4711").parse().unwrap();
        request.extensions_mut().insert(Peer(peer));
        bytes(&address, &request)
    };
    let is = |text: &str| {
        Some(
            text.parse::<std::net::Ipv6Addr>()
                .unwrap()
                .octets()
                .to_vec(),
        )
    };
    for (peer, forwarded, expected) in [
        ("198.51.100.1", &[][..], "::ffff:198.51.100.1"),
        ("198.51.100.1", &["203.0.113.9"], "::ffff:198.51.100.1"),
        ("10.0.0.1", &["203.0.113.9"], "::ffff:203.0.113.9"),
        ("10.0.0.1", &["1.2.3.4, 203.0.113.9"], "::ffff:203.0.113.9"),
        (
            "10.0.0.1",
            &["1.2.3.4", "203.0.113.9, 10.1.1.1"],
            "::ffff:203.0.113.9",
        ),
        ("10.0.0.1", &["garbage"], "::ffff:10.0.0.1"),
        ("[2001:db8:1:2:3:4:5:6]", &[], "2001:db8:1:2::"),
        ("[::ffff:198.51.100.1]", &[], "::ffff:198.51.100.1"),
        ("10.0.0.1", &["2001:db8:1:2:ffff::1"], "2001:db8:1:2::"),
    ] {
        assert_eq!(key(peer, forwarded), is(expected), "{peer} {forwarded:?}");
    }
    assert_eq!(bytes(&address, &Request::new(())), None);
}

/// A client that chooses its header cannot be counted as another client's address.
#[test]
fn keys_of_two_sources_are_never_the_same() {
    let user = by_extension(|claims: &Claims| &*claims.subject);
    let layer = RateLimitLayer::keyed(per("1/1h"), user.or(by_header(API_KEY)));
    let mut service = layer.layer(Stage::default());
    let ann = || with(claims("ann"), get("/", &[]));
    let by_key = || get("/", &[("x-api-key", "ann")]);
    let mut ask = |request| status(&mut service, request);
    assert_eq!(
        [ask(ann()), ask(ann()), ask(by_key()), ask(by_key())],
        [200, 429, 200, 429]
    );
    assert_eq!(ask(get("/", &[])), 400, "neither is there");
}

#[test]
fn a_request_without_a_header_is_refused_and_says_which() {
    let layer = RateLimitLayer::keyed(per("1/1h"), by_header(API_KEY)).named("per-key");
    let layer = layer.on_refused(|denial| {
        assert_eq!(
            denial.no_key(),
            Some(&NoKey::NotSent("header `x-api-key`".into()))
        );
        assert_eq!(denial.names().collect::<Vec<_>>(), ["per-key"]);
        assert!(denial.by().is_none() && denial.retry_after().is_none());
    });
    let mut service = layer.layer(Stage::default());
    for request in [get("/", &[]), get("/", &[("x-api-key", "")])] {
        let answer = now(&mut service, request).unwrap();
        assert_eq!(answer.status(), 400);
        let fields = [("content-type".into(), "application/problem+json".into())];
        assert_eq!(headers(&answer), fields);
        assert_eq!(
            content(answer),
            "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,\
             \"detail\":\"Limit per-key needs a value for its key: \
             the request has no header `x-api-key`.\"}"
        );
    }
    assert_eq!(layer.counts().refused, 2);
    let mut call = get("/", &[("content-type", "application/grpc")]);
    let answer = now(&mut service, call).unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(header(&answer, "grpc-status").as_deref(), Some("3"));
    assert!(header(&answer, "grpc-status-details-bin").is_none());
    call = get("/", &[("x-api-key", "k")]);
    assert_eq!(status(&mut service, call), 200);
}

#[test]
fn a_missing_extension_is_an_error_of_the_server() {
    let by_user = by_extension(|claims: &Claims| &*claims.subject);
    let layer = RateLimitLayer::keyed(per("9/1h"), (by_path(), by_user.clone()));
    let mut service = layer.layer(Stage::default());
    let answer = now(&mut service, get("/", &[])).unwrap();
    assert_eq!(answer.status(), 500);
    let problem: serde_json::Value = serde_json::from_str(&content(answer)).unwrap();
    assert_eq!(problem["status"], 500);
    assert_eq!(problem["title"], "Internal Server Error");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("Claims` into the extensions of the request; hint: "),
        "{detail}"
    );
    let call = get("/", &[("content-type", "application/grpc")]);
    let answer = now(&mut service, call).unwrap();
    assert_eq!(header(&answer, "grpc-status").as_deref(), Some("13"));

    let shared = RateLimitLayer::keyed(per("2/1h"), by_user.clone().or_shared());
    let mut service = shared.layer(Stage::default());
    let mut ask = || status(&mut service, get("/", &[]));
    assert_eq!([ask(), ask(), ask()], [200, 200, 429]);

    let trial = RateLimitLayer::keyed(per("9/1h"), by_user).shadow();
    let mut service = trial.named("trial").layer(Stage::default());
    let answer = now(&mut service, get("/", &[])).unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(
        header(&answer, "x-ratekeeper-shadow").as_deref(),
        Some("trial")
    );
}

/// Every ready layer has a type that can be written.
#[test]
fn layers_are_fields_and_return_types() {
    struct Layers {
        all: RateLimitLayer<Single>,
        any: RateLimitLayer<Single<AnyAlgorithm>>,
        address: RateLimitLayer<Keyed<ByAddress>>,
        token: RateLimitLayer<Keyed<KeyOr<ByHeader, ByAddress>>>,
        route: RateLimitLayer<Keyed<(ByAddress, ByPath)>>,
        user: RateLimitLayer<Keyed<KeyOrShared<ByExtension<Claims, str>>, AnyAlgorithm>>,
        policy: RateLimitLayer<ByPolicy>,
        in_flight: RateLimitLayer<InFlight>,
        adaptive: RateLimitLayer<Adaptive>,
    }
    fn layers() -> Layers {
        let address = by_address::<Peer>;
        let user = by_extension(|claims: &Claims| &*claims.subject).or_shared();
        let policy = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n";
        Layers {
            all: RateLimitLayer::new(Limiter::per("1/1h").unwrap()),
            any: RateLimitLayer::new(Limiter::parse("1/1h").unwrap()),
            address: RateLimitLayer::keyed(per("1/1h"), address()),
            token: RateLimitLayer::keyed(per("1/1h"), by_header(API_KEY).or(address())),
            route: RateLimitLayer::keyed(per("1/1h"), (address(), by_path())),
            user: RateLimitLayer::keyed(KeyedLimiter::parse("1/1h").unwrap(), user),
            policy: RateLimitLayer::policy_text(policy).unwrap(),
            in_flight: RateLimitLayer::in_flight(1),
            adaptive: RateLimitLayer::adaptive(AdaptiveSettings::default()).unwrap(),
        }
    }
    fn passes<S>(mut service: S) -> bool
    where
        S: Service<Request<()>, Response = crate::stage::Answered, Error = &'static str>,
    {
        let request = with(Peer(([192, 0, 2, 1], 80).into()), get("/", &[]));
        status(&mut service, request) == 200
    }
    let layers = layers();
    let same: RateLimitLayer<ByPolicy<MemoryStore, SystemClock>> = layers.policy;
    let page = Stage::default;
    assert!(passes(layers.all.layer(page())) && passes(layers.any.layer(page())));
    assert!(passes(layers.address.layer(page())) && passes(layers.token.layer(page())));
    assert!(passes(layers.route.layer(page())) && passes(layers.user.layer(page())));
    assert!(passes(same.layer(page())) && passes(layers.in_flight.layer(page())));
    assert!(passes(layers.adaptive.layer(page())));
}
