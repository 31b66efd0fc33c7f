//! Retry if: the caller's classification of failures.
//!
//! ```text
//!   POST --429--> as a rule: returned, since a proxy may have sent it after the server was done
//!                 RetryIf::undone_by([429]): the server did nothing, so the call is made again
//! ```

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};

use crate::Failure;

/// An answer that is no success, with the method of its call.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FailedAnswer<'a> {
    /// Method of the request.
    pub method: &'a Method,
    /// Status of the answer: 400 or more.
    pub status: StatusCode,
    /// Header of the answer.
    pub headers: &'a HeaderMap,
}

/// Classifies answers of 400 or more; by default as [`Failure::of_http`] does.
///
/// Only a caller that knows the server can decide that it did nothing: then a call may be made
/// again that would have another effect the second time, such as a `POST` without an
/// `Idempotency-Key`. Budget, attempts, `Retry-After` and deadline hold all the same.
///
/// ```
/// use http::StatusCode;
/// use ratekeeper_resilience::Failure;
/// use ratekeeper_resilience::tower::{CallSettings, RetryIf};
///
/// // The API refuses before it does anything, as those of language models do.
/// let settings = CallSettings {
///     retry_if: RetryIf::undone_by([StatusCode::TOO_MANY_REQUESTS]),
///     ..CallSettings::default()
/// };
///
/// // It says so in a field of its own.
/// let by_field = RetryIf::new(|answer| {
///     answer.headers.contains_key("x-not-processed").then_some(Failure::Refused)
/// });
/// # let _ = (settings, by_field);
/// ```
#[derive(Clone, Default)]
pub struct RetryIf(Option<Arc<Classify>>);

type Classify = dyn Fn(FailedAnswer<'_>) -> Option<Failure> + Send + Sync;

impl RetryIf {
    /// Classifies by `classify`; where it returns `None`, by [`Failure::of_http`].
    pub fn new(
        classify: impl Fn(FailedAnswer<'_>) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(classify)))
    }

    /// Treats answers of these statuses as sent by a server that did nothing: calls of any
    /// method are made again.
    pub fn undone_by(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        let statuses: Vec<_> = statuses.into_iter().collect();
        Self::new(move |answer| {
            statuses
                .contains(&answer.status)
                .then_some(Failure::Refused)
        })
    }

    pub(super) fn failure(&self, answer: FailedAnswer<'_>) -> Failure {
        let class = self.0.as_ref().and_then(|classify| classify(answer));
        class.unwrap_or_else(|| Failure::of_http(answer.status.as_u16(), None))
    }
}

impl fmt::Debug for RetryIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            None => "RetryIf::default()",
            Some(_) => "RetryIf(..)",
        })
    }
}
