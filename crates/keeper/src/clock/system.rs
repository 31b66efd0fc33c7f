//! The machine's clock, read from the processor's counter.

use std::time::Instant;

use ratekeeper_core::{Clock, Nanos, Origin, Time};

use super::{processor, today, unix_nanos};
use crate::counter::{CounterOffset, CounterStep};

/// The machine's monotonic clock; zero is when it was made.
///
/// On Linux, and on macOS with an ARM processor, it is read from the processor's counter in 9 ns,
/// unless the system says that the counter is not steady. The clock corrects it a hundred times a
/// second: two threads, or one that reads twice, may see it step back by about a microsecond. The
/// first clock of a process measures the counter for about half a millisecond. Elsewhere it is the
/// system's monotonic clock, which takes 20 to 50 ns to read.
///
/// While a machine is suspended it stands still, on Linux and macOS: the limits of a laptop lack
/// its night, so they refuse more, never less. Nor does it follow the paused time of a tokio test,
/// where waiting by it spins: take `TokioClock` (feature `tokio`) there.
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
    /// Nanoseconds of a step of the processor's counter; `None` if it is not relied on.
    step: Option<CounterStep>,
    offset: CounterOffset,
    origin: Origin,
}

impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        let origin = today();
        let start = Instant::now();
        let step = processor::step(|| Nanos::from(start.elapsed()).as_nanos());
        let counted = step.map_or(0, |step| step.nanos(processor::count()));
        Self {
            start,
            begun: Nanos::ZERO,
            step,
            offset: CounterOffset::new(counted),
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

    /// Returns the time by the machine's clock.
    fn asked(&self) -> Time {
        Time::ZERO + self.begun + Nanos::from(self.start.elapsed())
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
        let Some(step) = self.step else {
            return self.asked();
        };
        let count = || step.nanos(processor::count());
        let ask = || self.asked().as_nanos();
        Time::from_nanos(self.offset.nanos(count(), count, ask))
    }

    fn origin(&self) -> Origin {
        self.origin
    }

    fn wall(&self) -> u64 {
        unix_nanos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drift in 10 ms, and the time of a reading that sets the offset: a microsecond each.
    #[test]
    fn a_clock_follows_the_machine_s_clock_to_two_microseconds() {
        const OFF: Nanos = Nanos::from_nanos(2_000);
        let clock = SystemClock::new();
        while clock.asked() < Time::ZERO + Nanos::from_millis(50) {
            let (before, now, after) = (clock.asked(), clock.now(), clock.asked());
            assert!(
                before <= now + OFF && now <= after + OFF,
                "{before:?} {now:?} {after:?}"
            );
        }
    }
}
