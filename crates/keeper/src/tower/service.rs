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
use super::settle::{GateSettings, Settled};

/// A service behind limits; see the [module](crate::tower). All clones share them.
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

impl<S: Clone, G> Clone for RateLimited<S, G> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            shared: Arc::clone(&self.shared),
        }
    }
}

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

    fn call(&mut self, request: Request<B>) -> ResponseFuture<S, B> {
        let (parts, body) = request.into_parts();
        let LayerContext { gate, settings } = &*self.shared;
        let cost = settings.cost.as_ref().map(|cost| cost(&parts));
        let settled = match gate.ask(&parts, cost, settings.patience) {
            Asked::Now(ruling) => match settings.settle(ruling, || grpc::content_type(&parts)) {
                Settled::Pass(pass) if pass.delay == Nanos::ZERO => {
                    let future = self.inner.call(Request::from_parts(parts, body));
                    return ResponseFuture::serving(future, pass);
                }
                Settled::Refuse(response) => {
                    // The ready service may hold a place that another request waits for.
                    self.inner = self.inner.clone();
                    return ResponseFuture::refused(response);
                }
                Settled::Pass(pass) => {
                    let delay = gate.sleep(pass.delay);
                    Box::pin(async move {
                        delay.await;
                        Settled::Pass(pass)
                    })
                }
            },
            Asked::Later(asking) => {
                later(Arc::clone(&self.shared), asking, grpc::content_type(&parts))
            }
        };
        // The ready service waits; the clone takes its place.
        let waits = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, waits);
        ResponseFuture::waiting(settled, ready, Request::from_parts(parts, body))
    }
}

/// Settles a ruling that is not known at once.
fn later<G: Gate>(
    shared: Arc<LayerContext<G>>,
    asking: Boxed<Ruling>,
    grpc: Option<HeaderValue>,
) -> Boxed<Settled> {
    Box::pin(async move {
        let settled = shared.settings.settle(asking.await, || grpc);
        if let Settled::Pass(pass) = &settled
            && pass.delay > Nanos::ZERO
        {
            shared.gate.sleep(pass.delay).await;
        }
        settled
    })
}
