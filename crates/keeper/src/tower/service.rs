//! Service: asks the gate, then the service inside.

use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response};
use http_body::Body;
use ratekeeper_core::Nanos;
use tower_service::Service;

use super::body::LimitedBody;
use super::future::ResponseFuture;
use super::gate::sealed::Asked;
use super::gate::{Boxed, Gate, Ruling};
use super::grpc;
use super::head::RequestHead;
use super::settle::{GateSettings, SettledRuling};

/// A service behind limits; see the [module](crate::tower). All clones share them.
///
/// ```
/// use ratekeeper::Limiter;
/// use ratekeeper::tower::{RateLimitLayer, RateLimited, Single};
/// use tower_layer::Layer;
///
/// struct Api; // a service
///
/// let layer = RateLimitLayer::new(Limiter::per("100/1s")?);
/// let limited: RateLimited<Api, Single> = layer.layer(Api);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Debug)]
pub struct RateLimited<S, G> {
    inner: S,
    shared: Arc<LayerContext<G>>,
}

#[derive(Debug)]
pub(super) struct LayerContext<G> {
    pub(super) gate: G,
    pub(super) settings: GateSettings,
}

impl<S, G> RateLimited<S, G> {
    pub(super) fn new(inner: S, shared: LayerContext<G>) -> Self {
        let shared = Arc::new(shared);
        Self { inner, shared }
    }
}

clone_fields!([S: Clone, G] RateLimited<S, G> { inner, shared });

impl<S, G, B, R> Service<Request<B>> for RateLimited<S, G>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body<Data: From<Vec<u8>>>,
    G: Gate,
{
    type Response = Response<LimitedBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    /// Ready as soon as the service inside is, because limits are asked by [`call`](Service::call)
    /// only.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    #[inline]
    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let LayerContext { gate, settings } = &*self.shared;
        if settings.cost.is_some() {
            return self.call_at_cost(request);
        }
        match gate.ask((&request).into(), None, settings.patience) {
            Asked::Now(Ruling::Pass(pass)) if pass.terms.is_none() => {
                settings.passed();
                ResponseFuture::serving(self.inner.call(request), pass)
            }
            asked => self.call_otherwise(asked, request),
        }
    }
}

impl<S: Clone, G: Gate> RateLimited<S, G> {
    /// Answers a request whose cost the program states. Apart, because a function that the compiler
    /// cannot look into receives references to the request: a request that is never lent so is not
    /// copied on its way to the service.
    #[inline(never)]
    fn call_at_cost<B, R>(&mut self, request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>>,
    {
        let LayerContext { gate, settings } = &*self.shared;
        let head = RequestHead::from(&request);
        let cost = settings.cost.as_ref().map(|cost| cost(head));
        let asked = gate.ask(head, cost, settings.patience);
        self.call_otherwise(asked, request)
    }

    /// Answers a request that does not pass at once and without terms. Apart from the usual case,
    /// which is small enough to be compiled into its caller.
    #[inline(never)]
    fn call_otherwise<B, R>(&mut self, asked: Asked, request: Request<B>) -> ResponseFuture<S, B>
    where
        S: Service<Request<B>, Response = Response<R>>,
    {
        let LayerContext { gate, settings } = &*self.shared;
        let grpc = || grpc::content_type(request.headers());
        let settled = match asked {
            Asked::Now(ruling) => match settings.settle(ruling, grpc) {
                SettledRuling::Pass(pass) if pass.delay() == Nanos::ZERO => {
                    return ResponseFuture::serving(self.inner.call(request), pass);
                }
                SettledRuling::Refuse(response) => {
                    // The ready service may hold a place that another request waits for.
                    self.inner = self.inner.clone();
                    return ResponseFuture::refused(response);
                }
                SettledRuling::Pass(pass) => {
                    let delay = gate.sleep(pass.delay());
                    Box::pin(async move {
                        delay.await;
                        SettledRuling::Pass(pass)
                    })
                }
            },
            Asked::Later(asking) => later(Arc::clone(&self.shared), asking, grpc()),
        };
        // The ready service waits; the clone takes its place.
        let waits = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, waits);
        ResponseFuture::waiting(settled, ready, request)
    }
}

/// Settles a ruling that is not known at once.
fn later<G: Gate>(
    shared: Arc<LayerContext<G>>,
    asking: Boxed<Ruling>,
    grpc: Option<HeaderValue>,
) -> Boxed<SettledRuling> {
    #[cfg(feature = "tracing")]
    let (span, own) = {
        let span = crate::spans::request_span();
        (span.clone(), span)
    };
    let settling = async move {
        let settled = shared.settings.settle(asking.await, || grpc);
        #[cfg(feature = "tracing")]
        record(&own, &settled);
        if let SettledRuling::Pass(pass) = &settled
            && pass.delay() > Nanos::ZERO
        {
            shared.gate.sleep(pass.delay()).await;
        }
        settled
    };
    #[cfg(feature = "tracing")]
    let settling = tracing::Instrument::instrument(settling, span);
    Box::pin(settling)
}

/// Records the outcome of a request in its span.
#[cfg(feature = "tracing")]
fn record(span: &tracing::Span, settled: &SettledRuling) {
    match settled {
        SettledRuling::Pass(pass) => {
            span.record("delay_ms", crate::spans::millis(pass.delay().into()));
            span.record("outcome", "passed");
        }
        SettledRuling::Refuse(_) => {
            span.record("outcome", "refused");
        }
    }
}
