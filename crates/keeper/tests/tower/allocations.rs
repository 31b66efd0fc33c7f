//! Allocations of a request through the layer, without its service: exact counts, so that one
//! more is noticed.
//!
//! ```text
//!   fields of the answer     what they show, the text of a value, the value, and the map of
//!                            fields (two)
//!   a refusal                the denial, the answer, its fields, the document, its place
//!   a permit in a body       its place
//!   adaptive                 the course of the request
//! ```

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use ratekeeper::core::{Concurrency, Nanos, Permits};
use ratekeeper::policy::HeaderStyle;
use ratekeeper::tower::{AdaptiveSettings, Gate, RateLimitLayer, RequestHead};
use ratekeeper::{KeyedLimiter, Limiter};
use tower_layer::Layer;
use tower_service::Service;

/// Answers at once with this content, and allocates nothing.
#[derive(Clone)]
struct Page(&'static str);

impl Service<Request<()>> for Page {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let content = Bytes::from_static(self.0.as_bytes());
        ready(Ok(Response::new(Full::new(content))))
    }
}

fn ask<S, B>(service: &mut S) -> u16
where
    S: Service<Request<()>, Response = Response<B>>,
{
    let mut context = Context::from_waker(Waker::noop());
    match pin!(service.call(Request::new(()))).poll(&mut context) {
        Poll::Ready(Ok(answer)) => answer.status().as_u16(),
        _ => 0,
    }
}

/// Checks the allocations of the hundredth request, which is answered with `status`.
fn check<G: Gate>(name: &str, layer: &RateLimitLayer<G>, status: u16, expected: u64) {
    check_page(name, layer, Page(""), (status, expected));
}

fn check_page<G: Gate>(name: &str, layer: &RateLimitLayer<G>, page: Page, expected: (u16, u64)) {
    let mut service = layer.layer(page);
    for _ in 0..99 {
        ask(&mut service);
    }
    let mut found = 0;
    let counted = allocation_counter::measure(|| found = ask(&mut service));
    assert_eq!((found, counted.count_total), expected, "{name}");
    assert_eq!(
        counted.count_current, 0,
        "{name}: all allocations are freed"
    );
}

#[test]
fn allocations_of_a_request() {
    assert_eq!(
        allocation_counter::measure(|| assert_eq!(ask(&mut Page("")), 200)).count_total,
        0
    );
    let user = |_: RequestHead<'_>| Some(b"user-12345678");
    let one = |quota| RateLimitLayer::new(Limiter::per(quota).unwrap());
    let keyed = |quota| RateLimitLayer::keyed(KeyedLimiter::per(quota).unwrap(), user);
    let in_flight = |most| RateLimitLayer::in_flight(Permits::new(most));
    let adaptive = RateLimitLayer::adaptive(AdaptiveSettings::default()).unwrap();
    let lent = Concurrency::new(Permits::new(9), Nanos::SECOND).unwrap();
    let lent = || RateLimitLayer::keyed(KeyedLimiter::new(lent), user);
    let text = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"9000/1h\"\n";
    let policy = RateLimitLayer::policy_text(text).unwrap();
    let off = HeaderStyle::Off;

    check("one limit, no fields", &one("9000/1h").headers(off), 200, 0);
    check("a key, no fields", &keyed("9000/1h").headers(off), 200, 0);
    check("in flight, no fields", &in_flight(9).headers(off), 200, 0);
    let held = in_flight(9).headers(off);
    check_page("in flight, a text", &held, Page("hello"), (200, 1));
    check("adaptive", &adaptive, 200, 1);
    check("one limit", &one("9000/1h"), 200, 5);
    check("a key", &keyed("9000/1h"), 200, 5);
    check("in flight", &in_flight(9), 200, 5);
    check("a policy", &policy, 200, 7);
    check("lent to a key, no fields", &lent().headers(off), 200, 4);
    check("one limit, denied", &one("1/1h"), 429, 8);
    check("a key, denied", &keyed("1/1h"), 429, 8);
    check("in flight, denied", &in_flight(0), 429, 7);
}

#[test]
fn a_value_in_its_plain_spelling_costs_no_allocation() {
    for part in [
        "all",
        "query:user",
        "cookie:sid",
        "header:x-user",
        "header:authorization",
        "bearer",
    ] {
        let text = format!(
            "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"{part}\"]\nlimit = \"9000/1h\"\n"
        );
        let mut service = RateLimitLayer::policy_text(&text).unwrap().layer(Page(""));
        let request = || {
            let head = Request::get("/a?x=1&user=ann")
                .header("cookie", "x=1; sid=3f1c0a9e")
                .header("x-user", "ann")
                .header("authorization", "Bearer 3f1c0a9e");
            head.body(()).unwrap()
        };
        let mut count = 0;
        for _ in 0..100 {
            let request = request();
            let mut context = Context::from_waker(Waker::noop());
            let counted = allocation_counter::measure(|| {
                assert!(pin!(service.call(request)).poll(&mut context).is_ready());
            });
            count = counted.count_total;
        }
        assert_eq!(count, 7, "{part}, as without a part");
    }
}
