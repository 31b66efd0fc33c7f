//! A clock that is read when the program says so, once for many decisions.
//!
//! ```text
//!   read -- decide decide decide ------- read -- decide ------> time
//!    t        t      t      t             t'       t'
//! ```

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};

use ratekeeper_core::{Nanos, Origin, Time};

use super::{Block, Clock, SystemClock, Timer};

/// A clock that does not move between two calls of [`read`](Self::read): a decision loads its time
/// from memory. For loops that take their time once for a batch, and for tickers.
///
/// A limit lags behind by the time since the last reading. With a reading at least every `d`, it
/// admits in any span at most what it admits in that span and `d`, and the waits that it states are
/// longer than needed by `d` at most. Waiting (`acquire`) reads the clock when its sleep has ended.
/// Without readings no permit comes back.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use ratekeeper::core::{Gcra, Quota};
/// use ratekeeper::{CoarseClock, Limiter, ManualClock};
///
/// let hand = Arc::new(ManualClock::default()); // in a program: `CoarseClock::default()`
/// let clock = Arc::new(CoarseClock::new(Arc::clone(&hand)));
/// let limit = Gcra::token_bucket(Quota::per_second(1))?;
/// let limiter = Limiter::with_clock(limit, Arc::clone(&clock));
/// assert!(limiter.check().is_ok() && limiter.check().is_err());
///
/// hand.advance(Duration::from_secs(1));
/// assert!(limiter.check().is_err(), "the clock was not read");
/// clock.read();
/// assert!(limiter.check().is_ok());
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Debug)]
pub struct CoarseClock<C = SystemClock> {
    clock: C,
    now: AtomicU64,
}

impl<C: Clock> CoarseClock<C> {
    /// A clock that shows the time of `clock`, which it reads now.
    pub fn new(clock: C) -> Self {
        let now = clock.now().as_nanos().into();
        Self { clock, now }
    }

    /// Reads the time, and returns it. It never steps back, also if several threads read.
    pub fn read(&self) -> Time {
        let now = self.clock.now();
        let before = self.now.fetch_max(now.as_nanos(), Ordering::Relaxed);
        now.max(Time::from_nanos(before))
    }
}

impl Default for CoarseClock {
    fn default() -> Self {
        Self::new(SystemClock::new())
    }
}

impl<C: Clock> Clock for CoarseClock<C> {
    #[inline]
    fn now(&self) -> Time {
        Time::from_nanos(self.now.load(Ordering::Relaxed))
    }

    fn origin(&self) -> Origin {
        self.clock.origin()
    }

    fn wall(&self) -> u64 {
        self.clock.wall()
    }
}

impl<C: Block> Block for CoarseClock<C> {
    fn sleep(&self, span: Nanos) {
        self.clock.sleep(span);
        self.read();
    }

    fn park(&self, longest: Option<Nanos>) {
        self.clock.park(longest);
        self.read();
    }
}

impl<C: Timer> Timer for CoarseClock<C> {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        let sleep = self.clock.sleep_async(span);
        async move {
            sleep.await;
            self.read();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ratekeeper_core::Quota;

    use super::*;
    use crate::{Limiter, ManualClock};

    #[test]
    fn a_coarse_clock_follows_its_clock_forward_only() {
        let hand = Arc::new(ManualClock::at(Origin::from_unix_nanos(7)));
        let clock = CoarseClock::new(Arc::clone(&hand));
        hand.advance(Duration::from_nanos(5));
        assert_eq!(clock.now(), Time::ZERO);
        assert_eq!(
            (clock.origin(), clock.wall()),
            (Origin::from_unix_nanos(7), 12)
        );
        assert_eq!(clock.read(), Time::from_nanos(5));
        hand.set(Time::from_nanos(3));
        assert_eq!(
            (clock.read(), clock.now()),
            (Time::from_nanos(5), Time::from_nanos(5))
        );
    }

    /// A waiter that looked at a clock which stands would ask again and again.
    #[test]
    fn a_waiter_reads_the_clock_when_its_sleep_has_ended() {
        let clock = Arc::new(CoarseClock::new(ManualClock::default()));
        let pace = ratekeeper_core::Gcra::token_bucket(Quota::per_second(1)).unwrap();
        let limiter = Limiter::with_clock(pace, Arc::clone(&clock));
        let waits = [(); 3].map(|()| limiter.acquire_blocking().unwrap().as_secs());
        assert_eq!(waits, [0, 1, 1]);
        assert_eq!(clock.now(), Time::ZERO + Nanos::from_secs(2));
    }
}
