//! Stage: a service that answers by script, and layers on a clock that tests move.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use ratekeeper::core::{Gcra, Origin};
use ratekeeper::policy::config;
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::tower::{ByPolicy, LimitedBody, RateLimitLayer};
use ratekeeper::{Keeper, Limiter, ManualClock};
use tower_service::Service;

pub(crate) type Clocked = Arc<ManualClock>;
pub(crate) type Answered = Response<LimitedBody<Scripted>>;

pub(crate) fn clock() -> Clocked {
    Arc::new(ManualClock::at(Origin::UNIX))
}

/// A token bucket.
pub(crate) fn limiter(quota: &str, clock: &Clocked) -> Limiter<Gcra, Clocked> {
    let bucket = Gcra::token_bucket(quota.parse().unwrap()).unwrap();
    Limiter::with_clock(bucket, Arc::clone(clock))
}

pub(crate) type Policies = RateLimitLayer<ByPolicy<MemoryStore, Clocked>>;

/// The limits of a policy without its first line.
pub(crate) fn policy(text: &str, clock: &Clocked) -> Policies {
    let store = MemoryStore::new(MemoryConfig::default());
    RateLimitLayer::policy(Keeper::new(parsed(text), store, Arc::clone(clock)))
}

pub(crate) fn parsed(text: &str) -> ratekeeper::policy::Policy {
    let context = config::Context::from(Origin::UNIX);
    match config::parse(&format!("version = 1\n{text}"), context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

/// How the service answers, and the requests that it has seen.
#[derive(Clone, Default)]
pub(crate) struct Stage {
    act: Act,
    served: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, Default)]
pub(crate) enum Act {
    /// With this body and a `RateLimit` of its own.
    #[default]
    Answer,
    /// With an empty body.
    NoContent,
    /// With a body that never ends.
    Endless,
    /// With a body that fails after its first frame.
    BrokenBody,
    Fail,
    Panic,
    /// Not at all.
    Hang,
}

impl Stage {
    pub(crate) fn new(act: Act) -> Self {
        let served = Arc::default();
        Self { act, served }
    }

    pub(crate) fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }
}

impl<B> Service<Request<B>> for Stage {
    type Response = Response<Scripted>;
    type Error = &'static str;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        let (act, served) = (self.act, Arc::clone(&self.served));
        Box::pin(async move {
            served.fetch_add(1, Ordering::Relaxed);
            let body = match act {
                Act::Answer => Scripted::new(["hello", "world"].map(Step::Data)),
                Act::NoContent => Scripted::new([]),
                Act::Endless => Scripted::new([Step::Data("more")]).then_hangs(),
                Act::BrokenBody => Scripted::new([Step::Data("more"), Step::Error]),
                Act::Fail => return Err("failed"),
                Act::Panic => panic!("the handler panics"),
                Act::Hang => std::future::pending().await,
            };
            Ok(Response::new(body))
        })
    }
}

/// A body by script.
pub(crate) struct Scripted {
    steps: VecDeque<Step>,
    hangs: bool,
}

enum Step {
    Data(&'static str),
    Error,
}

impl Scripted {
    fn new(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        let hangs = false;
        Self { steps, hangs }
    }

    fn then_hangs(self) -> Self {
        let hangs = true;
        Self { hangs, ..self }
    }
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        match self.steps.pop_front() {
            Some(Step::Data(text)) => Poll::Ready(Some(Ok(Frame::data(text.into())))),
            Some(Step::Error) => Poll::Ready(Some(Err("the body fails"))),
            None if self.hangs => Poll::Pending,
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.steps.is_empty() && !self.hangs
    }
}

/// A request with headers and extensions of the test's choice.
pub(crate) fn get(path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

/// The answer, which must be there at once.
pub(crate) fn now<S>(service: &mut S, request: Request<()>) -> Result<Answered, &'static str>
where
    S: Service<Request<()>, Response = Answered, Error = &'static str>,
{
    match poll(pin!(service.call(request))) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("the call is pending"),
    }
}

pub(crate) fn status<S>(service: &mut S, request: Request<()>) -> u16
where
    S: Service<Request<()>, Response = Answered, Error = &'static str>,
{
    now(service, request).unwrap().status().as_u16()
}

/// Polls once, without a waker.
pub(crate) fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// The whole body, which must be there.
pub(crate) fn content(answer: Answered) -> String {
    match poll(pin!(answer.into_body().collect())) {
        Poll::Ready(Ok(content)) => String::from_utf8(content.to_bytes().to_vec()).unwrap(),
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => panic!("the body is pending"),
    }
}

/// Name and value of each header, in order.
pub(crate) fn headers(answer: &Answered) -> Vec<(String, String)> {
    let headers = answer.headers().iter();
    let text = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.to_string(), value.to_str().unwrap().to_owned())
    };
    headers.map(text).collect()
}

pub(crate) fn header(answer: &Answered, name: &str) -> Option<String> {
    let value = answer.headers().get(name)?;
    Some(value.to_str().unwrap().to_owned())
}

/// A list that callbacks write.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;
