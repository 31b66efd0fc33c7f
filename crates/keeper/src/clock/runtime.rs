//! A clock with the timer of any async runtime, in one line.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use ratekeeper_core::{Nanos, Origin, Time};

use super::{Block, Clock, SystemClock, Timer};

/// A clock with the timer of an async runtime: the function that makes a sleeping future. A limiter
/// gets it by [`with_timer`](crate::Limiter::with_timer). For tokio, the feature `tokio` gives
/// [`SystemClock`] its timer.
///
/// ```
/// use ratekeeper::core::{Gcra, Quota};
/// use ratekeeper::{Limiter, RuntimeClock};
///
/// let limit = Gcra::token_bucket(Quota::per_second(100))?;
/// // smol: `async_io::Timer::after`; here tokio's
/// let clock = RuntimeClock::new(tokio::time::sleep);
/// let limiter = Limiter::with_clock(limit, clock);
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// limiter.acquire().await.unwrap();
/// # });
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone)]
pub struct RuntimeClock<F, C = SystemClock> {
    clock: C,
    sleep: F,
}

impl<F, S> RuntimeClock<F>
where
    F: Fn(Duration) -> S + Send + Sync,
    S: Future + Send,
{
    /// The machine's clock, with this timer.
    pub fn new(sleep: F) -> Self {
        Self::over(SystemClock::new(), sleep)
    }
}

impl<F, S, C> RuntimeClock<F, C>
where
    F: Fn(Duration) -> S + Send + Sync,
    S: Future + Send,
{
    /// Any clock, with this timer.
    pub const fn over(clock: C, sleep: F) -> Self {
        Self { clock, sleep }
    }
}

impl<F: Send + Sync, C: Clock> Clock for RuntimeClock<F, C> {
    #[inline]
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn origin(&self) -> Origin {
        self.clock.origin()
    }

    fn wall(&self) -> u64 {
        self.clock.wall()
    }
}

impl<F: Send + Sync, C: Block> Block for RuntimeClock<F, C> {
    fn sleep(&self, span: Nanos) {
        self.clock.sleep(span);
    }

    fn park(&self, longest: Option<Nanos>) {
        self.clock.park(longest);
    }
}

impl<F, S, C> Timer for RuntimeClock<F, C>
where
    F: Fn(Duration) -> S + Send + Sync,
    S: Future + Send,
    C: Clock,
{
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        let sleep = (self.sleep)(span.into());
        async {
            let _end = sleep.await;
        }
    }
}

debug_fields!([F, C: fmt::Debug] RuntimeClock<F, C> { clock });
