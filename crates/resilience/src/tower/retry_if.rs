//! Retry if: the caller's word on what a failure means.
//!
//! ```text
//!   POST --429--> as a rule: returned, since a proxy may have sent it after the server was done
//!                 RetryIf::undone_by([429]): the server did nothing, so the call is made again
//! ```

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method, StatusCode};

use crate::Failure;

/// An answer that is no success, and the call that it is of.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FailedAnswer<'a> {
    /// Of the request.
    pub method: &'a Method,
    /// Of the answer: 400 or more.
    pub status: StatusCode,
    /// Of the answer.
    pub headers: &'a HeaderMap,
}

/// What an answer of 400 or more says about a call; by default what [`Failure::of_http`] says.
///
/// Only who knows the server can say that it did nothing: then a call may be made again that
/// would do something else the second time, such as a `POST` without an `Idempotency-Key`.
/// Budget, attempts, `Retry-After` and deadline hold all the same.
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
    /// What `classify` returns; where it returns `None`, what [`Failure::of_http`] says.
    pub fn new(
        classify: impl Fn(FailedAnswer<'_>) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(classify)))
    }

    /// Answers of these statuses say that the server did nothing: calls of any method are made
    /// again.
    pub fn undone_by(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        let statuses: Vec<_> = statuses.into_iter().collect();
        Self::new(move |answer| {
            statuses
                .contains(&answer.status)
                .then_some(Failure::Refused)
        })
    }

    pub(super) fn failure(&self, answer: FailedAnswer<'_>) -> Failure {
        let said = self.0.as_ref().and_then(|classify| classify(answer));
        said.unwrap_or_else(|| Failure::of_http(answer.status.as_u16(), None))
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
