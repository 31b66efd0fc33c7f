//! Retry if: the caller's classification of failures.
//!
//! ```text
//!   POST --429--> as a rule: returned, since a proxy may have sent it after the server was done
//!                 RetryIf::refusals(): the server did nothing, so the call is made again
//! ```

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use http::header::RETRY_AFTER;
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

/// Classifies failures; by default answers of 400 or more as [`Failure::of_http`] does, and
/// errors as [`Failure::Unknown`].
///
/// Only a caller that knows the server can decide that it did nothing: then a call may be made
/// again that would have another effect the second time, such as a `POST` without an
/// `Idempotency-Key`. Budget, attempts, `Retry-After` and deadline hold all the same.
///
/// ```
/// use http::StatusCode;
/// use ratekeeper_resilience::Failure;
/// use ratekeeper_resilience::tower::RetryIf;
///
/// // The API refuses before it does anything, as APIs of language models do.
/// let refusals = RetryIf::refusals();
///
/// // It refuses by a status of its own.
/// let by_status = RetryIf::refused_by([StatusCode::TOO_MANY_REQUESTS, StatusCode::LOCKED]);
///
/// // It says so in a field of its own.
/// let by_field = RetryIf::new(|answer| {
///     answer.headers.contains_key("x-not-processed").then_some(Failure::Refused)
/// });
///
/// // Errors of the client inside, by their type.
/// let with_errors = RetryIf::refusals().with_errors(|error: &std::io::Error| {
///     let refused = error.kind() == std::io::ErrorKind::ConnectionRefused;
///     refused.then_some(Failure::Refused)
/// });
/// # let _ = (refusals, by_status, by_field, with_errors);
/// ```
#[derive(Clone, Default)]
pub struct RetryIf {
    answers: Option<Arc<ClassifyAnswer>>,
    errors: Option<Arc<ClassifyError>>,
}

type ClassifyAnswer = dyn Fn(FailedAnswer<'_>) -> Option<Failure> + Send + Sync;
type ClassifyError = dyn Fn(&dyn Any) -> Option<Failure> + Send + Sync;

impl RetryIf {
    /// Classifies answers by `classify`; where it returns `None`, by [`Failure::of_http`].
    pub fn new(
        classify: impl Fn(FailedAnswer<'_>) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            answers: Some(Arc::new(classify)),
            errors: None,
        }
    }

    /// Treats every 429, and a 503 with `Retry-After`, as sent by a server that did nothing: calls
    /// of any method are made again. A 503 without it may come from a proxy that gave up on the
    /// server while that was at work.
    pub fn refusals() -> Self {
        Self::new(|answer| {
            let refused = match answer.status {
                StatusCode::TOO_MANY_REQUESTS => true,
                StatusCode::SERVICE_UNAVAILABLE => answer.headers.contains_key(RETRY_AFTER),
                _ => false,
            };
            refused.then_some(Failure::Refused)
        })
    }

    /// Treats answers of these statuses as sent by a server that did nothing: calls of any
    /// method are made again.
    pub fn refused_by(statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        let statuses: Vec<_> = statuses.into_iter().collect();
        Self::new(move |answer| {
            statuses
                .contains(&answer.status)
                .then_some(Failure::Refused)
        })
    }

    /// Returns the same with errors of the type `E` classified by `classify`; where it returns
    /// `None`, as [`Failure::Unknown`], as are errors of other types. `E` is the error of the
    /// service inside, for example `reqwest::Error`.
    #[must_use]
    pub fn with_errors<E: Any>(
        mut self,
        classify: impl Fn(&E) -> Option<Failure> + Send + Sync + 'static,
    ) -> Self {
        self.errors = Some(Arc::new(move |error| classify(error.downcast_ref()?)));
        self
    }

    pub(super) fn answer(&self, answer: FailedAnswer<'_>) -> Failure {
        let class = self.answers.as_ref().and_then(|classify| classify(answer));
        class.unwrap_or_else(|| Failure::of_http(answer.status.as_u16(), None))
    }

    pub(super) fn error(&self, error: &dyn Any) -> Failure {
        let class = self.errors.as_ref().and_then(|classify| classify(error));
        class.unwrap_or(Failure::Unknown)
    }
}

impl fmt::Debug for RetryIf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryIf")
            .field("answers", &self.answers.is_some())
            .field("errors", &self.errors.is_some())
            .finish()
    }
}
