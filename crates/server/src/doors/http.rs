//! The http door: the paths of the check API and of forward-auth.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use ratekeeper::Clock;

use super::Reply;
use super::access::{not_a_page, note_wrong_token, one_host};
use super::auth::{self, PREFIX};
use super::body::{self, MAX_BATCH_BYTES, MAX_CHECK_BYTES};
use super::check::{self, StatusChoice};
use super::permits;
use super::problem::{Problem, UNKNOWN_PATH, shown};
use super::report;
use super::write_log::WriteCall;
use crate::changes;
use crate::context::ServiceContext;
use crate::listener::{Caller, Handle};
use crate::metrics::{Protocol, RequestResult};

/// The check API and forward-auth.
#[derive(Debug)]
pub(crate) struct HttpDoor<C>(pub(crate) Arc<ServiceContext<C>>);

impl<C: Clock + 'static> Handle for HttpDoor<C> {
    type Body = Reply;

    async fn handle(&self, caller: Caller<'_>, request: Request<Incoming>) -> Response<Reply> {
        let shared = &self.0;
        let answered = answer(shared, caller, request).await;
        answered.unwrap_or_else(|problem| {
            shared.metrics.request(Protocol::Http, RequestResult::Error);
            problem.response()
        })
    }
}

async fn answer<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
    caller: Caller<'_>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Problem> {
    one_host(&request)?;
    let path = request.uri().path();
    match path {
        "/v1/check" => {
            post(&request)?;
            let options = check::CheckOptions::read(request.uri().query())?;
            let body = body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?;
            check::check(shared, caller, body, options).await
        }
        "/v1/check/batch" => {
            post(&request)?;
            let body = body::read(request, MAX_BATCH_BYTES, &shared.bodies).await?;
            check::batch(shared, body).await
        }
        "/v1/peek" => {
            post(&request)?;
            let status = StatusChoice::read(request.uri().query())?;
            let body = body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?;
            check::peek(shared, body, status).await
        }
        "/v1/acquire" => {
            post(&request)?;
            let status = StatusChoice::read(request.uri().query())?;
            let body = body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?;
            permits::acquire(shared, body, status).await
        }
        "/v1/renew" => {
            post(&request)?;
            permits::renew(
                shared,
                body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?,
            )
            .await
        }
        "/v1/release" => {
            post(&request)?;
            permits::release(
                shared,
                body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?,
            )
            .await
        }
        "/v1/report" => {
            post(&request)?;
            let body = body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?;
            report::report(shared, body).await
        }
        #[cfg(feature = "grpc")]
        "/json" => {
            post(&request)?;
            let body =
                body::read(request, ratekeeper_wire::MAX_REQUEST_BYTES, &shared.bodies).await?;
            Ok(super::grpc::envoy::json::serve(shared, body).await)
        }
        "/healthcheck" => Ok(healthcheck(shared.ready())),
        "/v1/reset" | "/v1/refund" => write(shared, caller, request).await,
        _ if asks(path) => {
            let (parts, _unread) = request.into_parts();
            auth::auth(shared, caller, &parts).await
        }
        _ => {
            let detail = format!("`{}` is not a path of the http listener", shown(path));
            Err(Problem::new(UNKNOWN_PATH, detail))
        }
    }
}

/// Answers as Envoy's reference service answers load balancers.
fn healthcheck(ready: bool) -> Response<Reply> {
    let (status, text) = if ready {
        (StatusCode::OK, "OK")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "not ready")
    };
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}

/// Refuses requests that no application sends: other methods, and the calls of web pages.
fn post(request: &Request<Incoming>) -> Result<(), Problem> {
    if request.method() != Method::POST {
        return Err(Problem::wrong_method("POST"));
    }
    not_a_page(request.headers())
}

/// Answers a call that only the operator may make.
async fn write<C: Clock>(
    shared: &ServiceContext<C>,
    caller: Caller<'_>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Problem> {
    if request.method() != Method::POST {
        return Err(Problem::wrong_method("POST"));
    }
    note_wrong_token(shared, caller, request.headers());
    shared
        .access
        .balances(caller.address.ip(), request.headers())?;
    let call = WriteCall::new(caller, &request);
    let resets = request.uri().path() == "/v1/reset";
    let answered = match body::read(request, MAX_CHECK_BYTES, &shared.bodies).await {
        Ok(body) if resets => changes::by(caller.address, check::reset(shared, body)).await,
        Ok(body) => check::refund(shared, body).await,
        Err(problem) => Err(problem),
    };
    call.log(&answered);
    answered
}

/// Returns true for `/v1/auth`, and for the paths that Envoy appends to it.
fn asks(path: &str) -> bool {
    let behind = path.strip_prefix(PREFIX);
    behind.is_some_and(|behind| behind.is_empty() || behind.starts_with('/'))
}
