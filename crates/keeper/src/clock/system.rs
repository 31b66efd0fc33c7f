//! The machine's clock, read from the processor's counter.

use std::time::Instant;

use ratekeeper_core::{Clock, Nanos, Origin, Time};

use super::{today, unix_nanos};
use crate::counter::{CounterOffset, CounterStep};

/// The machine's monotonic clock; zero is when it was made.
///
/// Read from the processor's counter, which the clock corrects a hundred times a second: two
/// threads, or one that reads twice, may see it step back by about a microsecond.
///
/// On wasm32-unknown-unknown it is JavaScript's `performance.now()`, called by `wasm-bindgen`; it
/// panics where that does not exist, and no thread can sleep by it.
///
/// ```
/// use ratekeeper::{Clock, SystemClock};
/// let clock = SystemClock::new();
/// let (first, second) = (clock.now(), clock.clone().now());
/// assert!(second.since(first) < ratekeeper::core::Nanos::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Instant,
    counter: quanta::Clock,
    step: CounterStep,
    offset: CounterOffset,
    origin: Origin,
}

impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        let origin = today();
        let start = Instant::now();
        let counter = quanta::Clock::new();
        let step = CounterStep::new(|steps| counter.delta_as_nanos(0, steps));
        Self {
            start,
            offset: CounterOffset::new(step.nanos(counter.raw())),
            step,
            counter,
            origin,
        }
    }

    /// Returns nanoseconds by the processor's counter, from an arbitrary zero.
    #[inline]
    fn counted(&self) -> u64 {
        self.step.nanos(self.counter.raw())
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Time {
        let ask = || Nanos::from(self.start.elapsed()).as_nanos();
        Time::from_nanos(self.offset.nanos(self.counted(), || self.counted(), ask))
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn wall(&self) -> u64 {
        unix_nanos()
    }
}
