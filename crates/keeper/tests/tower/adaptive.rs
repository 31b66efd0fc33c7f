//! The adaptive limit around a service of our own: how it refuses, and how the ends of requests
//! move it.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use ratekeeper::core::{Nanos, Permits};
use ratekeeper::policy::HeaderStyle;
use ratekeeper::tower::{
    Adaptive, AdaptiveConcurrency, AdaptiveSettings, Aimd, Bounds, End, Law, RateLimitLayer,
};
use ratekeeper_resilience::SplitMix;
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{Act, Clocked, Stage, clock, content, get, header, headers, now, poll, status};

type Layered = RateLimitLayer<Adaptive<Clocked>>;

/// A limit that moves with every request: 2 at first; done makes 3, dropped makes 1.
fn layer(clock: &Clocked) -> Layered {
    let settings = AdaptiveSettings {
        law: Law::Aimd(Aimd::default()),
        bounds: Bounds {
            least: 1,
            most: 9,
            initial: 2,
        },
        window: Duration::from_micros(1),
        least_samples: 1,
    };
    let limit = AdaptiveConcurrency::new(settings, SplitMix::new(1)).unwrap();
    RateLimitLayer::adaptive_with_clock(limit, Arc::clone(clock))
}

#[test]
fn requests_beyond_the_capacity_are_refused_with_reduced_capacity() {
    let layer = layer(&clock());
    let mut slow = layer.layer(Stage::new(Act::Endless));
    let held = [(); 2].map(|()| now(&mut slow, get("/", &[])).unwrap());
    assert_eq!(headers(&held[0]), []);
    let refused = now(&mut slow, get("/", &[])).unwrap();
    assert_eq!(refused.status(), 503);
    let shown = headers(&refused);
    let expected = [
        ("content-type", "application/problem+json"),
        ("retry-after", "1"),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(shown, expected, "no field describes the limit");
    assert_eq!(
        content(refused),
        r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","title":"Temporarily reduced capacity","status":503,"detail":"Limit adaptive allows 2 at once. Try again in 1 s.","violated-policies":["adaptive"],"retry_after":1}"#
    );
    let call = get("/", &[("content-type", "application/grpc")]);
    let refused = now(&mut slow, call).unwrap();
    assert_eq!(refused.status(), 200);
    assert_eq!(
        header(&refused, "grpc-status").unwrap(),
        "14",
        "UNAVAILABLE"
    );
    drop(held);
    assert_eq!(status(&mut slow, get("/", &[])), 200);
    assert_eq!((layer.counts().passed, layer.counts().refused), (3, 2));
}

#[test]
fn refusals_are_configured_like_those_of_other_limits() {
    let layer = layer(&clock());
    let layer = layer.refusal(429, ratekeeper::policy::Body::Empty);
    let layer = layer.named("busy").headers(HeaderStyle::Ietf);
    let mut slow = layer.layer(Stage::new(Act::Hang));
    let _held = [(); 2].map(|()| slow.call(get("/", &[])));
    let refused = now(&mut slow, get("/", &[])).unwrap();
    assert_eq!(refused.status(), 429);
    let policy = "\"busy\";q=2;qu=\"concurrent-requests\"";
    assert_eq!(header(&refused, "ratelimit-policy").unwrap(), policy);
    assert_eq!(header(&refused, "ratelimit").unwrap(), "\"busy\";r=0");
    let call = get("/", &[("content-type", "application/grpc")]);
    let refused = now(&mut slow, call).unwrap();
    assert_eq!(
        header(&refused, "grpc-status").unwrap(),
        "8",
        "429 is RESOURCE_EXHAUSTED"
    );
}

#[test]
fn a_request_without_cost_passes_and_does_not_move_the_limit() {
    let layer = layer(&clock()).cost(|head| match head.uri.path() {
        "/health" => Permits::ZERO,
        _ => Permits::new(7), // one request
    });
    let mut slow = layer.layer(Stage::new(Act::Hang));
    let _held = [(); 2].map(|()| slow.call(get("/", &[])));
    assert_eq!(layer.limit().in_flight(), 2);
    let mut stage = layer.layer(Stage::default());
    assert_eq!(status(&mut stage, get("/", &[])), 503);
    assert_eq!(status(&mut stage, get("/health", &[])), 200);
    assert_eq!((layer.limit().in_flight(), layer.limit().limit()), (2, 2));
}

/// Answers at once, with these values.
#[derive(Clone, Default)]
struct Canned {
    status: StatusCode,
    fields: HeaderMap,
    frames: Vec<Step>,
}

#[derive(Clone)]
enum Step {
    Data(&'static str),
    Trailers(HeaderMap),
    Error,
    /// The server is not asked for more.
    Left,
}

impl Service<Request<()>> for Canned {
    type Response = Response<Steps>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut steps = self.frames.clone();
        steps.reverse();
        let mut answer = Response::new(Steps(steps));
        *answer.status_mut() = self.status;
        *answer.headers_mut() = self.fields.clone();
        ready(Ok(answer))
    }
}

/// The last is next.
struct Steps(Vec<Step>);

impl Body for Steps {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        Poll::Ready(match self.0.pop() {
            Some(Step::Data(text)) => Some(Ok(Frame::data(text.into()))),
            Some(Step::Trailers(fields)) => Some(Ok(Frame::trailers(fields))),
            Some(Step::Error) => Some(Err("the body fails")),
            Some(Step::Left) => panic!("the body is polled after its end"),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

fn fields(all: &[(&'static str, &'static str)]) -> HeaderMap {
    let all = all.iter().map(|(name, value)| {
        let name = http::HeaderName::from_static(name);
        (name, http::HeaderValue::from_static(value))
    });
    all.collect()
}

fn canned(status: u16, all: &[(&'static str, &'static str)], frames: &[Step]) -> Canned {
    Canned {
        status: StatusCode::from_u16(status).unwrap(),
        fields: fields(all),
        frames: frames.to_vec(),
    }
}

/// The limit after one request with a body that is read until nothing more comes.
fn limit_after(layer: &Layered, clock: &Clocked, canned: Canned) -> u32 {
    let serving = layer.layer(canned).call(get("/", &[]));
    clock.advance(Nanos::from_millis(5));
    let Poll::Ready(Ok(answer)) = poll(pin!(serving)) else {
        panic!("the call is pending");
    };
    let mut body = answer.into_body();
    while !body.is_end_stream() {
        let frame = poll(pin!(body.frame()));
        if !matches!(frame, Poll::Ready(Some(Ok(_)))) {
            break;
        }
        if body.size_hint().exact() == Some(0) {
            break;
        }
    }
    drop(body);
    assert_eq!(layer.limit().in_flight(), 0);
    layer.limit().limit()
}

#[test]
fn ends_of_requests_move_the_limit() {
    const DONE: u32 = 3;
    const DROPPED: u32 = 1;
    const IGNORED: u32 = 2;
    let hello = [Step::Data("hel"), Step::Data("lo")];
    let grpc = ("content-type", "application/grpc");
    let trailers = |code| {
        [
            Step::Data("hello"),
            Step::Trailers(fields(&[("grpc-status", code)])),
        ]
    };
    for (case, canned, expected) in [
        ("served", canned(200, &[], &hello), DONE),
        ("no body", canned(204, &[], &[]), DONE),
        ("redirect", canned(301, &[], &[]), DONE),
        ("client error", canned(404, &[], &hello), IGNORED),
        ("server error", canned(500, &[], &hello), IGNORED),
        ("overloaded", canned(503, &[], &hello), DROPPED),
        ("limited upstream", canned(429, &[], &[]), DROPPED),
        ("timeout upstream", canned(504, &[], &hello), DROPPED),
        (
            "body fails",
            canned(200, &[], &[Step::Data("hel"), Step::Error]),
            IGNORED,
        ),
        ("gRPC call", canned(200, &[grpc], &trailers("0")), DONE),
        (
            "gRPC deadline exceeded",
            canned(200, &[grpc], &trailers("4")),
            DROPPED,
        ),
        (
            "gRPC client error",
            canned(200, &[grpc], &trailers("3")),
            IGNORED,
        ),
        (
            "gRPC headers only",
            canned(200, &[grpc, ("grpc-status", "14")], &[]),
            DROPPED,
        ),
        (
            "gRPC without a code",
            canned(200, &[grpc, ("grpc-status", "?")], &[]),
            IGNORED,
        ),
    ] {
        let clock = clock();
        assert_eq!(
            limit_after(&layer(&clock), &clock, canned),
            expected,
            "{case}"
        );
    }
}

/// As servers do: they know the length, and drop the body after the last byte.
#[test]
fn a_body_of_known_length_ends_with_its_last_byte() {
    for (length, expected) in [("5", 3), ("6", 2)] {
        let clock = clock();
        let layer = layer(&clock);
        let body = [Step::Data("hello"), Step::Left];
        let canned = canned(200, &[("content-length", length)], &body);
        let answer = poll(pin!(layer.layer(canned).call(get("/", &[]))));
        let Poll::Ready(Ok(answer)) = answer else {
            panic!("the call is pending");
        };
        clock.advance(Nanos::from_millis(5));
        let mut body = answer.into_body();
        assert!(poll(pin!(body.frame())).is_ready());
        drop(body);
        assert_eq!(layer.limit().limit(), expected, "content-length {length}");
    }
}

#[test]
fn the_application_may_classify_answers_itself() {
    let judge = |status: StatusCode, fields: &HeaderMap| match status.as_u16() {
        500.. => End::Dropped,
        _ if fields.contains_key("x-cache") => End::Ignored,
        _ => End::Done,
    };
    for (canned, expected) in [
        (canned(404, &[], &[]), 3),
        (canned(500, &[], &[]), 1),
        (canned(200, &[("x-cache", "hit")], &[]), 2),
    ] {
        let clock = clock();
        let layer = layer(&clock).judged_by(judge);
        assert_eq!(limit_after(&layer, &clock, canned), expected);
    }
}

#[test]
fn a_client_that_gives_up_before_an_answer_counts_against_the_server() {
    for (act, millis, expected) in [
        (Act::Hang, 999, 2),
        (Act::Hang, 1_000, 1),
        (Act::Endless, 5_000, 2), // there was an answer
        (Act::Fail, 5, 1),
    ] {
        let clock = clock();
        let layer = layer(&clock);
        let mut call = Box::pin(layer.layer(Stage::new(act)).call(get("/", &[])));
        clock.advance(Nanos::from_millis(millis));
        let answer = poll(call.as_mut());
        drop((answer, call));
        assert_eq!(layer.limit().in_flight(), 0);
        assert_eq!(layer.limit().limit(), expected, "after {millis} ms");
    }
}
