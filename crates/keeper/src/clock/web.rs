//! The clock of JavaScript, on wasm32-unknown-unknown: there the standard library has none.

use ratekeeper_core::{Clock, Nanos, Origin, Time};
use web_time::Instant;

use super::{today, unix_nanos};

/// JavaScript's monotonic clock, `performance.now()`; zero is when it was made.
///
/// ```
/// use ratekeeper::{Clock, SystemClock};
/// let clock = SystemClock::new();
/// assert!(clock.now() <= clock.now());
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Instant,
    origin: Origin,
}

impl SystemClock {
    /// A clock that starts at zero now.
    ///
    /// # Panics
    /// If JavaScript has no `performance`.
    pub fn new() -> Self {
        Self {
            origin: today(),
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Time {
        Time::ZERO + Nanos::from(self.start.elapsed())
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn wall(&self) -> u64 {
        unix_nanos()
    }
}
