//! A service that was ready is the one that is called, and keeps nothing if it is not.

use std::convert::Infallible;
use std::future::{Ready, poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use ratekeeper::core::Nanos;
use ratekeeper::tower::RateLimitLayer;
use tower_layer::Layer;
use tower_service::Service;

use crate::stage::{clock, limiter, poll};

/// A service that takes a place when it is ready, as tower's limit of concurrency does: a call
/// gives it back, or a drop.
#[derive(Default)]
struct Place {
    taken: Arc<AtomicUsize>,
    ready: bool,
}

impl Place {
    fn give_back(&mut self) {
        let taken = usize::from(std::mem::take(&mut self.ready));
        self.taken.fetch_sub(taken, Ordering::Relaxed);
    }
}

impl Clone for Place {
    fn clone(&self) -> Self {
        let taken = Arc::clone(&self.taken);
        let ready = false;
        Self { taken, ready }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back();
    }
}

impl Service<Request<()>> for Place {
    type Response = Response<Empty<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        if !std::mem::replace(&mut self.ready, true) {
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        assert!(self.ready, "the service is called only when it is ready");
        self.give_back();
        ready(Ok(Response::new(Empty::new())))
    }
}

/// Connections that ask one after the other, each with its own service; a status of 0 waits,
/// and the client goes away.
#[test]
fn a_request_that_is_not_served_keeps_no_place() {
    for (patience, statuses) in [
        (0, [200, 429, 429]),
        (60, [200, 0, 0]),
        (59, [200, 429, 429]),
    ] {
        let place = Place::default();
        let taken = Arc::clone(&place.taken);
        let layer = RateLimitLayer::new(limiter("1/1m", &clock()));
        let service = layer.queue(Nanos::from_secs(patience)).layer(place);
        let mut connections = [service.clone(), service.clone(), service];
        for (connection, status) in connections.iter_mut().zip(statuses) {
            let is_ready = poll(pin!(poll_fn(|context| connection.poll_ready(context))));
            assert!(is_ready.is_ready());
            assert_eq!(taken.load(Ordering::Relaxed), 1);
            let answer = match poll(pin!(connection.call(Request::new(())))) {
                Poll::Ready(Ok(answer)) => answer.status().as_u16(),
                Poll::Pending => 0,
            };
            assert_eq!(answer, status, "{patience}");
            assert_eq!(taken.load(Ordering::Relaxed), 0, "{patience}: {status}");
        }
    }
}

#[tokio::test]
async fn a_request_that_waited_calls_the_service_that_was_ready() {
    let clock = clock();
    let layer = RateLimitLayer::new(limiter("1/1m", &clock)).queue(Nanos::from_secs(60));
    let mut service = layer.layer(Place::default());
    for wait in [0, 60] {
        let is_ready = poll(pin!(poll_fn(|context| service.poll_ready(context))));
        assert!(is_ready.is_ready());
        let mut call = pin!(service.call(Request::new(())));
        assert_eq!(poll(call.as_mut()).is_ready(), wait == 0);
        if wait > 0 {
            clock.advance(Nanos::from_secs(wait));
            assert_eq!(call.await.unwrap().status(), 200);
        }
    }
}
