//! Refusals: the statuses of calls that are not decided.

use ratekeeper_store::StoreError;
use ratekeeper_wire::WireRefusal;

use crate::serve::grpc::{Code, GrpcStatus};

/// Shows no internal details, which are in the log. Envoy's `failure_mode_deny` decides.
pub(super) fn store_down(error: &StoreError) -> GrpcStatus {
    if let StoreError::Unsupported(why) = error {
        return wrong(why.clone());
    }
    tracing::warn!(event = "store.failed", %error);
    GrpcStatus::new(Code::Unavailable, "the store cannot answer")
}

/// Returns the status of a request that is not valid.
pub(super) fn wrong(message: impl Into<String>) -> GrpcStatus {
    GrpcStatus::new(Code::InvalidArgument, message)
}

/// Returns the status of a message that is not read.
pub(super) fn unread(refusal: &WireRefusal) -> GrpcStatus {
    let code = match refusal {
        WireRefusal::TooLarge { .. } => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    GrpcStatus::new(code, refusal.to_string())
}
