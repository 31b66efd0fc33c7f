//! Refusals: the statuses of calls that are not decided.

use ratekeeper_store::StoreError;

use crate::grpc::{Code, Status};

/// Nothing internal is told: the log has it. Envoy's `failure_mode_deny` decides.
pub(super) fn store_down(error: &StoreError) -> Status {
    if let StoreError::Unsupported(why) = error {
        return wrong(why.clone());
    }
    tracing::warn!(event = "store.failed", %error);
    Status::new(Code::Unavailable, "the store cannot answer")
}

/// The request makes no sense.
pub(super) fn wrong(message: impl Into<String>) -> Status {
    Status::new(Code::InvalidArgument, message)
}
