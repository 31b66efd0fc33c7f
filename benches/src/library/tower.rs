//! The layer around a service that does nothing: what a request costs beside its service.
//!
//! ```text
//!   floor    the service called as it is: request made, answer and body dropped
//!   peers    tower's RateLimit and ConcurrencyLimit, which look at no request: readiness
//!            waits, nobody is told anything
//!   ours     decides in `call`, holds until the body has ended, writes fields for clients
//! ```

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use ratekeeper::core::Permits;
use ratekeeper::policy::HeaderStyle;
use ratekeeper::tower::{AdaptiveSettings, Gate, RateLimitLayer};
use ratekeeper::{KeyedLimiter, Limiter};
use tower::Layer;
use tower::limit::rate::Rate;
use tower::limit::{ConcurrencyLimit, RateLimit};
use tower_service::Service;

use super::{FLOOR, OURS, poll_once};
use crate::direct::ALLOWS;
use crate::measure::{Contender, measure};
use crate::{Effort, report};

/// Answers at once, with nothing.
#[derive(Clone, Copy)]
struct Page;

impl Service<Request<()>> for Page {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Empty::new())))
    }
}

/// One request, from readiness to the dropped body; its status.
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

/// A layer of ours; what it says was made sure of.
fn ours<'a, G: Gate + 'a>(
    name: &'static str,
    layer: &RateLimitLayer<G>,
    status: u16,
) -> Contender<'a> {
    let mut service = layer.layer(Page);
    let mut last = 0;
    for _ in 0..10 {
        last = ask(&mut service);
    }
    assert_eq!(last, status, "{name}: it says what is measured");
    Contender::new(name, move |_| ask(&mut service))
}

pub(super) fn run(effort: Effort) {
    let one = |quota| RateLimitLayer::new(Limiter::per(quota).expect("a quota"));
    let key = |_: &http::request::Parts| Some(*b"user-12345678");
    let keyed = |quota| RateLimitLayer::keyed(KeyedLimiter::per(quota).expect("a quota"), key);
    let policy = |limit: &str| {
        let text = format!("version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\n{limit}\n");
        RateLimitLayer::policy_text(&text).expect("a policy")
    };
    let many = Permits::new(100);
    let adaptive = RateLimitLayer::adaptive(AdaptiveSettings::default()).expect("the defaults");
    let often = Rate::new(u64::MAX, Duration::from_hours(24));
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
    let rows = measure(effort.rounds, &mut contenders);
    report::beside("a request through the layer", (FLOOR, OURS), &rows);
}
