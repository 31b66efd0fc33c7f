//! Request faults: requests of the proxy listener that cannot be served, because of their client.

use http::HeaderValue;
use ratekeeper_core::Time;

use super::Process;
use crate::counter::{Counter, LogGate};
use crate::doors::problem::{
    BROKEN_BODY, MALFORMED, ProblemKind, TOO_LARGE, TOO_SLOW, WRONG_METHOD,
};

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestFault {
    Malformed,
    Method,
    HeadTooLarge,
    BodyTooLarge,
    BodyLate,
    BodyBroken,
    /// A connection without a valid PROXY header, or one of a peer that is not trusted.
    ProxyHeader,
}

/// Counts by kind, and the gates of their lines.
pub(crate) type RequestFaults = [(Counter, LogGate); RequestFault::NAMES.len()];

impl RequestFault {
    pub(super) const NAMES: [&str; 7] = [
        "malformed",
        "method",
        "head_too_large",
        "body_too_large",
        "body_late",
        "body_broken",
        "proxy_header",
    ];

    /// Returns the fault that a problem reports; `None` if the client is not at fault.
    pub(crate) fn of(problem: ProblemKind) -> Option<Self> {
        match problem {
            MALFORMED => Some(Self::Malformed),
            WRONG_METHOD => Some(Self::Method),
            TOO_LARGE => Some(Self::BodyTooLarge),
            TOO_SLOW => Some(Self::BodyLate),
            BROKEN_BODY => Some(Self::BodyBroken),
            _ => None,
        }
    }
}

impl Process {
    /// Counts a fault; of each kind one line a second reports it at most.
    pub(crate) fn request_fault(&self, fault: RequestFault, id: Option<&HeaderValue>, now: Time) {
        let (count, log) = &self.request_faults[fault as usize];
        count.add(1);
        if let Some(suppressed) = log.opens(now) {
            let kind = RequestFault::NAMES[fault as usize];
            let request_id = id.and_then(|id| id.to_str().ok());
            tracing::info!(event = "request.failed", kind, request_id, suppressed);
        }
    }
}
