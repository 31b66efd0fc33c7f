//! At once: calls on a store in the memory of this process, which never wait.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// Returns the output of a call on limits, a keeper or a store in the memory of this process: such
/// a call never waits, and needs no runtime.
///
/// ```
/// use ratekeeper::{Limits, at_once};
/// let limits = Limits::in_memory();
/// let logins = limits.token_bucket("logins", "5/1m".parse()?)?;
/// assert!(at_once(logins.check("ann")).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// If the future waits, as one of a Redis store does.
pub fn at_once<T>(call: impl Future<Output = T>) -> T {
    poll_once(call).expect("a call on the memory store never waits")
}

/// Returns the output of a future, if it is ready at the first poll.
pub(crate) fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
