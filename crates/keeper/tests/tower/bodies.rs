//! Limits that count by values of the body, which the layer around them reads.

use std::collections::VecDeque;
use std::future::{Ready, ready};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use ratekeeper::tower::{InspectLayer, InspectedBody};
use tower_layer::{Layer, Stack};
use tower_service::Service;

use crate::stage::{Clocked, Policies, clock, policy, poll};

const LIMITS: &str = r#"
[[limit]]
name  = "logins"
match = { path = "/login" }
key   = ["form:user"]
missing_key = "deny"
limit = "2/1h"
[[limit]]
name   = "tokens"
match  = { path = "/chat" }
key    = ["all"]
bucket = { size = 100, refill = "1/1s" }
cost   = "json:/max_tokens"
"#;

/// Parts of a body; an `Err` breaks it off, and `None` never comes.
#[derive(Default)]
pub(crate) struct Parts(VecDeque<Option<Result<Frame<Bytes>, &'static str>>>);

impl Parts {
    pub(crate) fn of(parts: &[&'static str]) -> Self {
        let data = |part: &&'static str| Some(Ok(Frame::data(Bytes::from(*part))));
        Self(parts.iter().map(data).collect())
    }

    pub(crate) fn then(mut self, part: Option<Result<Frame<Bytes>, &'static str>>) -> Self {
        self.0.push_back(part);
        self
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.0.pop_front() {
            Some(None) => {
                self.0.push_front(None);
                Poll::Pending
            }
            Some(part) => Poll::Ready(part),
            None => Poll::Ready(None),
        }
    }
}

/// Answers with the body that it receives, in its extensions.
#[derive(Clone)]
struct Echo;

impl Service<Request<InspectedBody<Parts>>> for Echo {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<InspectedBody<Parts>>) -> Self::Future {
        let body = request.into_body();
        let hint = body.size_hint();
        let mut body = pin!(body);
        let (mut content, mut end) = (String::new(), "end");
        loop {
            match poll(pin!(body.frame())) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => content.push_str(std::str::from_utf8(&data).unwrap()),
                    Err(_) => end = "trailers",
                },
                Poll::Ready(Some(Err(error))) => end = error,
                Poll::Ready(None) => break,
                Poll::Pending => {
                    end = "pending";
                    break;
                }
            }
        }
        assert!(hint.lower() <= content.len() as u64);
        let text = format!("{content}|{end}");
        ready(Ok(Response::new(Full::from(text))))
    }
}

type Layers = Stack<Policies, InspectLayer<ratekeeper::store::MemoryStore, Clocked>>;

fn layers(clock: &Clocked) -> Layers {
    let limits = policy(LIMITS, clock);
    let bodies = limits.inspect_bodies().max_inspected_body(16);
    Stack::new(limits, bodies)
}

/// Returns the status, and the body that the service received.
fn ask(layers: &Layers, path: &str, content_type: &str, body: Parts) -> Option<(u16, String)> {
    let mut service = layers.layer(Echo);
    let request = Request::post(path).header("content-type", content_type);
    let request = request.body(body).unwrap();
    let Poll::Ready(response) = poll(pin!(service.call(request))) else {
        return None;
    };
    let response = response.unwrap();
    let status = response.status().as_u16();
    let Poll::Ready(body) = poll(pin!(response.into_body().collect())) else {
        panic!("the response is whole");
    };
    let text = String::from_utf8(body.unwrap().to_bytes().into()).unwrap();
    Some((status, if status == 200 { text } else { String::new() }))
}

const FORM: &str = "application/x-www-form-urlencoded";

/// The answer to a request that reached the service with this body.
#[expect(
    clippy::unnecessary_wraps,
    reason = "it is compared with what `ask` returns"
)]
fn passed(text: &str) -> Option<(u16, String)> {
    Some((200, text.to_owned()))
}

#[test]
fn values_of_the_body_are_keys_and_costs() {
    let layers = layers(&clock());
    let login = |parts: &[&'static str]| ask(&layers, "/login", FORM, Parts::of(parts));
    let denied = Some((429, String::new()));
    assert_eq!(login(&["user=ann"]), passed("user=ann|end"));
    assert_eq!(login(&["us", "er=", "ann"]), passed("user=ann|end"));
    assert_eq!(login(&["user=ann"]), denied);
    assert_eq!(login(&["user=bob"]), passed("user=bob|end"));
    // 17 bytes are too many.
    assert_eq!(login(&["user=eve&x=yyyyy"]), passed("user=eve&x=yyyyy|end"));
    assert_eq!(login(&["user=eve&x=yyyyy", "y"]), denied);
    assert_eq!(login(&["user=eve&user=a"]), denied);

    let chat = |body| ask(&layers, "/chat", "application/json", Parts::of(&[body]));
    // 17 bytes cannot be read, and cost 1.
    assert_eq!(chat("{\"max_tokens\":99}").unwrap().0, 200);
    for _ in 0..11 {
        assert_eq!(chat("{\"max_tokens\":9}").unwrap().0, 200);
    }
    assert_eq!(chat("{\"max_tokens\":1}"), denied);
}

#[test]
fn the_service_receives_the_body_as_it_came() {
    let layers = layers(&clock());
    let trailers = || Some(Ok(Frame::trailers(http::HeaderMap::new())));
    for path in ["/login", "/other"] {
        let body = Parts::of(&["user", "=ann"]).then(trailers());
        assert_eq!(ask(&layers, path, FORM, body), passed("user=ann|trailers"));
    }
    // Longer than the part that is read.
    let long = Parts::of(&["max_tokens=1234567", "8", "9"]).then(trailers());
    let expected = passed("max_tokens=123456789|trailers");
    assert_eq!(ask(&layers, "/chat", FORM, long), expected);
    let broken = Parts::of(&["max_", "tokens"]).then(Some(Err("reset")));
    assert_eq!(
        ask(&layers, "/chat", FORM, broken),
        passed("max_tokens|reset")
    );
}

#[test]
fn a_request_that_is_dropped_while_its_body_is_read_is_not_charged() {
    let layers = layers(&clock());
    for _ in 0..5 {
        let waits = Parts::of(&["user=ann"]).then(None);
        assert_eq!(ask(&layers, "/login", FORM, waits), None);
    }
    // Where no limit needs it, the body is not waited for.
    let waits = Parts::of(&["user=ann"]).then(None);
    assert_eq!(
        ask(&layers, "/other", FORM, waits),
        passed("user=ann|pending")
    );
    for expected in [200, 200, 429] {
        let login = ask(&layers, "/login", FORM, Parts::of(&["user=ann"]));
        assert_eq!(login.unwrap().0, expected);
    }
}
