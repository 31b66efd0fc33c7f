//! Sleep: how a waiting thread or task lets time pass.
//!
//! ```text
//!                | Block: a thread          | Timer: a task
//!   -------------+--------------------------+------------------------------------
//!   SystemClock  | std::thread              | tokio's timer (feature `tokio`)
//!   TokioClock   |                          | tokio's timer (feature `tokio`)
//!   RuntimeClock | as the clock inside      | the function that it was given
//!   CoarseClock  | as the clock inside, then a reading, for both
//!   ManualClock  | moves the clock          | ends when the clock is moved
//! ```

#![expect(clippy::disallowed_methods, reason = "threads sleep only here")]

use std::future::Future;
use std::sync::Arc;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use std::thread;

use ratekeeper_core::Nanos;

use super::Clock;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
use super::SystemClock;

/// A clock by which a thread can sleep.
///
/// ```
/// use ratekeeper::core::{Nanos, Time};
/// use ratekeeper::{Block, Clock, ManualClock};
/// let clock = ManualClock::default();
/// clock.sleep(Nanos::from_secs(60)); // it is over at once
/// assert_eq!(clock.now(), Time::ZERO + Nanos::from_secs(60));
/// ```
pub trait Block: Clock {
    /// Blocks this thread for at least `span`.
    fn sleep(&self, span: Nanos);

    /// Blocks this thread until it is unparked, or `longest` has passed, or spuriously.
    fn park(&self, longest: Option<Nanos>);
}

/// A clock by which a task can sleep. For the runtime of your choice, take a
/// [`RuntimeClock`](super::RuntimeClock), or implement it for a clock of your own that reads the
/// time from a [`SystemClock`].
///
/// ```
/// use ratekeeper::core::{Nanos, Origin, Time};
/// use ratekeeper::{Clock, SystemClock, Timer};
/// use std::future::Future;
///
/// /// The system's time, with the timers of another runtime.
/// struct OtherRuntime(SystemClock);
///
/// impl Clock for OtherRuntime {
///     fn now(&self) -> Time {
///         self.0.now()
///     }
///
///     fn origin(&self) -> Origin {
///         self.0.origin()
///     }
/// }
///
/// impl Timer for OtherRuntime {
///     fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
///         // the timer of your runtime, here tokio's
///         tokio::time::sleep(span.into())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no timer for async waiting",
    note = "for tokio, turn on the feature `tokio` of the crate `ratekeeper`",
    note = "for another runtime, name its timer: `limiter.with_timer(your_sleep)`",
    note = "without a runtime, block: `acquire_blocking`"
)]
pub trait Timer: Clock {
    /// Completes when `span` has passed.
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send;
}

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
impl Block for SystemClock {
    fn sleep(&self, span: Nanos) {
        thread::sleep(span.into());
    }

    fn park(&self, longest: Option<Nanos>) {
        match longest {
            Some(longest) => thread::park_timeout(longest.into()),
            None => thread::park(),
        }
    }
}

#[cfg(all(
    feature = "tokio",
    not(all(target_family = "wasm", target_os = "unknown"))
))]
impl Timer for SystemClock {
    /// # Panics
    /// Outside of a tokio runtime with time enabled, as tokio's timer does.
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        ::tokio::time::sleep(span.into())
    }
}

impl<C: Block> Block for Arc<C> {
    fn sleep(&self, span: Nanos) {
        (**self).sleep(span);
    }

    fn park(&self, longest: Option<Nanos>) {
        (**self).park(longest);
    }
}

impl<C: Timer> Timer for Arc<C> {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        (**self).sleep_async(span)
    }
}
