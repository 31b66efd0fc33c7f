//! The layer around a service that does nothing: cost of a request without its service.
//!
//! ```text
//!   floor    the service called as it is: request made, answer and body dropped
//!   peers    tower's RateLimit and ConcurrencyLimit, which look at no request: readiness
//!            waits, and no client gets fields; a RateLimit belongs to one service and cannot
//!            be cloned, and a ConcurrencyLimit counts a request until its head is there
//!            tower_governor, which does what ours does for a key: decides in `call`, by
//!            GCRA, and writes fields for clients; it refuses with one line of text
//!   ours     decides in `call`, holds until the body has ended, writes fields for clients;
//!            refuses with a problem document
//! ```
//!
//! Bodies are those of axum, since `tower_governor` answers with them.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use http::{HeaderName, HeaderValue, Request, Response};
use ratekeeper::core::Permits;
use ratekeeper::policy::HeaderStyle;
use ratekeeper::tower::{AdaptiveSettings, Gate, RateLimitLayer, RequestHead, by_header};
use ratekeeper::{KeyedLimiter, Limiter};
use tower::Layer;
use tower::limit::rate::Rate;
use tower::limit::{ConcurrencyLimit, RateLimit};
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::{GlobalKeyExtractor, KeyExtractor};
use tower_governor::{GovernorError, GovernorLayer};
use tower_service::Service;

use super::{FLOOR, OURS, poll_once};
use crate::direct::ALLOWS;
use crate::measure::{Contender, measure};
use crate::{Effort, compare, report};

/// User that makes the requests: a text that stands in memory, as the values of a request do.
const USER: &str = "user-12345678";

/// The header of the token that names the user.
const TOKEN: HeaderName = HeaderName::from_static("x-api-key");

/// The same user for `tower_governor`.
#[derive(Clone)]
struct User;

impl KeyExtractor for User {
    type Key = &'static str;

    fn extract<T>(&self, _: &Request<T>) -> Result<Self::Key, GovernorError> {
        Ok(USER)
    }
}

/// The value of a header for `tower_governor`, which keeps its keys.
#[derive(Clone)]
struct Token;

impl KeyExtractor for Token {
    type Key = String;

    fn extract<T>(&self, request: &Request<T>) -> Result<Self::Key, GovernorError> {
        let value = request
            .headers()
            .get(TOKEN)
            .and_then(|value| value.to_str().ok());
        let value = value.map(str::to_owned);
        value.ok_or(GovernorError::UnableToExtractKey)
    }
}

/// A service that answers at once, with an empty body.
#[derive(Clone, Copy)]
struct Page;

impl Service<Request<()>> for Page {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Body::empty())))
    }
}

/// A request without header fields.
fn plain() -> Request<()> {
    Request::new(())
}

/// A request with a token.
fn with_token() -> Request<()> {
    let mut request = plain();
    let token = HeaderValue::from_static(USER);
    request.headers_mut().insert(TOKEN, token);
    request
}

/// Sends one request, from readiness to the dropped body; returns its status.
fn ask<S, B>(service: &mut S, request: impl FnOnce() -> Request<()>) -> u16
where
    S: Service<Request<()>, Response = Response<B>>,
{
    if poll_once(poll_fn(|context| service.poll_ready(context))).is_pending() {
        return 0;
    }
    match poll_once(service.call(request())) {
        Poll::Ready(Ok(answer)) => answer.status().as_u16(),
        _ => 0,
    }
}

/// Measures the service of a layer, after checking its answer.
fn layered<'a, S, B>(name: &'static str, service: S, status: u16) -> Contender<'a>
where
    S: Service<Request<()>, Response = Response<B>> + 'a,
{
    asked(name, service, status, plain)
}

/// Measures the service of a layer with such requests, after checking its answer.
fn asked<'a, S, B>(
    name: &'static str,
    mut service: S,
    status: u16,
    request: impl Fn() -> Request<()> + 'a,
) -> Contender<'a>
where
    S: Service<Request<()>, Response = Response<B>> + 'a,
{
    let mut last = 0;
    for _ in 0..10 {
        last = ask(&mut service, &request);
    }
    assert_eq!(last, status, "{name}: the status is the measured one");
    Contender::new(name, move |_| ask(&mut service, &request))
}

fn ours<'a, G: Gate + 'a>(
    name: &'static str,
    layer: &RateLimitLayer<G>,
    status: u16,
) -> Contender<'a> {
    layered(name, layer.layer(Page), status)
}

/// Creates limits by `tower_governor`: one for all requests; for each key without fields, with them,
/// and denied; and for each value of a header.
fn governors<'a>() -> [Contender<'a>; 5] {
    let mut often = GovernorConfigBuilder::default().key_extractor(User);
    often.per_nanosecond(1).burst_size(1_000_000);
    let mut seldom = GovernorConfigBuilder::default().key_extractor(User);
    seldom.per_second(86_400).burst_size(1);
    let mut all = GovernorConfigBuilder::default().key_extractor(GlobalKeyExtractor);
    all.per_nanosecond(1).burst_size(1_000_000);
    let mut tokens = GovernorConfigBuilder::default().key_extractor(Token);
    tokens.per_nanosecond(1).burst_size(1_000_000);
    let all = all.finish().expect("a quota");
    let tokens = tokens.finish().expect("a quota");
    let silent = often.finish().expect("a quota");
    let telling = often.use_headers().finish().expect("a quota");
    let denying = seldom.use_headers().finish().expect("a quota");
    [
        layered(
            "tower_governor one limit, no fields",
            GovernorLayer::new(all).layer(Page),
            200,
        ),
        asked(
            "tower_governor a header, no fields",
            GovernorLayer::new(tokens).layer(Page),
            200,
            with_token,
        ),
        layered(
            "tower_governor a key, no fields",
            GovernorLayer::new(silent).layer(Page),
            200,
        ),
        layered(
            "tower_governor a key",
            GovernorLayer::new(telling).layer(Page),
            200,
        ),
        layered(
            "tower_governor a key, denied",
            GovernorLayer::new(denying).layer(Page),
            429,
        ),
    ]
}

/// Pairs of contenders to compare: the name of the row, our contender, and that of the peer.
const BESIDE: [(&str, &str, &str); 7] = [
    (
        "one limit, no fields",
        "ratekeeper one limit, no fields",
        "tower RateLimit",
    ),
    (
        "in flight, no fields",
        "ratekeeper in flight, no fields",
        "tower ConcurrencyLimit",
    ),
    (
        "a key, no fields",
        "ratekeeper a key, no fields",
        "tower_governor a key, no fields",
    ),
    (
        "one limit of all clones, no fields",
        "ratekeeper one limit, no fields",
        "tower_governor one limit, no fields",
    ),
    (
        "a key in a header, no fields",
        "ratekeeper a header, no fields",
        "tower_governor a header, no fields",
    ),
    (
        "a key, with fields",
        "ratekeeper a key",
        "tower_governor a key",
    ),
    (
        "a key, refused",
        "ratekeeper a key, denied",
        "tower_governor a key, denied",
    ),
];

pub(super) fn run(effort: Effort) {
    let one = |quota| RateLimitLayer::new(Limiter::per(quota).expect("a quota"));
    let key = |_: RequestHead<'_>| Some(USER);
    let keyed = |quota| RateLimitLayer::keyed(KeyedLimiter::per(quota).expect("a quota"), key);
    let tokens = KeyedLimiter::per(ALLOWS).expect("a quota");
    let by_token = RateLimitLayer::keyed(tokens, by_header(TOKEN));
    let policy = |limit: &str| {
        let text = format!("version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\n{limit}\n");
        RateLimitLayer::policy_text(&text).expect("a policy")
    };
    let many = Permits::new(100);
    let adaptive = RateLimitLayer::adaptive(AdaptiveSettings::default()).expect("the defaults");
    let often = Rate::new(u64::MAX, Duration::from_secs(24 * 3_600));
    let (mut bare, mut rate, mut concurrency) = (
        Page,
        RateLimit::new(Page, often),
        ConcurrencyLimit::new(Page, 100),
    );
    let in_flight = RateLimitLayer::in_flight(many);
    let mut contenders = vec![
        Contender::new("floor: the service as it is", move |_| {
            ask(&mut bare, plain)
        }),
        Contender::new("tower RateLimit", move |_| ask(&mut rate, plain)),
        Contender::new("tower ConcurrencyLimit", move |_| {
            ask(&mut concurrency, plain)
        }),
        ours(
            "ratekeeper one limit, no fields",
            &one(ALLOWS).headers(HeaderStyle::Off),
            200,
        ),
        ours("ratekeeper one limit", &one(ALLOWS), 200),
        ours(
            "ratekeeper a key, no fields",
            &keyed(ALLOWS).headers(HeaderStyle::Off),
            200,
        ),
        ours("ratekeeper a key", &keyed(ALLOWS), 200),
        asked(
            "ratekeeper a header, no fields",
            by_token.headers(HeaderStyle::Off).layer(Page),
            200,
            with_token,
        ),
        ours(
            "ratekeeper in flight, no fields",
            &in_flight.clone().headers(HeaderStyle::Off),
            200,
        ),
        ours("ratekeeper in flight", &in_flight, 200),
        ours("ratekeeper adaptive", &adaptive, 200),
        ours(
            "ratekeeper a policy",
            &policy("limit = \"1000000000/1s\""),
            200,
        ),
        ours("ratekeeper one limit, denied", &one("1/1d"), 429),
        ours("ratekeeper a key, denied", &keyed("1/1d"), 429),
        ours(
            "ratekeeper in flight, denied",
            &RateLimitLayer::in_flight(Permits::ZERO),
            429,
        ),
    ];
    contenders.extend(governors());
    let rows = measure(effort.rounds, &mut contenders);
    report::beside("a request through the layer", (FLOOR, OURS), &rows);
    for (what, ours, theirs) in BESIDE {
        let what = format!("a request through a tower layer, {what}, ns");
        compare::rows(&what, &rows, ours, theirs);
    }
}
