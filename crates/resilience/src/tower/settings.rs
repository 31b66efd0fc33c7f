//! Settings of HTTP calls, and the options of a single one.

use std::time::Duration;

use http::HeaderName;

use super::retry_if::RetryIf;
use crate::{CallSettings, Effect};

/// How the deadline is passed on to the server.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Propagate {
    /// Not at all.
    #[default]
    Nothing,
    /// As `grpc-timeout`.
    GrpcTimeout,
    /// As whole milliseconds in this header.
    Millis(HeaderName),
}

/// How HTTP calls are made; of [`CallSettings`] by `into` if the others are the defaults.
#[derive(Clone, Debug, Default)]
pub struct HttpSettings {
    /// Deadline, attempts, waits, budget and guard.
    pub calls: CallSettings,
    /// How the deadline is passed on. Default not at all.
    pub propagate: Propagate,
    /// Classification of failures. Default by the status of the answer.
    pub retry_if: RetryIf,
    /// Effect of sending a request twice, for example [`Effect::Repeatable`] if all requests are
    /// queries. Default by method and `Idempotency-Key`.
    pub effect: Option<Effect>,
}

impl From<CallSettings> for HttpSettings {
    fn from(calls: CallSettings) -> Self {
        Self {
            calls,
            ..Self::default()
        }
    }
}

/// An extension of a request: options of its call. `None` leaves a setting as it is.
///
/// An option wins over the settings of the client. The client's guard and budget hold for every
/// call, and so does a deadline that the request carries in a header field.
///
/// ```
/// use std::time::Duration;
/// use http::Request;
/// use ratekeeper_resilience::tower::CallOptions;
///
/// let once = CallOptions {
///     attempts_max: Some(1), // do not retry
///     within: Some(Duration::from_millis(300)),
///     ..CallOptions::default()
/// };
/// let request = Request::get("http://localhost/").extension(once).body(())?;
/// assert!(request.extensions().get::<CallOptions>().is_some());
/// # Ok::<(), http::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// How long the call may take with all its attempts and waits.
    pub within: Option<Duration>,
    /// Maximum number of attempts, the first included; 0 counts as 1.
    pub attempts_max: Option<u32>,
    /// Classification of failures.
    pub retry_if: Option<RetryIf>,
    /// Effect of sending the request twice.
    pub effect: Option<Effect>,
}
