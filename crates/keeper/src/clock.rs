//! Clock: the only place where time is read.
//!
//! A clock's zero is the start of the process: it is monotonic, so that setting the wall clock
//! never gives permits away. Its [`Origin`] holds the position of that zero in Unix time, for
//! limits that follow the wall clock; it is read once.

#![expect(clippy::disallowed_methods, reason = "clocks are read only here")]

mod manual;
mod sleep;
#[cfg(feature = "tokio")]
mod tokio;

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Nanos, Origin, Time};

use crate::counter::{CounterOffset, CounterStep};
pub use manual::ManualClock;
pub use sleep::{Block, Timer};
#[cfg(feature = "tokio")]
pub use tokio::TokioClock;

/// Source of the time.
///
/// ```
/// use ratekeeper::Clock;
/// use ratekeeper::core::{Nanos, Origin, Time};
///
/// /// A clock for programs that count seconds themselves.
/// struct Seconds(u64);
///
/// impl Clock for Seconds {
///     fn now(&self) -> Time {
///         Time::ZERO + Nanos::from_secs(self.0)
///     }
///
///     fn origin(&self) -> Origin {
///         Origin::from_unix_nanos(0)
///     }
/// }
/// assert_eq!(Seconds(60).wall(), 60_000_000_000);
/// ```
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Time;
    /// Returns the position of the clock's zero in Unix time.
    fn origin(&self) -> Origin;
    /// Returns the wall clock's time, in nanoseconds since 1970: equal to this clock's, unless the
    /// wall clock has been set since [`origin`](Self::origin) was read.
    fn wall(&self) -> u64 {
        self.origin().unix_nanos(self.now())
    }
}

/// The machine's monotonic clock; zero is when it was made.
///
/// Read from the processor's counter, which the clock corrects a hundred times a second: two
/// threads, or one that reads twice, may see it step back by about a microsecond.
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

/// Returns the wall clock's time, in nanoseconds since 1970.
fn unix_nanos() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Nanos::from(unix.unwrap_or_default()).as_nanos()
}

/// Returns this moment in Unix time.
fn today() -> Origin {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    Origin::from_unix_nanos(Nanos::from(unix.unwrap_or_default()).as_nanos())
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn origin(&self) -> Origin {
        (**self).origin()
    }

    fn wall(&self) -> u64 {
        (**self).wall()
    }
}
