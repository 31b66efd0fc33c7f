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
    /// Its reading at the start.
    begun: Nanos,
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
            begun: Nanos::ZERO,
            offset: CounterOffset::new(step.nanos(counter.raw())),
            step,
            counter,
            origin,
        }
    }

    /// A clock that goes on where the clock of an earlier process ended: `zero` was its origin, and
    /// `reading` its last reading. It reads the wall clock's distance from that zero; if the wall
    /// clock has been set back meanwhile, it goes on from `reading`, as if no time had passed.
    ///
    /// Not on wasm32-unknown-unknown.
    ///
    /// ```
    /// use ratekeeper::core::{Nanos, Origin, Time};
    /// use ratekeeper::{Clock, SystemClock};
    ///
    /// let before = SystemClock::new();
    /// let next = SystemClock::continuing(before.origin(), before.now());
    /// assert_eq!(next.origin(), before.origin());
    /// assert!(next.now().since(before.now()) < Nanos::from_secs(60));
    /// let ahead = Time::ZERO + Nanos::from_secs(3_600);
    /// assert!(SystemClock::continuing(before.origin(), ahead).now() >= ahead);
    /// ```
    pub fn continuing(zero: Origin, reading: Time) -> Self {
        let clock = Self::new();
        let (now, zero_at) = (clock.origin.as_unix_nanos(), zero.as_unix_nanos());
        let since_zero = Time::from_nanos(now.saturating_sub(zero_at));
        Self {
            begun: since_zero.max(reading).since(Time::ZERO),
            origin: zero,
            ..clock
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
        let ask = || (self.begun + Nanos::from(self.start.elapsed())).as_nanos();
        Time::from_nanos(self.offset.nanos(self.counted(), || self.counted(), ask))
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn wall(&self) -> u64 {
        unix_nanos()
    }
}
