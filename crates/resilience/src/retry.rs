//! Retry: any future, made again until it succeeds, within a deadline and a budget.
//!
//! ```text
//!   retry --> deadline --> guard --> work, cut to the rest --> Ok
//!                ^                     |
//!                |                     | Err, and it may be made again
//!                +-- wait <-- budget <-- attempts <-- stated wait, or backoff
//! ```
//!
//! * The caller classifies errors: [`retry`] repeats after every one, [`retry_if`] as its function
//!   returns. The effect of the work is unknown here: repeat only calls that may be made twice,
//!   or that the server refused before it did anything.
//! * The deadline covers attempts and waits, ten seconds by default. An attempt that is under
//!   way then is dropped, which cancels the future.
//! * Reports to the guard: `Ok` and [`Retry::Stop`] show a server that works and accepts,
//!   [`Retry::After`] one that works and refuses, [`Retry::Backoff`] and the deadline one that
//!   fails. Time-outs of the work are known by their type, or by [`Retry::TimedOut`]: they fail too,
//!   and lower an adaptive limit, as the deadline does. A call that its caller drops shows nothing.
//! * Trade-off: a call that fails without an error of its own (the breaker is open, the deadline
//!   passed) needs one of ours, so that errors are [`CallError`]s.
//! * The [tower layer](crate::tower) makes its calls by the same rules.

pub(crate) mod call;
pub(crate) mod clock;
mod error;
mod settings;

use std::future::Future;
use std::time::Duration;

use self::call::{OngoingCall, Shown, is_timeout};
pub use self::error::CallError;
pub use self::settings::{CallSettings, Guard};
use crate::{Deadline, End, ServerWait};

/// What to do after an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Retry {
    /// Return the error: the server answered, and would answer the same again.
    Stop,
    /// Make the call again after a wait of the backoff.
    Backoff,
    /// The same, after a time-out, which lowers an adaptive limit. Needed for errors of other types
    /// than tokio's `Elapsed`, `io::Error`, `reqwest::Error`, and boxes around them.
    TimedOut,
    /// Make the call again after this wait, which the server stated, and up to a tenth more.
    /// Zero is no wait stated. If it is above [`RetryAfter::longest`](crate::RetryAfter::longest)
    /// or ends after the deadline, the error is returned.
    After(Duration),
}

/// Backs off if the server stated no wait, and stops if it stated one above
/// [`RetryAfter::longest`](crate::RetryAfter::longest).
impl From<ServerWait> for Retry {
    fn from(stated: ServerWait) -> Self {
        match stated {
            ServerWait::Wait(wait) => Self::After(wait.into()),
            ServerWait::Beyond(_) => Self::Stop,
            ServerWait::Nothing => Self::Backoff,
        }
    }
}

/// Makes a call, and makes it again after every error while attempts, deadline, guard and budget
/// permit.
///
/// # Examples
/// ```
/// use ratekeeper_resilience::{CallSettings, retry};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let settings = CallSettings::default(); // once for all calls to a server
/// let mut failures = 2;
/// let result = retry(&settings, || {
///     failures -= 1;
///     let result = if failures > 0 { Err("down") } else { Ok("up") };
///     async move { result }
/// });
/// assert_eq!(result.await.unwrap(), "up");
/// # }
/// ```
///
/// # Errors
/// [`CallError::Inner`] with the last error of the work; the other errors if the guard or the
/// deadline ended the call.
///
/// # Panics
/// Outside of a tokio runtime with time.
pub async fn retry<T, E, W>(
    settings: &CallSettings,
    work: impl FnMut() -> W,
) -> Result<T, CallError<E>>
where
    W: Future<Output = Result<T, E>>,
    E: 'static,
{
    retry_if(settings, |_: &E| Retry::Backoff, work).await
}

/// Makes a call, and makes it again as `classify` decides of its error, while attempts, deadline,
/// guard and budget permit.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use ratekeeper_resilience::{CallError, CallSettings, Retry, retry_if};
///
/// #[derive(Debug, PartialEq)]
/// enum ApiError {
///     Busy { seconds: u64 },
///     Invalid,
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let classify = |error: &ApiError| match error {
///     ApiError::Busy { seconds } => Retry::After(Duration::from_secs(*seconds)),
///     ApiError::Invalid => Retry::Stop,
/// };
/// let settings = CallSettings::default();
/// let mut answers = vec![Err(ApiError::Invalid), Err(ApiError::Busy { seconds: 2 })];
/// let result: Result<(), _> = retry_if(&settings, classify, || {
///     let answer = answers.pop().unwrap();
///     async move { answer }
/// }).await;
/// assert!(matches!(result, Err(CallError::Inner(ApiError::Invalid))));
/// # }
/// ```
///
/// # Errors
/// [`CallError::Inner`] with the last error of the work; the other errors if the guard or the
/// deadline ended the call.
///
/// # Panics
/// Outside of a tokio runtime with time.
pub async fn retry_if<T, E, W>(
    settings: &CallSettings,
    classify: impl Fn(&E) -> Retry,
    mut work: impl FnMut() -> W,
) -> Result<T, CallError<E>>
where
    W: Future<Output = Result<T, E>>,
    E: 'static,
{
    let deadline = Deadline::within(clock::now(), settings.within);
    let mut call = OngoingCall::new(settings, deadline, settings.backoff.attempts());
    loop {
        let leave = call.begin()?;
        call.sent()?;
        let result = call.cut(work()).await;
        let (next, timed_out) = match &result {
            Err(CallError::Inner(error)) => (classify(error), is_timeout(error)),
            _ => (Retry::Stop, false),
        };
        let (shown, end) = match (&result, next) {
            (Ok(_), _) => (Shown::Accepted, End::Done),
            (_, Retry::After(_)) => (Shown::Refused, End::Dropped),
            (_, Retry::TimedOut) | (Err(CallError::Deadline), _) => (Shown::Failed, End::Dropped),
            _ if timed_out => (Shown::Failed, End::Dropped),
            (_, Retry::Stop) => (Shown::Accepted, End::Ignored),
            (_, Retry::Backoff) => (Shown::Failed, End::Ignored),
        };
        leave.report(shown, end);
        let stated = match next {
            Retry::Stop => return result,
            Retry::Backoff | Retry::TimedOut => ServerWait::Nothing,
            Retry::After(wait) => settings.retry_after.bound(wait),
        };
        let Some(wait) = call.next_wait(stated) else {
            return result;
        };
        drop(result); // what an error holds is free while this call waits
        tokio::time::sleep(wait.into()).await;
    }
}
