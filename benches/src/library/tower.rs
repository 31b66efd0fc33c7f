//! The layer around a service that does nothing: cost of a request without its service.
//!
//! ```text
//!   floor    the service called as it is: request made, answer and body dropped
//!   peers    tower's RateLimit and ConcurrencyLimit, which look at no request: readiness
//!            waits, and no client gets fields
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
use http::{Request, Response};
use ratekeeper::core::Permits;
use ratekeeper::policy::HeaderStyle;
use ratekeeper::tower::{AdaptiveSettings, Gate, RateLimitLayer};
use ratekeeper::{KeyedLimiter, Limiter};
use tower::Layer;
use tower::limit::rate::Rate;
use tower::limit::{ConcurrencyLimit, RateLimit};
use tower_governor::governor::GovernorConfigBuilder;
use tower_governor::key_extractor::KeyExtractor;
use tower_governor::{GovernorError, GovernorLayer};
use tower_service::Service;

use super::{FLOOR, OURS, poll_once};
use crate::direct::ALLOWS;
use crate::measure::{Contender, measure};
use crate::{Effort, compare, report};

/// User that makes the requests.
const USER: [u8; 13] = *b"user-12345678";

/// The same user for `tower_governor`.
#[derive(Clone)]
struct User;

impl KeyExtractor for User {
    type Key = [u8; 13];

    fn extract<T>(&self, _: &Request<T>) -> Result<Self::Key, GovernorError> {
        Ok(USER)
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

/// Sends one request, from readiness to the dropped body; returns its status.
fn ask<S, B>(service: &mut S) -> u16
where
    S: Service<Request<()>, Response = Response<B>>,
{
    if poll_once(poll_fn(|context| service.poll_ready(context))).is_pending() {
        return 0;
    }
    match poll_once(service.call(Request::new(()))) {
        Poll::Ready(Ok(answer)) => answer.status().as_u16(),
        _ => 0,
    }
}

/// Measures the service of a layer, after checking its answer.
fn layered<'a, S, B>(name: &'static str, mut service: S, status: u16) -> Contender<'a>
where
    S: Service<Request<()>, Response = Response<B>> + 'a,
{
    let mut last = 0;
    for _ in 0..10 {
        last = ask(&mut service);
    }
    assert_eq!(last, status, "{name}: the status is the measured one");
    Contender::new(name, move |_| ask(&mut service))
}

fn ours<'a, G: Gate + 'a>(
    name: &'static str,
    layer: &RateLimitLayer<G>,
    status: u16,
) -> Contender<'a> {
    layered(name, layer.layer(Page), status)
}

/// Creates a limit for each key by `tower_governor`: without fields, with them, and denied.
fn governors<'a>() -> [Contender<'a>; 3] {
    let mut often = GovernorConfigBuilder::default().key_extractor(User);
    often.per_nanosecond(1).burst_size(1_000_000);
    let mut seldom = GovernorConfigBuilder::default().key_extractor(User);
    seldom.per_second(86_400).burst_size(1);
    let silent = often.finish().expect("a quota");
    let telling = often.use_headers().finish().expect("a quota");
    let denying = seldom.use_headers().finish().expect("a quota");
    [
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

pub(super) fn run(effort: Effort) {
    let one = |quota| RateLimitLayer::new(Limiter::per(quota).expect("a quota"));
    let key = |_: &http::request::Parts| Some(USER);
    let keyed = |quota| RateLimitLayer::keyed(KeyedLimiter::per(quota).expect("a quota"), key);
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
        Contender::new("floor: the service as it is", move |_| ask(&mut bare)),
        Contender::new("tower RateLimit", move |_| ask(&mut rate)),
        Contender::new("tower ConcurrencyLimit", move |_| ask(&mut concurrency)),
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
    for (what, ours, theirs) in [
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
            "a key, with fields",
            "ratekeeper a key",
            "tower_governor a key",
        ),
        (
            "a key, refused",
            "ratekeeper a key, denied",
            "tower_governor a key, denied",
        ),
    ] {
        let what = format!("a request through a tower layer, {what}, ns");
        compare::rows(&what, &rows, ours, theirs);
    }
}
