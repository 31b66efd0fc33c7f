//! No key: why a request has no key, and the response to that.
//!
//! ```text
//!   the client did not send it (a header)            --> 400
//!   the server did not provide it (an extension)     --> 500, with the edit to make
//!   such requests count together, because you say so --> one count for all of them
//! ```
//!
//! A forgotten make-service would otherwise give all clients one count: the first of them to use
//! it up would shut out the rest, and no response would name the reason.

use std::borrow::Cow;
use std::fmt;

use crate::problem::{PROBLEM_JSON, RefusalBody, escape_from};

/// The reason why a request has no key; a [`KeySource`](crate::tower::KeySource) returns it.
///
/// ```
/// use ratekeeper::tower::NoKey;
///
/// let missing = NoKey::NotSent("header `x-api-key`".into());
/// assert_eq!(missing.to_string(), "the request has no header `x-api-key`");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum NoKey {
    /// The request shares one count with all others that have no key.
    Shared,
    /// The client did not send it, for example ``header `x-api-key` ``. The request is refused with
    /// 400, in gRPC with `INVALID_ARGUMENT`.
    NotSent(Cow<'static, str>),
    /// The server did not provide it; holds the missing source and the edit that provides it. The
    /// request is refused with 500, in gRPC with `INTERNAL`, because no client can change that.
    NotProvided(Cow<'static, str>),
}

impl NoKey {
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::NotProvided(_) => 500,
            Self::NotSent(_) | Self::Shared => 400,
        }
    }

    /// Returns a sentence for the person who reads the response.
    pub(crate) fn detail(&self, limit: &str) -> String {
        format!("Limit {limit} needs a value for its key: {self}.")
    }

    /// Returns the problem document of the refusal. Its type is `about:blank`, so its title is that
    /// of the status (RFC 9457, section 4.2.1).
    pub(crate) fn body(&self, limit: &str) -> RefusalBody<'static> {
        let status = self.status();
        let title = match self {
            Self::NotProvided(_) => "Internal Server Error",
            Self::NotSent(_) | Self::Shared => "Bad Request",
        };
        let mut content = format!(
            "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{status},\"detail\":\""
        );
        let start = content.len();
        content.push_str(&self.detail(limit));
        escape_from(start, &mut content);
        content.push_str("\"}");
        RefusalBody {
            content_type: PROBLEM_JSON,
            content,
        }
    }
}

impl fmt::Display for NoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("the request has no key"),
            Self::NotSent(part) => write!(f, "the request has no {part}"),
            Self::NotProvided(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for NoKey {}
