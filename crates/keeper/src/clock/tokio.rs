//! The time of the tokio runtime, which tests can hold and move.

use std::future::Future;

use ::tokio::time::Instant;
use ratekeeper_core::{Nanos, Origin, Time};

use super::{Clock, Timer, today};

/// The time of the tokio runtime: under `start_paused(true)` it stands still until every task
/// waits, and then jumps to the next timer. In a runtime that is not paused it is monotonic
/// time, and costs a few nanoseconds more to read than a [`SystemClock`](crate::SystemClock).
///
/// Needed where tests pause tokio's time: a [`SystemClock`](crate::SystemClock) follows the
/// machine's time, while tokio's timers jump, so that a waiting task would wake again and again
/// until the machine's time has passed too. It cannot block threads, so `acquire_blocking` is not
/// available.
///
/// Create it inside the runtime that provides its time: in another runtime, where the time may lie
/// before its zero, it would stand still.
///
/// ```
/// use ratekeeper::core::Gcra;
/// use ratekeeper::{Limiter, TokioClock};
///
/// # let mut runtime = tokio::runtime::Builder::new_current_thread();
/// # runtime.enable_time().build().unwrap().block_on(async {
/// let limiter = Limiter::with_clock(Gcra::token_bucket("1/1s".parse()?)?, TokioClock::new());
/// limiter.acquire().await.unwrap();
/// assert!(limiter.check().is_err());
/// # Ok::<(), ratekeeper::core::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct TokioClock {
    start: Instant,
    origin: Origin,
}

impl TokioClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        Self::at(today())
    }

    /// A clock that starts now, at a zero that lies at `origin` in Unix time, so that a test of a
    /// calendar does not depend on the day.
    pub fn at(origin: Origin) -> Self {
        Self {
            start: Instant::now(),
            origin,
        }
    }
}

impl Default for TokioClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.start.elapsed())
    }

    fn origin(&self) -> Origin {
        self.origin
    }
}

impl Timer for TokioClock {
    /// # Panics
    /// Outside of a tokio runtime with time enabled, as tokio's timer does.
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        ::tokio::time::sleep(span.into())
    }
}
