//! Inspect: a layer around a policy's, which reads the bodies that its limits count by.
//!
//! ```text
//!   request --> a limit needs the body? --no--> limits --> service
//!                    |yes                        ^
//!                    '--> at most 64 KiB read ---'
//! ```

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use pin_project_lite::pin_project;
use ratekeeper_store::{MemoryStore, Store};
use tower_layer::Layer;
use tower_service::Service;

use super::by_policy::ByPolicy;
use super::inspected::{InspectedBody, MAX_INSPECTED_BODY};
use crate::{SystemClock, Timer};

/// Reads bodies for limits by `form:NAME` and `json:/POINTER`; made by
/// [`inspect_bodies`](crate::tower::RateLimitLayer::inspect_bodies).
///
/// ```
/// use ratekeeper::tower::{InspectLayer, RateLimitLayer};
/// let limits = RateLimitLayer::policy_text(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "logins"
///     key   = ["form:username"]
///     limit = "10/1h"
///     missing_key = "deny"
///     "#,
/// )?;
/// let bodies: InspectLayer = limits.inspect_bodies().max_inspected_body(16 << 10);
/// # Ok::<(), ratekeeper::tower::PolicyError>(())
/// ```
pub struct InspectLayer<S = MemoryStore, C = SystemClock> {
    gate: ByPolicy<S, C>,
    max: usize,
}

/// A service that receives bodies of which the beginning may have been read.
///
/// ```
/// use ratekeeper::tower::{Inspect, RateLimitLayer};
/// use tower_layer::Layer;
///
/// struct Api; // a service
///
/// let text = "version = 1\n[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"1/1s\"\n";
/// let service: Inspect<Api> = RateLimitLayer::policy_text(text)?.inspect_bodies().layer(Api);
/// # Ok::<(), ratekeeper::tower::PolicyError>(())
/// ```
pub struct Inspect<I, S = MemoryStore, C = SystemClock> {
    inner: I,
    gate: ByPolicy<S, C>,
    max: usize,
}

impl<S, C> InspectLayer<S, C> {
    pub(super) const fn new(gate: ByPolicy<S, C>) -> Self {
        let max = MAX_INSPECTED_BODY;
        Self { gate, max }
    }

    /// Sets the maximum number of bytes of a body that are read. A longer body has no values, and the
    /// `missing_key` of each limit decides.
    #[must_use]
    pub const fn max_inspected_body(mut self, bytes: usize) -> Self {
        self.max = bytes;
        self
    }
}

impl<I, S, C> Layer<I> for InspectLayer<S, C> {
    type Service = Inspect<I, S, C>;

    fn layer(&self, inner: I) -> Inspect<I, S, C> {
        Inspect {
            inner,
            gate: self.gate.clone(),
            max: self.max,
        }
    }
}

impl<I, B, S, C> Service<Request<B>> for Inspect<I, S, C>
where
    I: Service<Request<InspectedBody<B>>> + Clone,
    B: Body<Data = Bytes> + Unpin,
    S: Store + 'static,
    C: Timer + 'static,
{
    type Response = I::Response;
    type Error = I::Error;
    type Future = InspectFuture<I, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> InspectFuture<I, B> {
        let needs_body = self.gate.needs_body_of((&request).into());
        let request = request.map(InspectedBody::new);
        if !needs_body {
            let future = self.inner.call(request);
            return InspectFuture {
                state: State::Serving { future },
            };
        }
        // The ready service waits; the clone takes its place.
        let waits = self.inner.clone();
        let service = std::mem::replace(&mut self.inner, waits);
        InspectFuture {
            state: State::Reading {
                request: Some(request),
                service,
                max: self.max,
            },
        }
    }
}

pin_project! {
    /// The response to a request whose body may have to be read first. Dropped before that, nothing
    /// was charged.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::Request;
    /// use ratekeeper::tower::{Inspect, InspectFuture, InspectedBody};
    /// use tower_service::Service;
    ///
    /// type Body = http_body_util::Full<Bytes>;
    ///
    /// /// Calls a service of which `I` receives the bodies.
    /// fn call<I>(service: &mut Inspect<I>, request: Request<Body>) -> InspectFuture<I, Body>
    /// where
    ///     I: Service<Request<InspectedBody<Body>>> + Clone,
    /// {
    ///     service.call(request)
    /// }
    /// ```
    pub struct InspectFuture<I, B>
    where
        I: Service<Request<InspectedBody<B>>>,
        B: Body,
    {
        #[pin]
        state: State<I, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<I, B>
    where
        I: Service<Request<InspectedBody<B>>>,
        B: Body,
    {
        Reading { request: Option<Request<InspectedBody<B>>>, service: I, max: usize },
        Serving { #[pin] future: I::Future },
    }
}

impl<I, B> Future for InspectFuture<I, B>
where
    I: Service<Request<InspectedBody<B>>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Output = Result<I::Response, I::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                Projected::Reading {
                    request,
                    service,
                    max,
                } => {
                    let Some(reading) = request else {
                        unreachable!("a request is taken once");
                    };
                    while let Some(held) = ready!(reading.body_mut().poll_more(context)) {
                        if held > *max {
                            break;
                        }
                    }
                    if let Some(whole) = reading.body_mut().whole(*max) {
                        reading.extensions_mut().insert(whole);
                    }
                    let Some(request) = request.take() else {
                        unreachable!("a request is taken once");
                    };
                    State::Serving {
                        future: service.call(request),
                    }
                }
                Projected::Serving { future } => return future.poll(context),
            };
            state.set(next);
        }
    }
}

clone_fields!([S, C] InspectLayer<S, C> { gate, max });

clone_fields!([I: Clone, S, C] Inspect<I, S, C> { inner, gate, max });

debug_fields!([S, C] InspectLayer<S, C> { max });

debug_fields!([I, S, C] Inspect<I, S, C> { max });

debug_fields!([I: Service<Request<InspectedBody<B>>>, B: Body] InspectFuture<I, B> {});
