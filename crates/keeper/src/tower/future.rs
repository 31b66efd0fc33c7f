//! Future: the answer to one request, refused or served.
//!
//! ```text
//!   waiting (for a store, in line, until a shaped request is due) --> serving --> body
//!                                                                 \-> refused
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::body::LimitedBody;
use super::gate::Boxed;
use super::settle::{Pass, Settled};

pin_project! {
    /// The answer to one request. Dropped, it leaves the line it waits in, and gives back
    /// what the request holds.
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
        Waiting { settled: Boxed<(Parts, Settled)>, service: S, body: Option<B> },
        Serving { #[pin] future: S::Future, pass: Option<Pass> },
        Refused { response: Option<Response<Vec<u8>>> },
    }
}

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn waiting(settled: Boxed<(Parts, Settled)>, service: S, body: B) -> Self {
        let body = Some(body);
        let state = State::Waiting {
            settled,
            service,
            body,
        };
        Self { state }
    }

    pub(super) fn serving(future: S::Future, pass: Pass) -> Self {
        let pass = Some(pass);
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
                    body,
                } => {
                    let (parts, settled) = ready!(settled.as_mut().poll(context));
                    match (settled, body.take()) {
                        (Settled::Pass(pass), Some(body)) => State::Serving {
                            future: service.call(Request::from_parts(parts, body)),
                            pass: Some(pass),
                        },
                        (Settled::Refuse(response), _) => State::Refused {
                            response: Some(response),
                        },
                        (Settled::Pass(_), None) => unreachable!("a body is taken once"),
                    }
                }
                Projected::Serving { future, pass } => {
                    let result = ready!(future.poll(context));
                    let mut pass = pass.take(); // an error gives back what it holds
                    if let Some(measured) = pass.as_mut().and_then(Pass::measured) {
                        match &result {
                            Ok(response) => {
                                measured.answered(response.status(), response.headers());
                            }
                            Err(_) => measured.failed(),
                        }
                    }
                    return Poll::Ready(result.map(|response| served(response, pass)));
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

fn served<R: Body>(mut response: Response<R>, pass: Option<Pass>) -> Response<LimitedBody<R>> {
    let hold = pass.and_then(|mut pass| {
        pass.put_fields(response.headers_mut());
        pass.hold
    });
    response.map(|body| LimitedBody::served(body, hold))
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
