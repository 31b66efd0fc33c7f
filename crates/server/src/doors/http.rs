//! The http door: the paths of the check API and of forward-auth.

use std::convert::identity;
use std::sync::Arc;

use http::{Response, StatusCode};

use super::CallResult;
use super::Reply;
use super::access::{Right, not_a_page, one_host};
use super::auth;
use super::body::{MAX_BATCH_BYTES, MAX_CHECK_BYTES};
use super::check::{self, CheckOptions, StatusChoice};
use super::permits;
use super::report;
use super::routes::{self, RouteCall, routes};
use crate::context::ServiceContext;
use crate::observe::metrics::{Protocol, RequestResult};
use crate::readiness::Readiness;
use crate::serve::listener::{Asked, Handle};

/// The check API and forward-auth.
#[derive(Debug)]
pub(crate) struct HttpDoor(pub(crate) Arc<ServiceContext>);

impl Handle for HttpDoor {
    type Body = Reply;

    async fn handle(&self, asked: Asked<'_>) -> Response<Reply> {
        let shared = &self.0;
        let answered = answer(shared, asked).await;
        answered.unwrap_or_else(|problem| {
            shared.count_request(Protocol::Http, RequestResult::Error);
            problem.response()
        })
    }
}

async fn answer(shared: &Arc<ServiceContext>, asked: Asked<'_>) -> CallResult {
    let Asked { caller, head, body } = asked;
    one_host(head)?;
    let route = routes::find(HTTP_ROUTES, "http", head).map_err(|no| no.problem)?;
    let headers = &head.headers;
    match route.right {
        Right::Probe => {}
        Right::Read => not_a_page(headers)?,
        Right::Write => {
            shared.note_wrong_token(caller.address, headers);
            shared.access.balances(caller.address.ip(), headers)?;
        }
    }
    let call = RouteCall {
        shared,
        caller,
        route,
        head,
        body,
    };
    routed(call).await
}

routes! {
    /// The routes of the http listener.
    HTTP_ROUTES, |call| -> Reply, identity;
    POST "/v1/check" Read => {
        let options = CheckOptions::read(call.query())?;
        check::check(call.shared, call.caller, call.body(MAX_CHECK_BYTES).await?, options).await
    },
    ANY "/v1/auth" Probe => auth::auth(call).await,
    ANY "/v1/auth/*" Probe => auth::auth(call).await,
    POST "/v1/check/batch" Read =>
        check::batch(call.shared, call.body(MAX_BATCH_BYTES).await?).await,
    POST "/v1/peek" Read => {
        let status = StatusChoice::read(call.query())?;
        check::peek(call.shared, call.body(MAX_CHECK_BYTES).await?, status).await
    },
    POST "/v1/acquire" Read => {
        let status = StatusChoice::read(call.query())?;
        permits::acquire(call.shared, call.body(MAX_CHECK_BYTES).await?, status).await
    },
    POST "/v1/renew" Read => permits::renew(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
    POST "/v1/release" Read =>
        permits::release(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
    POST "/v1/report" Read => report::report(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
    POST "/json" Read => {
        let shared = call.shared;
        let body = call.body(ratekeeper_wire::MAX_REQUEST_BYTES).await?;
        Ok(super::grpc::envoy::json::serve(shared, body).await)
    },
    ANY "/healthcheck" Probe => Ok(healthcheck(&call.shared.readiness)),
    POST "/v1/reset" Write => check::reset(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
    POST "/v1/refund" Write => check::refund(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
}

/// Answers as Envoy's reference service answers load balancers.
fn healthcheck(readiness: &Readiness) -> Response<Reply> {
    let (status, text) = if readiness.is_ready() {
        (StatusCode::OK, "OK")
    } else {
        (StatusCode::INTERNAL_SERVER_ERROR, "not ready")
    };
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response
}
