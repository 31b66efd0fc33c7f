//! Why a call has no answer.

use std::fmt;

use crate::Refused;

/// Why a call has no answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum CallError<E> {
    /// The breaker is open; nothing was sent, or nothing more.
    Open(Refused),
    /// The throttle refused it; nothing was sent, or nothing more.
    Throttled,
    /// As many calls are at work as the server can bear; nothing was sent, or nothing more.
    AtWork {
        /// The limit, see [`AdaptiveConcurrency`](crate::AdaptiveConcurrency).
        limit: u32,
    },
    /// Its deadline passed, or would have before an answer.
    Deadline,
    /// The service inside failed, at the last attempt.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for CallError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open(refused) => refused.fmt(f),
            Self::Throttled => f.write_str("refused locally: the server refuses most requests"),
            Self::AtWork { limit } => write!(f, "refused locally: {limit} calls are in flight"),
            Self::Deadline => f.write_str("the deadline of the call passed"),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for CallError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Inner(error) => error.source(),
            Self::Open(_) | Self::Throttled | Self::AtWork { .. } | Self::Deadline => None,
        }
    }
}
