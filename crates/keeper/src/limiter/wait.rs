//! Waiting: a turn in the line, driven by a thread or by a task.
//!
//! ```text
//!             | looks again when           | gives up
//!   ----------+----------------------------+----------------
//!   a thread  | unparked, or parked enough | never, or late
//!   a task    | woken, or its timer fires  | also if dropped
//! ```

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use ratekeeper_core::Time;

use super::desk::{Waitable, permits};
use super::turn::{Turn, TurnStep, Until};
use super::{Limiter, LimiterAlgorithm, WaitError};
use crate::{Block, Clock, RuntimeClock, Timer};

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waiting by a thread.
impl<A: LimiterAlgorithm, C: Block> Limiter<A, C> {
    /// Waits until a permit is free, in line with the other waiters, and takes it; returns how long
    /// that took. It blocks the thread.
    ///
    /// # Examples
    /// ```
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::{Limiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let pace = Gcra::spacing(Nanos::from_millis(250)).unwrap();
    /// let limiter = Limiter::with_clock(pace, ManualClock::default());
    /// let waited: Vec<_> = (0..3).map(|_| limiter.acquire_blocking().unwrap()).collect();
    /// assert_eq!(waited, [Duration::ZERO, Duration::from_millis(250), Duration::from_millis(250)]);
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn acquire_blocking(&self) -> Result<Duration, WaitError> {
        self.acquire_n_blocking(1)
    }

    /// Like [`acquire_blocking`](Self::acquire_blocking), for `cost` permits at once.
    ///
    /// ```
    /// use ratekeeper::{Limiter, WaitError};
    /// let limiter = Limiter::per("5/1s").unwrap();
    /// let [cost, capacity] = [6, 5];
    /// let never = WaitError::TooLarge { cost, capacity };
    /// assert_eq!(limiter.acquire_n_blocking(cost), Err(never));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn acquire_n_blocking(&self, cost: u64) -> Result<Duration, WaitError> {
        if self.take_at_once(cost) {
            return Ok(Duration::ZERO);
        }
        let waited = block(self, &self.clock, cost, Until::Served)?;
        Ok(waited.unwrap_or(Duration::MAX)) // no patience ends in 584 years
    }

    /// Like [`acquire_n_blocking`](Self::acquire_n_blocking), for no longer than `patience`; `None`
    /// if that does not suffice. If it is known not to suffice, returns at once: always under GCRA,
    /// and else as soon as the caller is first in line.
    ///
    /// ```
    /// use ratekeeper::core::Nanos;
    /// use ratekeeper::{Clock, Limiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let once = ratekeeper::core::Gcra::spacing(Nanos::SECOND).unwrap();
    /// let limiter = Limiter::with_clock(once, ManualClock::default());
    /// let patience = Duration::from_millis(999);
    /// assert_eq!(limiter.try_acquire_blocking(1, patience), Ok(Some(Duration::ZERO)));
    /// assert_eq!(limiter.try_acquire_blocking(1, patience), Ok(None));
    /// assert_eq!(limiter.clock().now().as_nanos(), 0, "refused without waiting");
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn try_acquire_blocking(
        &self,
        cost: u64,
        patience: Duration,
    ) -> Result<Option<Duration>, WaitError> {
        block(self, &self.clock, cost, Until::Span(patience.into()))
    }

    /// Like [`try_acquire_blocking`](Self::try_acquire_blocking), until `deadline` on the
    /// limiter's clock.
    ///
    /// ```
    /// use ratekeeper::core::Nanos;
    /// use ratekeeper::{Clock, Limiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let once = ratekeeper::core::Gcra::spacing(Nanos::SECOND).unwrap();
    /// let limiter = Limiter::with_clock(once, ManualClock::default());
    /// let deadline = limiter.clock().now() + Nanos::SECOND;
    /// let ask = || limiter.try_acquire_until_blocking(1, deadline).unwrap();
    /// assert_eq!([ask(), ask(), ask()], [Some(Duration::ZERO), Some(Duration::from_secs(1)), None]);
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub fn try_acquire_until_blocking(
        &self,
        cost: u64,
        deadline: Time,
    ) -> Result<Option<Duration>, WaitError> {
        block(self, &self.clock, cost, Until::Moment(deadline))
    }
}

/// Waiting by a task. The methods ask for a [`Timer`], not the block, so that the compiler shows
/// the notes of `Timer` where a clock has none.
impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// The same limiter, whose tasks wait by the timer of an async runtime: `sleep` makes a future
    /// that completes after a span. For tokio, the feature `tokio` does it.
    ///
    /// ```
    /// use ratekeeper::Limiter;
    ///
    /// let limiter = Limiter::per("100/1s")?.with_timer(async_io::Timer::after); // smol
    /// # async_io::block_on(async {
    /// limiter.acquire().await.unwrap();
    /// # });
    /// # Ok::<(), ratekeeper::core::Error>(())
    /// ```
    #[must_use]
    pub fn with_timer<F, S>(self, sleep: F) -> Limiter<A, RuntimeClock<F, C>>
    where
        F: Fn(Duration) -> S + Send + Sync,
        S: Future + Send,
    {
        Limiter {
            limit: self.limit,
            place: self.place,
            line: self.line,
            most_waiting: self.most_waiting,
            era: self.era,
            id: self.id,
            given_back: self.given_back,
            marks: self.marks,
            promised: self.promised,
            changes: self.changes,
            clock: RuntimeClock::over(self.clock, sleep),
        }
    }

    /// Waits until a permit is free, in line with the other waiters, and takes it; returns how long
    /// that took. If dropped before it is ready, it leaves the line, and has taken nothing. It
    /// joins the line when first polled. Once in line, poll it or drop it: one that is kept and
    /// never polled again, or lost to [`mem::forget`](std::mem::forget), holds up all behind it, and
    /// `check` is refused.
    ///
    /// No waiter is served before its moment, so a timer that is late by a millisecond slows a limit
    /// whose burst is used up in less: give it a burst for some milliseconds. What it takes cannot
    /// be settled or given back, because most work that waits knows its cost; for the rest,
    /// [`Limits::acquire`](crate::Limits::acquire) returns a grant, but has no line.
    ///
    /// With [`SystemClock`](crate::SystemClock) it needs the feature `tokio`, or the timer of another
    /// runtime: [`with_timer`](Self::with_timer).
    ///
    /// # Examples
    /// ```
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::{Limiter, ManualClock};
    /// use std::time::Duration;
    ///
    /// let pace = Gcra::spacing(Nanos::from_millis(250)).unwrap();
    /// let limiter = Limiter::with_clock(pace, ManualClock::default());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert_eq!(pin!(limiter.acquire()).poll(&mut context), Poll::Ready(Ok(Duration::ZERO)));
    /// let mut second = pin!(limiter.acquire());
    /// assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
    /// limiter.clock().advance(Nanos::from_millis(250));
    /// assert_eq!(second.poll(&mut context), Poll::Ready(Ok(Duration::from_millis(250))));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn acquire(&self) -> Result<Duration, WaitError>
    where
        C: Timer,
    {
        // Not by `acquire_n`, because a future within a future has two states to keep.
        if self.take_at_once(1) {
            return Ok(Duration::ZERO);
        }
        self.wait_until_served(1).await
    }

    /// Like [`acquire`](Self::acquire), for `cost` permits at once.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// use ratekeeper::core::Gcra;
    /// use ratekeeper::{Limiter, ManualClock};
    /// use std::time::Duration;
    /// let limit = Gcra::token_bucket("5/1s".parse().unwrap()).unwrap();
    /// let limiter = Limiter::with_clock(limit, ManualClock::default());
    /// let mut context = Context::from_waker(Waker::noop());
    /// let five = pin!(limiter.acquire_n(5)).poll(&mut context);
    /// assert_eq!(five, Poll::Ready(Ok(Duration::ZERO)));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn acquire_n(&self, cost: u64) -> Result<Duration, WaitError>
    where
        C: Timer,
    {
        if self.take_at_once(cost) {
            return Ok(Duration::ZERO);
        }
        self.wait_until_served(cost).await
    }

    async fn wait_until_served(&self, cost: u64) -> Result<Duration, WaitError>
    where
        C: Timer,
    {
        let waited = wait(self, &self.clock, cost, Until::Served).await?;
        Ok(waited.unwrap_or(Duration::MAX)) // no patience ends in 584 years
    }

    /// Like [`acquire_n`](Self::acquire_n), for no longer than `patience`; `None` if that does not
    /// suffice. If it is known not to suffice, returns at once: always under GCRA, and else as soon
    /// as the caller is first in line.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::{Limiter, ManualClock};
    /// use std::time::Duration;
    /// let limiter = Limiter::with_clock(Gcra::spacing(Nanos::SECOND).unwrap(), ManualClock::default());
    /// let _ = limiter.check();
    /// let mut context = Context::from_waker(Waker::noop());
    /// let too_late = limiter.try_acquire(1, Duration::from_millis(999));
    /// assert_eq!(pin!(too_late).poll(&mut context), Poll::Ready(Ok(None)));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn try_acquire(
        &self,
        cost: u64,
        patience: Duration,
    ) -> Result<Option<Duration>, WaitError>
    where
        C: Timer,
    {
        wait(self, &self.clock, cost, Until::Span(patience.into())).await
    }

    /// Like [`try_acquire`](Self::try_acquire), until `deadline` on the limiter's clock.
    ///
    /// ```
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// use ratekeeper::core::{Gcra, Nanos};
    /// use ratekeeper::{Clock, Limiter, ManualClock};
    /// use std::time::Duration;
    /// let limiter = Limiter::with_clock(Gcra::spacing(Nanos::SECOND).unwrap(), ManualClock::default());
    /// let _ = limiter.check();
    /// let deadline = limiter.clock().now() + Nanos::from_millis(999);
    /// let mut context = Context::from_waker(Waker::noop());
    /// let too_late = limiter.try_acquire_until(1, deadline);
    /// assert_eq!(pin!(too_late).poll(&mut context), Poll::Ready(Ok(None)));
    /// ```
    ///
    /// # Errors
    /// [`WaitError`], without waiting: the cost never fits, or too many callers wait.
    pub async fn try_acquire_until(
        &self,
        cost: u64,
        deadline: Time,
    ) -> Result<Option<Duration>, WaitError>
    where
        C: Timer,
    {
        wait(self, &self.clock, cost, Until::Moment(deadline)).await
    }
}

/// Returns the turn of a caller; an error for a cost that no limit can hold.
fn turn_of<D: Waitable>(desk: D, cost: u64, until: Until) -> Result<Turn<D>, WaitError> {
    match permits(cost) {
        Some(cost) => Ok(Turn::new(desk, cost, until)),
        None => Err(WaitError::too_large(cost, desk.capacity())),
    }
}

/// Blocks the thread until the turn is served or refused.
pub(crate) fn block(
    desk: impl Waitable,
    clock: &impl Block,
    cost: u64,
    until: Until,
) -> Result<Option<Duration>, WaitError> {
    #[cfg(feature = "tracing")]
    {
        let span = crate::spans::wait_span(cost);
        let result = span.in_scope(|| block_in_turn(desk, clock, cost, until));
        crate::spans::waited(&span, &result);
        result
    }
    #[cfg(not(feature = "tracing"))]
    block_in_turn(desk, clock, cost, until)
}

fn block_in_turn(
    desk: impl Waitable,
    clock: &impl Block,
    cost: u64,
    until: Until,
) -> Result<Option<Duration>, WaitError> {
    let mut turn = turn_of(desk, cost, until)?;
    let mut step = turn.step(clock.now(), Waker::noop());
    if !matches!(step, TurnStep::Wait(_)) {
        return answer(step);
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        step = turn.step(clock.now(), &waker); // anew, now that it can be woken
        match step {
            TurnStep::Wait(longest) => clock.park(longest),
            step => return answer(step),
        }
    }
}

/// Completes when the turn is served or refused.
pub(crate) async fn wait(
    desk: impl Waitable,
    clock: &impl Timer,
    cost: u64,
    until: Until,
) -> Result<Option<Duration>, WaitError> {
    let wait = wait_in_turn(desk, clock, cost, until);
    #[cfg(feature = "tracing")]
    let wait = crate::spans::waiting(cost, wait);
    wait.await
}

async fn wait_in_turn(
    desk: impl Waitable,
    clock: &impl Timer,
    cost: u64,
    until: Until,
) -> Result<Option<Duration>, WaitError> {
    let mut turn = turn_of(desk, cost, until)?;
    let mut timer = pin!(None);
    let step = poll_fn(|context| {
        loop {
            let longest = match turn.step(clock.now(), context.waker()) {
                TurnStep::Wait(longest) => longest,
                step => return Poll::Ready(step),
            };
            timer.set(longest.map(|longest| clock.sleep_async(longest)));
            let Some(timer) = timer.as_mut().as_pin_mut() else {
                return Poll::Pending;
            };
            if timer.poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    });
    answer(step.await)
}

/// Converts the last step of a turn into a result for callers.
pub(crate) fn answer(step: TurnStep) -> Result<Option<Duration>, WaitError> {
    match step {
        TurnStep::Granted(waited) => Ok(Some(waited.into())),
        TurnStep::Refused | TurnStep::Wait(_) => Ok(None),
        TurnStep::Useless(error) => Err(error),
    }
}
