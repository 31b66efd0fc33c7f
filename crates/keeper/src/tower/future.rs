//! Future: the response to one request, refused or served.
//!
//! ```text
//!   waiting (for a store, in line, until a shaped request is due) --> serving --> body
//!                                                                 \-> refused
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::LimitedBody;
use super::gate::Boxed;
use super::hold::RequestHold;
use super::pass::Pass;
use super::reporter::ResponseCosts;
use super::settle::Settled;
use crate::Report;

pin_project! {
    /// The response to one request. Dropped, it leaves the line it waits in, and gives back the
    /// permits that the request holds.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
    }
}

pin_project! {
    #[project = Projected]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        Waiting { settled: Boxed<Settled>, service: S, request: Option<Request<B>> },
        Serving { #[pin] future: S::Future, pass: Option<Pass> },
        Refused { response: Option<Response<Vec<u8>>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn waiting(settled: Boxed<Settled>, service: S, request: Request<B>) -> Self {
        let request = Some(request);
        let state = State::Waiting {
            settled,
            service,
            request,
        };
        Self { state }
    }

    pub(super) fn serving(future: S::Future, pass: Option<Pass>) -> Self {
        let state = State::Serving { future, pass };
        Self { state }
    }

    pub(super) fn refused(response: Response<Vec<u8>>) -> Self {
        let response = Some(response);
        let state = State::Refused { response };
        Self { state }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    type Output = Result<Response<LimitedBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                Projected::Waiting {
                    settled,
                    service,
                    request,
                } => match (ready!(settled.as_mut().poll(context)), request.take()) {
                    (Settled::Pass(pass), Some(request)) => State::Serving {
                        future: service.call(request),
                        pass,
                    },
                    (Settled::Refuse(response), _) => State::Refused {
                        response: Some(response),
                    },
                    (Settled::Pass(_), None) => unreachable!("a request is taken once"),
                },
                Projected::Serving { future, pass } => {
                    let mut result = ready!(future.poll(context));
                    let Some(pass) = pass.take() else {
                        let served = |body| LimitedBody::served(body, None, None);
                        return Poll::Ready(result.map(|response| response.map(served)));
                    };
                    let (hold, costs) = pass.apply(&mut result);
                    // An error gives back the permits.
                    let served = |body| LimitedBody::served(body, hold, costs);
                    return Poll::Ready(result.map(|response| response.map(served)));
                }
                Projected::Refused { response } => {
                    let response = response.take().unwrap_or_default(); // polled again: nothing
                    return Poll::Ready(Ok(response.map(LimitedBody::refusal)));
                }
            };
            state.set(next);
        }
    }
}

impl Pass {
    /// Adds the fields to the response, reports it, and returns the permits that its body holds, and
    /// the charges that it settles.
    #[inline(never)]
    fn apply<R, E>(mut self, result: &mut Result<Response<R>, E>) -> HeldByBody {
        let mut costs = None;
        let measured = self.hold.as_mut().and_then(RequestHold::measured);
        match (result, measured) {
            (Ok(response), measured) => {
                if let Some(measured) = measured {
                    measured.answered(response.status(), response.headers());
                }
                if let Some(reporter) = self.reporter.take() {
                    let own = response.extensions_mut().remove::<Report>();
                    let own = own.unwrap_or_default();
                    let own = own.or_status(response.status().as_u16());
                    costs = (reporter.receive)(own, response.headers()).costs;
                }
                self.fields.put_into(response.headers_mut());
            }
            (Err(_), Some(measured)) => measured.failed(),
            (Err(_), None) => {}
        }
        (self.hold, costs)
    }
}

/// Permits to the end of a body, and charges that it settles.
type HeldByBody = (Option<RequestHold>, Option<Box<ResponseCosts>>);

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
