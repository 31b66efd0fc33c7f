//! Results that the layer reports by itself: by the status, by a report of the handler, or not at
//! all.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use ratekeeper::Report;
use tower_layer::Layer;
use tower_service::Service;

use crate::bodies::Parts;
use crate::stage::{Act, Clocked, Policies, Stage, clock, get, now, policy, status};

const LIMITS: &str = r#"
[[limit]]
name     = "failures"
match    = { path = "/login" }
key      = ["header:x-user"]
missing_key = "shared"
limit    = "2/1h"
count    = { status = [401, "5xx"], outcome = "locked" }
reset_on = { status = 200 }
[[limit]]
name   = "tokens"
match  = { path = "/complete" }
key    = ["header:x-user"]
missing_key = "shared"
bucket = { size = 100, refill = "1/1s" }
cost   = { reserve = 40 }
[[limit]]
name   = "settled"
match  = { path = "/chat" }
key    = ["header:x-user"]
missing_key = "shared"
bucket = { size = 100, refill = "1/1s" }
cost   = { reserve = 40, settle = "response.header:X-Used" }
[[limit]]
name   = "stated"
match  = { path = "/complete/json" }
key    = ["header:x-user"]
missing_key = "shared"
bucket = { size = 100, refill = "1/1s" }
cost   = { reserve = 40, settle = "response.json:/usage/total" }
[[limit]]
name   = "ended"
match  = { path = "/complete/trailer" }
key    = ["header:x-user"]
missing_key = "shared"
bucket = { size = 100, refill = "1/1s" }
cost   = { reserve = 40, settle = "response.trailer:X-Used" }
"#;

/// A handler that answers with the status, outcome or cost in the query.
#[derive(Clone)]
struct Handler;

impl Service<Request<()>> for Handler {
    type Response = Response<http_body_util::Empty<bytes::Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<()>) -> Self::Future {
        let mut response = Response::new(http_body_util::Empty::new());
        match request.uri().query().unwrap_or_default().split_once('=') {
            Some(("status", status)) => *response.status_mut() = status.parse().unwrap(),
            Some(("outcome", word)) => {
                response
                    .extensions_mut()
                    .insert(Report::default().outcome(word));
            }
            Some(("used", values)) => {
                for value in values.split(',') {
                    response
                        .headers_mut()
                        .append("x-used", value.parse().unwrap());
                }
                if let Some((_, cost)) = values.split_once(";cost=") {
                    let report = Report::default().cost(cost.parse().unwrap());
                    response.extensions_mut().insert(report);
                }
            }
            Some(("cost", cost)) => {
                let report = Report::default().cost(cost.parse().unwrap());
                response.extensions_mut().insert(report);
            }
            _ => {}
        }
        ready(Ok(response))
    }
}

/// Returns the statuses of requests to paths and queries, one after the other.
fn statuses(layer: &Policies, targets: &[&str]) -> Vec<u16> {
    let mut service = layer.layer(Handler);
    let mut ask = |target: &&str| {
        let future = service.call(get(target, &[("x-user", "ann")]));
        match crate::stage::poll(std::pin::pin!(future)) {
            Poll::Ready(answer) => answer.unwrap().status().as_u16(),
            Poll::Pending => panic!("the call is pending"),
        }
    };
    targets.iter().map(&mut ask).collect()
}

fn layer(clock: &Clocked) -> Policies {
    policy(LIMITS, clock)
}

#[test]
fn the_status_of_the_response_is_the_result() {
    for (targets, expected) in [
        (["404"; 5], [404, 404, 404, 404, 404]),
        (["401"; 5], [401, 401, 429, 429, 429]),
        (["503"; 5], [503, 503, 429, 429, 429]),
        (
            ["401", "200", "401", "401", "404"],
            [401, 200, 401, 401, 429],
        ),
    ] {
        let targets = targets.map(|status| format!("/login?status={status}"));
        let targets: Vec<_> = targets.iter().map(String::as_str).collect();
        assert_eq!(
            statuses(&layer(&clock()), &targets),
            expected,
            "{targets:?}"
        );
    }
}

#[test]
fn a_field_of_the_response_settles_an_estimate() {
    for (used, passes) in [
        ("10", 7), // 40 must be left: 6 x 10 + 40
        ("40", 2),
        ("100", 1), // the 60 more are charged
        ("0", 10),
        ("10,10", 2), // two fields: none
        ("1.5", 2),   // no amount: the estimate stays
        ("-1", 2),
        ("", 2),
        ("5;cost=0", 10), // the report of the handler has the cost
    ] {
        let target = format!("/chat?used={used}");
        let layer = layer(&clock());
        let statuses = statuses(&layer, &[&*target; 10]);
        let passed = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!(passed, passes, "{used}");
    }
}

/// A handler whose responses have a body of parts, and then perhaps a trailer, `x-used`; perhaps
/// of a length that they announce.
#[derive(Clone)]
struct Writer(
    &'static [&'static str],
    Option<&'static str>,
    Option<&'static str>,
);

impl Service<Request<()>> for Writer {
    type Response = Response<Parts>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::builder().header("content-type", "application/json");
        if let Some(length) = self.2 {
            response = response.header("content-length", length);
        }
        let mut body = Parts::of(self.0);
        if let Some(used) = self.1 {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("x-used", used.parse().unwrap());
            body = body.then(Some(Ok(Frame::trailers(trailers))));
        }
        ready(Ok(response.body(body).unwrap()))
    }
}

#[test]
fn the_body_of_a_response_settles_an_estimate_at_its_end() {
    let parts: &[&str] = &["{\"usage\": {\"to", "tal\": 10}}"];
    for (parts, read, passes) in [
        (parts, 9, 7), // 40 must be left: 6 x 10 + 40
        (parts, 1, 2), // dropped before its end: the estimate stays
        (&parts[..1], 9, 2),
        (&["{\"usage\": {\"total\": 100}}"], 9, 1),
        (&[], 9, 2),
    ] {
        let passed = passed("/complete/json", Writer(parts, None, None), read);
        assert_eq!(passed, passes, "{parts:?}, {read}");
    }
}

/// As servers do: they know the length, and drop the body after the last byte.
#[test]
fn a_body_of_known_length_settles_an_estimate_with_its_last_byte() {
    let parts: &[&str] = &["{\"usage\": {\"to", "tal\": 10}}"];
    for (length, read, passes) in [("24", 2, 7), ("24", 1, 2), ("25", 2, 2), ("25", 3, 7)] {
        let passed = passed("/complete/json", Writer(parts, None, Some(length)), read);
        assert_eq!(passed, passes, "{length}, {read}");
    }
    let writer = Writer(&["a", "b"], Some("10"), Some("2"));
    assert_eq!(passed("/complete/trailer", writer, 3), 7, "by its trailer");
}

#[test]
fn a_trailer_of_a_response_settles_an_estimate() {
    for (used, read, passes) in [
        (Some("10"), 9, 7),
        (Some("10"), 3, 7), // servers drop a body after its trailers
        (Some("10"), 2, 2), // dropped before its trailers
        (Some("many"), 9, 2),
        (None, 9, 2),
    ] {
        let passed = passed("/complete/trailer", Writer(&["a", "b"], used, None), read);
        assert_eq!(passed, passes, "{used:?}, {read}");
    }
}

/// Returns how many of ten requests pass, of whose responses so many frames are read.
fn passed(path: &str, writer: Writer, read: usize) -> u32 {
    let layer = layer(&clock());
    let mut service = layer.layer(writer);
    let mut passed = 0;
    for _ in 0..10 {
        let future = service.call(get(path, &[("x-user", "ann")]));
        let Poll::Ready(response) = crate::stage::poll(std::pin::pin!(future)) else {
            panic!("the call is pending");
        };
        let response = response.unwrap();
        passed += u32::from(response.status() == 200);
        let mut body = response.into_body();
        for _ in 0..read {
            let _ = crate::stage::poll(std::pin::pin!(body.frame()));
        }
    }
    passed
}

#[test]
fn a_handler_adds_its_own_report() {
    let locked = ["/login?outcome=locked"; 3];
    // The status is still reported: 200 empties the record.
    assert_eq!(statuses(&layer(&clock()), &locked), [200, 200, 200]);
    let dear = [
        "/complete?cost=0",
        "/complete?cost=95",
        "/complete",
        "/complete",
    ];
    assert_eq!(statuses(&layer(&clock()), &dear), [200, 200, 429, 429]);
    let plain = ["/complete"; 3];
    assert_eq!(statuses(&layer(&clock()), &plain), [200, 200, 429]);
}

#[test]
fn without_a_response_the_charge_stays() {
    let user = || get("/login", &[("x-user", "ann")]);
    let failing = layer(&clock());
    let mut service = failing.layer(Stage::new(Act::Fail));
    assert!(now(&mut service, user()).is_err());
    assert!(now(&mut service, user()).is_err());
    assert_eq!(status(&mut service, user()), 429);

    let hanging = layer(&clock());
    let mut service = hanging.layer(Stage::new(Act::Hang));
    for _ in 0..2 {
        drop(service.call(user())); // the client goes away
    }
    assert_eq!(status(&mut service, user()), 429);
}
