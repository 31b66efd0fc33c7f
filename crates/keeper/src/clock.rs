//! Clock: the only place where time is read.
//!
//! A clock's zero is the start of the process: monotonic, so a wall clock that is set never
//! gives permits away. Its [`Origin`] says where that zero lies in Unix time, for limits
//! that follow the wall clock; it is read once.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place where clocks are read"
)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ratekeeper_core::{Nanos, Origin, Time};

use crate::counter::Offset;

/// Tells the time.
pub trait Clock: Send + Sync {
    /// Now.
    fn now(&self) -> Time;
    /// Where the clock's zero lies in Unix time.
    fn origin(&self) -> Origin;
}

/// The machine's monotonic clock; zero is when it was made.
///
/// Read from the processor's counter, which the clock corrects a hundred times a second: two
/// threads, or one that reads twice, may see it step back by about a microsecond.
#[derive(Clone, Debug)]
pub struct SystemClock {
    start: Instant,
    counter: quanta::Clock,
    /// The counter's reading at the start.
    first: u64,
    offset: Offset,
    origin: Origin,
}

impl SystemClock {
    /// A clock that starts at zero now.
    pub fn new() -> Self {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let start = Instant::now();
        let counter = quanta::Clock::new();
        Self {
            start,
            first: counter.raw(),
            counter,
            offset: Offset::new(),
            origin: Origin::from_unix_nanos(Nanos::from(unix).as_nanos()),
        }
    }

    /// Nanoseconds since the start, by the processor's counter.
    #[inline]
    fn counted(&self) -> u64 {
        self.counter.delta_as_nanos(self.first, self.counter.raw())
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
}

/// A clock that moves when told to: tests, simulation, replay.
///
/// ```
/// use ratekeeper::{Clock, ManualClock};
/// use ratekeeper::core::{Nanos, Time};
/// let clock = ManualClock::default();
/// clock.advance(Nanos::from_secs(1));
/// assert_eq!(clock.now(), Time::from_nanos(1_000_000_000));
/// ```
#[derive(Debug, Default)]
pub struct ManualClock {
    now: AtomicU64,
    origin: Origin,
}

impl ManualClock {
    /// A clock at its zero, which lies at `origin` in Unix time.
    pub fn at(origin: Origin) -> Self {
        Self {
            now: AtomicU64::new(0),
            origin,
        }
    }

    /// Moves the clock forward.
    pub fn advance(&self, span: Nanos) {
        self.now.fetch_add(span.as_nanos(), Ordering::Relaxed);
    }

    /// Sets the clock, backwards too.
    pub fn set(&self, now: Time) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn origin(&self) -> Origin {
        self.origin
    }
}

impl<C: Clock> Clock for std::sync::Arc<C> {
    fn now(&self) -> Time {
        (**self).now()
    }

    fn origin(&self) -> Origin {
        (**self).origin()
    }
}
