//! The real clock. Everywhere else time is virtual; here the service's own clock is the subject, so
//! waiting for the time it states is the test. No wait is blind: events without a stated time are
//! polled, with a deadline.
#![expect(
    clippy::disallowed_methods,
    reason = "real processes keep real time; this file is the only reader"
)]

use std::thread;
use std::time::{Duration, Instant};

/// Pause between two attempts of [`poll`].
const PAUSE: Duration = Duration::from_millis(5);

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn wait(span: Duration) {
    thread::sleep(span);
}

/// Calls `ready` until it returns a value.
///
/// # Errors
/// Returns an error that names `what` if there is no value `within` the span.
pub(crate) fn poll<T>(
    what: &str,
    within: Duration,
    mut ready: impl FnMut() -> Option<T>,
) -> Result<T, String> {
    let start = now();
    loop {
        if let Some(value) = ready() {
            return Ok(value);
        }
        if start.elapsed() > within {
            return Err(format!("no {what} within {within:?}"));
        }
        wait(PAUSE);
    }
}
