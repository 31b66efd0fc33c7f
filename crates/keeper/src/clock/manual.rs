//! A clock that moves only when set: tests, simulation, replay.
//!
//! ```text
//!   advance --> now --> wakes the tasks whose time has come, the earliest first
//! ```

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;

use ratekeeper_core::{Nanos, Origin, Time};

use ratekeeper_store::Lock;

use super::{Block, Clock, Timer};

/// A clock that moves only when set: tests, simulation, replay.
///
/// A thread that sleeps by this clock moves it; a task that sleeps waits until the clock is moved.
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
    sleepers: Lock<Sleepers>,
}

/// Sleeping tasks, by the moment they wait for and in the order in which they came.
#[derive(Debug, Default)]
struct Sleepers {
    next: u64,
    wakers: BTreeMap<(Time, u64), Waker>,
}

impl ManualClock {
    /// A clock at its zero, which is `origin` in Unix time.
    pub fn at(origin: Origin) -> Self {
        Self {
            origin,
            ..Self::default()
        }
    }

    /// Moves the clock forward, to the end of time at most.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ratekeeper::{Clock, ManualClock};
    /// let clock = ManualClock::default();
    /// clock.advance(Duration::from_millis(3));
    /// assert_eq!(clock.now().as_nanos(), 3_000_000);
    /// ```
    pub fn advance(&self, span: impl Into<Nanos>) {
        let span = span.into();
        let later = |now: u64| Some(now.saturating_add(span.as_nanos()));
        let _ = self
            .now
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, later); // it is
        self.wake();
    }

    /// Sets the clock, also backwards.
    pub fn set(&self, now: Time) {
        self.now.store(now.as_nanos(), Ordering::Relaxed);
        self.wake();
    }

    /// Returns the earliest moment that a task waits for; `None` if no task sleeps.
    ///
    /// ```
    /// assert_eq!(ratekeeper::ManualClock::default().next_wake(), None);
    /// ```
    pub fn next_wake(&self) -> Option<Time> {
        let sleepers = self.sleepers.lock();
        sleepers.wakers.keys().next().map(|&(due, _)| due)
    }

    /// Returns the number of tasks that sleep by this clock: each is one timer.
    ///
    /// ```
    /// assert_eq!(ratekeeper::ManualClock::default().sleepers(), 0);
    /// ```
    pub fn sleepers(&self) -> usize {
        self.sleepers.lock().wakers.len()
    }

    /// Wakes the tasks that are due; their wakers run without the lock.
    fn wake(&self) {
        let now = self.now();
        loop {
            let mut sleepers = self.sleepers.lock();
            let Some(first) = sleepers.wakers.first_entry() else {
                return;
            };
            if first.key().0 > now {
                return;
            }
            let waker = first.remove();
            drop(sleepers);
            waker.wake();
        }
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

impl Block for ManualClock {
    fn sleep(&self, span: Nanos) {
        self.advance(span);
    }

    /// Moves the clock by `longest`; if `None`, blocks until another thread unparks this one.
    fn park(&self, longest: Option<Nanos>) {
        match longest {
            Some(longest) => self.advance(longest),
            None => thread::park(),
        }
    }
}

impl Timer for ManualClock {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        Sleep {
            clock: self,
            due: self.now() + span,
            number: None,
        }
    }
}

/// A sleeping task; it is forgotten when dropped.
struct Sleep<'a> {
    clock: &'a ManualClock,
    due: Time,
    number: Option<u64>,
}

impl Future for Sleep<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let (clock, due) = (self.clock, self.due);
        let mut sleepers = clock.sleepers.lock();
        if due <= clock.now() {
            return Poll::Ready(());
        }
        let number = self.number.unwrap_or(sleepers.next);
        if self.number.is_none() {
            sleepers.next += 1;
            self.number = Some(number);
        }
        sleepers
            .wakers
            .insert((due, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.clock
                .sleepers
                .lock()
                .wakers
                .remove(&(self.due, number));
        }
    }
}
