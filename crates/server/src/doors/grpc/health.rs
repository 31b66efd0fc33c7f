//! Health: whether to ask this server, as gRPC's health checking says it.
//!
//! Healthy is what `/readyz` calls ready: a policy is in force and the service does not
//! stop. When it stops, callers of `Watch` learn of it before the last call is taken.

use std::time::Duration;

use prost::Message;
use ratekeeper_wire::health::health_check_response::ServingStatus;
use ratekeeper_wire::health::{HealthCheckRequest, HealthCheckResponse, HealthListResponse};
use tokio::sync::watch;

use crate::readiness::Readiness;
use crate::serve::grpc::{Code, GrpcCall, GrpcStatus, lingered};

/// The whole server, the name that Envoy's reference service has, and the service's own.
const SERVICES: [&str; 3] = [
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
];
/// Maximum number of bytes of a name.
const MAX_NAME: usize = 1_024;

/// `Check`
pub(super) async fn check(readiness: &Readiness, call: GrpcCall) {
    let check = |message: bytes::Bytes| {
        let answer = read(&message).and_then(|request| {
            let is_known = SERVICES.contains(&&*request.service);
            let answer = is_known.then(|| response(serving(readiness.is_ready())));
            answer.ok_or_else(|| GrpcStatus::new(Code::NotFound, "no such service"))
        });
        std::future::ready(answer)
    };
    call.unary(check).await;
}

/// `List`
pub(super) async fn list(readiness: &Readiness, call: GrpcCall) {
    let list = |_: bytes::Bytes| {
        let status = serving(readiness.is_ready());
        let statuses = SERVICES.map(|service| (service.to_owned(), response(status)));
        let statuses = statuses.into_iter().collect();
        std::future::ready(Ok(HealthListResponse { statuses }))
    };
    call.unary(list).await;
}

/// `Watch`: sends the status now and after each change, until the caller or the server ends it.
/// The door stays open for `linger` after `closing`.
pub(super) async fn watch(
    readiness: &Readiness,
    mut closing: watch::Receiver<bool>,
    linger: Duration,
    mut call: GrpcCall,
) {
    let asked = match call.next_message().await {
        Ok(Some(message)) => read(&message),
        Ok(None) => Err(GrpcStatus::new(
            Code::InvalidArgument,
            "the call has no message",
        )),
        Err(status) => Err(status),
    };
    let request = match asked {
        Ok(request) => request,
        Err(status) => return call.fail(&status),
    };
    let Some(mut answers) = call.answers() else {
        return;
    };
    let known = SERVICES.contains(&&*request.service);
    let mut ready = readiness.subscribe();
    loop {
        let status = match *ready.borrow_and_update() {
            ready if known => serving(ready),
            _ => ServingStatus::ServiceUnknown,
        };
        if !answers.send(&response(status)).await {
            return;
        }
        tokio::select! {
            changed = ready.changed() => if changed.is_err() { break },
            () = lingered(&mut closing, linger) => break,
            () = answers.gone() => return,
        }
    }
    answers.end(&GrpcStatus::new(Code::Unavailable, "the server stops"));
}

fn serving(ready: bool) -> ServingStatus {
    if ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

fn read(message: &[u8]) -> Result<HealthCheckRequest, GrpcStatus> {
    let request = HealthCheckRequest::decode(message).ok();
    let request = request.filter(|request| request.service.len() <= MAX_NAME);
    request.ok_or_else(|| GrpcStatus::new(Code::InvalidArgument, "not a health check request"))
}
