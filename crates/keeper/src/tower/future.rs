//! Future: the response to one request, refused or served.
//!
//! ```text
//!   waiting (for a store, in line, until a shaped request is due) --> serving --> body
//!                                                                 \-> refused
//! ```

use std::future::Future;
use std::mem::take;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::LimitedBody;
use super::gate::Boxed;
use super::hold::RequestHold;
use super::pass::{Pass, PassTerms};
use super::reporter::ResponseCosts;
use super::settle::SettledRuling;

pin_project! {
    /// The response to one request. Dropped, it leaves the line it waits in, and gives back the
    /// permits that the request holds.
    ///
    /// ```
    /// use http::Request;
    /// use ratekeeper::tower::{RateLimited, ResponseFuture};
    /// use tower_service::Service;
    ///
    /// /// Calls a limited service; `S` is the service inside.
    /// fn call<S, G>(service: &mut RateLimited<S, G>, request: Request<String>) -> ResponseFuture<S, String>
    /// where
    ///     S: Service<Request<String>>,
    ///     RateLimited<S, G>: Service<Request<String>, Future = ResponseFuture<S, String>>,
    /// {
    ///     service.call(request)
    /// }
    /// ```
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
        // A request that holds nothing, and passes without terms.
        Free {
            #[pin]
            future: S::Future,
        },
        Serving {
            #[pin]
            future: S::Future,
            pass: Pass,
        },
        Refused { response: Option<Response<Vec<u8>>> },
        // On the heap, so that a request that does not wait is moved in a few words.
        Waiting { waiting: Box<Waiting<S, B>> },
    }
}

/// A request that waits, and the service that is ready for it.
struct Waiting<S, B> {
    settled: Boxed<SettledRuling>,
    service: S,
    request: Option<Request<B>>,
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn waiting(settled: Boxed<SettledRuling>, service: S, request: Request<B>) -> Self {
        let waiting = Box::new(Waiting {
            settled,
            service,
            request: Some(request),
        });
        let state = State::Waiting { waiting };
        Self { state }
    }

    #[inline]
    pub(super) fn serving(future: S::Future, pass: Pass) -> Self {
        let state = if pass.hold.is_none() && pass.terms.is_none() {
            State::Free { future }
        } else {
            State::Serving { future, pass }
        };
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

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        let free = |response: Response<R>| response.map(LimitedBody::free);
        match state.as_mut().project() {
            Projected::Free { future } => future.poll(context).map_ok(free),
            Projected::Serving {
                future,
                pass:
                    Pass {
                        hold: hold @ Some(RequestHold::Counted(_) | RequestHold::Other(_)),
                        terms: None,
                    },
            } => {
                let result = ready!(future.poll(context));
                // An error, or a response without content, gives back the permits.
                let goes_on = |it: &Response<R>| !it.body().is_end_stream();
                let hold = hold.take().filter(|_| result.as_ref().is_ok_and(goes_on));
                if hold.is_none() {
                    return Poll::Ready(result.map(free));
                }
                let served = |body| LimitedBody::served(body, hold, None);
                Poll::Ready(result.map(|response| response.map(served)))
            }
            _ => state.poll(context),
        }
    }
}

impl<S, B, R> State<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
{
    /// Apart from the usual case, which is small enough to be compiled into its caller.
    #[inline(never)]
    fn poll(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<LimitedBody<R>>, S::Error>> {
        loop {
            let next = match self.as_mut().project() {
                Projected::Waiting { waiting } => {
                    let settled = ready!(waiting.settled.as_mut().poll(context));
                    match (settled, waiting.request.take()) {
                        (SettledRuling::Pass(pass), Some(request)) => Self::Serving {
                            future: waiting.service.call(request),
                            pass,
                        },
                        (SettledRuling::Refuse(response), _) => Self::Refused {
                            response: Some(response),
                        },
                        (SettledRuling::Pass(_), None) => unreachable!("a request is taken once"),
                    }
                }
                Projected::Free { future } => {
                    let free = |response: Response<R>| response.map(LimitedBody::free);
                    return future.poll(context).map_ok(free);
                }
                Projected::Serving { future, pass } => {
                    let mut result = ready!(future.poll(context));
                    let pass = take(pass); // an error gives back the permits
                    let (mut hold, mut terms) = (pass.hold, pass.terms);
                    let mut costs = None;
                    match &mut result {
                        Ok(response) => costs = answered(response, &mut hold, terms.as_deref_mut()),
                        Err(_) => {
                            if let Some(measured) = hold.as_mut().and_then(RequestHold::measured) {
                                measured.failed();
                            }
                        }
                    }
                    let served = |body| LimitedBody::served(body, hold, costs);
                    return Poll::Ready(result.map(|response| response.map(served)));
                }
                Projected::Refused { response } => {
                    let response = response.take().unwrap_or_default(); // polled again: nothing
                    return Poll::Ready(Ok(response.map(LimitedBody::refusal)));
                }
            };
            self.set(next);
        }
    }
}

/// Reports the response, and adds the fields to it. Returns the charges that its body settles.
fn answered<R>(
    response: &mut Response<R>,
    hold: &mut Option<RequestHold>,
    terms: Option<&mut PassTerms>,
) -> Option<Box<ResponseCosts>> {
    if let Some(measured) = hold.as_mut().and_then(RequestHold::measured) {
        measured.answered(response.status(), response.headers());
    }
    let terms = terms?;
    let reporter = terms.reporter.take();
    let costs = reporter.and_then(|reporter| reporter.receive_response(response));
    terms.fields.put_into(response.headers_mut());
    costs
}

debug_fields!([S: Service<Request<B>>, B] ResponseFuture<S, B> {});
