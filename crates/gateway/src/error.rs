//! Error: why a request could not be forwarded.

use std::fmt;

/// Why there is no response of the upstream.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// The upstream is at fault.
    #[error("{0}")]
    Upstream(UpstreamFailure),
    /// The TLS handshake with the upstream failed; the reason is for the operator, not the client.
    #[error("the upstream cannot be reached by TLS")]
    Tls(String),
    /// The client did not send the rest of the body in time.
    #[error("the body of the request did not arrive in time")]
    UploadTimeout,
    /// The client broke off the body, or sent one that cannot be read.
    #[error("the body of the request broke off")]
    UploadBroken,
}

/// The failure of an upstream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpstreamFailure {
    /// No address accepts connections.
    Refused,
    /// No address accepted a connection in time, or had room for one.
    ConnectTimeout,
    /// The connection broke before the head of a response, or the response is not HTTP.
    Broken,
    /// The head of a response did not come in time.
    ResponseTimeout,
    /// It switched to a protocol that the client has not asked for.
    Switched,
    /// As many requests as it can bear wait for it.
    Busy,
}

impl UpstreamFailure {
    /// All failures, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::Refused,
        Self::ConnectTimeout,
        Self::Broken,
        Self::ResponseTimeout,
        Self::Switched,
        Self::Busy,
    ];

    /// Returns a word for metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::Broken => "broken",
            Self::ResponseTimeout => "response_timeout",
            Self::Switched => "switched",
            Self::Busy => "busy",
        }
    }

    /// Returns true if a time limit has passed, for the status 504; other failures are a 502.
    pub const fn is_timeout(self) -> bool {
        matches!(self, Self::ConnectTimeout | Self::ResponseTimeout)
    }
}

impl fmt::Display for UpstreamFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the upstream refuses connections",
            Self::ConnectTimeout => "the upstream did not accept a connection in time",
            Self::Broken => "the upstream closed the connection without a valid response",
            Self::ResponseTimeout => "the upstream did not respond in time",
            Self::Switched => "the upstream switched to a protocol that was not asked for",
            Self::Busy => "as many requests as the upstream can bear wait for it",
        })
    }
}

impl From<UpstreamFailure> for ForwardError {
    fn from(failure: UpstreamFailure) -> Self {
        Self::Upstream(failure)
    }
}
