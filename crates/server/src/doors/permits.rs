//! Permits: taken for a while, renewed, given back.
//!
//! A client receives the ids of the permits that it takes, and gives those back. No state is
//! kept here, so any node that shares the store can take them back; and giving back twice, or too
//! late, is no error, so that a client that is unsure may do it again.

use bytes::Bytes;
use http::StatusCode;
use ratekeeper_core::LeaseId;

use super::CallResult;
use super::check::{CheckCall, StatusChoice, ask, store_down};
use super::problem::{Problem, STORE_DOWN};
use super::{answer, json, put_fields, request};
use crate::context::ServiceContext;
use crate::observe::metrics::Protocol;

/// `POST /v1/acquire`: charges the rates that match and takes permits, all or none.
pub(super) async fn acquire(
    shared: &ServiceContext,
    body: Bytes,
    status: StatusChoice,
) -> CallResult {
    let check = request::check(&body)?;
    let lease = new_nonce().ok_or_else(|| Problem::new(STORE_DOWN, "try again later"))?;
    let answer = ask(shared, &check, CheckCall::Acquire(lease)).await?;
    let id = check.request_id();
    shared.record(Protocol::Http, check.logged(id.as_ref()), &answer);
    let mut response = json(status.of(&answer), answer::acquired(&answer));
    put_fields(response.headers_mut(), &answer);
    Ok(response)
}

/// `POST /v1/release`: gives permits back.
pub(super) async fn release(shared: &ServiceContext, body: Bytes) -> CallResult {
    let permits = request::permits(&body)?;
    let back = shared
        .keeper
        .release(&permits)
        .await
        .map_err(store_down(shared))?;
    Ok(json(StatusCode::OK, answer::released(&permits, &back)))
}

/// `POST /v1/renew`: lets permits be kept for their whole lease again.
pub(super) async fn renew(shared: &ServiceContext, body: Bytes) -> CallResult {
    let permits = request::permits(&body)?;
    let ends = shared
        .keeper
        .renew(&permits)
        .await
        .map_err(store_down(shared))?;
    Ok(json(StatusCode::OK, answer::renewed(&permits, &ends)))
}

/// Returns a number that cannot be guessed; `None`, with a line in the log, if the system has none.
pub(super) fn new_nonce() -> Option<LeaseId> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .inspect_err(|error| tracing::error!(event = "random.failed", %error))
        .ok()?;
    Some(LeaseId::from_bytes(bytes))
}
