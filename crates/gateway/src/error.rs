//! Error: why a request could not be forwarded.

use strum::{IntoStaticStr, VariantArray};

/// Why there is no response of the upstream.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The upstream is at fault.
    #[error(transparent)]
    Upstream(#[from] UpstreamFailure),
    /// The TLS handshake with the upstream failed; the reason is for the operator, not the client.
    #[error("{}", UpstreamFailure::Tls)]
    Tls(String),
    /// The client did not send the rest of the body in time.
    #[error("the body of the request did not arrive in time")]
    UploadTimeout,
    /// The body of the request is longer than a body may be.
    #[error("the body of the request is longer than `max_body`")]
    UploadTooLarge,
    /// The client broke off the body, or sent one that cannot be read.
    #[error("the body of the request broke off")]
    UploadBroken,
}

/// The failure of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
#[non_exhaustive]
pub enum UpstreamFailure {
    /// No address accepts connections, or takes the request.
    #[error("the upstream refuses connections")]
    Refused,
    /// No address accepted a connection in time, or had room for one.
    #[error("the upstream did not accept a connection in time")]
    ConnectTimeout,
    /// The TLS handshake failed.
    #[error("the upstream cannot be reached by TLS")]
    Tls,
    /// The connection ended before the head of a response was complete.
    #[error("the upstream closed the connection without a response")]
    Reset,
    /// The response is not HTTP, or its head is too large.
    #[error("the response of the upstream is not valid HTTP, or its head is larger than 64 KiB")]
    BadResponse,
    /// The head of a response did not come in time.
    #[error("the upstream did not respond in time")]
    ResponseTimeout,
    /// It switched to a protocol that the client has not asked for.
    #[error("the upstream switched to a protocol that was not asked for")]
    Switched,
    /// As many requests as it can bear wait for it.
    #[error("as many requests as the upstream can bear wait for it")]
    Busy,
    /// Only the part of these that is for requests with priority is free.
    #[error("the upstream can only bear more requests with priority")]
    LowPriority,
    /// The body of the response broke off.
    #[error("the response of the upstream broke off")]
    BodyBroken,
    /// The rest of the body of the response did not come in time.
    #[error("the upstream stopped sending its response")]
    BodyTimeout,
}

impl UpstreamFailure {
    /// All failures, in the order of their discriminants.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns a word for metrics.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns true if the upstream has, or may have, a byte of the request. A request that it
    /// states by HTTP/2 not to have processed counts as refused.
    pub const fn was_sent(self) -> bool {
        matches!(
            self,
            Self::Reset
                | Self::BadResponse
                | Self::ResponseTimeout
                | Self::Switched
                | Self::BodyBroken
                | Self::BodyTimeout
        )
    }

    /// Returns true for requests that the adaptive limit keeps from the upstream.
    pub const fn is_shed(self) -> bool {
        matches!(self, Self::Busy | Self::LowPriority)
    }

    /// Returns true if a time limit has passed, for the status 504; other failures are a 502.
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ResponseTimeout)
    }
}

impl ForwardError {
    /// Returns the failure of the upstream; `None` if the client is at fault.
    pub const fn failure(&self) -> Option<UpstreamFailure> {
        match self {
            Self::Upstream(failure) => Some(*failure),
            Self::Tls(_) => Some(UpstreamFailure::Tls),
            Self::UploadTimeout | Self::UploadTooLarge | Self::UploadBroken => None,
        }
    }

    /// Returns true if the upstream has, or may have, a byte of the request.
    pub fn was_sent(&self) -> bool {
        self.failure().is_none_or(UpstreamFailure::was_sent)
    }
}
