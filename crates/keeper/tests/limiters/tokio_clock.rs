//! Limits by the time of a tokio runtime that a test holds.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use ratekeeper::core::{Gcra, Nanos, Origin, Time};
use ratekeeper::{Clock, Limiter, Timer, TokioClock};
use tokio::time::Instant;

fn pace() -> Gcra {
    Gcra::token_bucket("1/1s".parse().unwrap()).unwrap()
}

/// A clock that counts how often it is read and slept by.
struct Counted {
    clock: TokioClock,
    sleeps: std::sync::atomic::AtomicU32,
}

impl Clock for Counted {
    fn now(&self) -> Time {
        self.clock.now()
    }

    fn origin(&self) -> Origin {
        self.clock.origin()
    }
}

impl Timer for Counted {
    fn sleep_async(&self, span: Nanos) -> impl Future<Output = ()> + Send {
        self.sleeps
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.clock.sleep_async(span)
    }
}

#[tokio::test(start_paused = true)]
async fn paused_time_advances_by_the_wait_of_the_limit() {
    let clock = Counted {
        clock: TokioClock::new(),
        sleeps: 0.into(),
    };
    let limiter = Limiter::with_clock(pace(), clock);
    let began = Instant::now();
    assert_eq!(limiter.acquire().await, Ok(Duration::ZERO));
    assert_eq!(limiter.acquire().await, Ok(Duration::from_secs(1)));
    let took = began.elapsed();
    // tokio's timers go by whole milliseconds, up.
    let second = Duration::from_secs(1);
    assert!(
        (second..=second + Duration::from_millis(1)).contains(&took),
        "{took:?}"
    );
    let sleeps = limiter
        .clock()
        .sleeps
        .load(std::sync::atomic::Ordering::Relaxed);
    assert!(sleeps <= 2, "{sleeps} timers were set for one wait");
}

#[tokio::test(start_paused = true)]
async fn a_moved_clock_takes_effect_at_once() {
    let limiter = Limiter::with_clock(pace(), TokioClock::at(Origin::UNIX));
    assert!(limiter.check().is_ok());
    tokio::time::advance(Duration::from_millis(999)).await;
    let wait = limiter.peek_n(1).verdict.retry_after();
    assert_eq!(wait, Some(Nanos::from_millis(1)));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(limiter.check().is_ok());
    assert_eq!(limiter.clock().origin(), Origin::UNIX);
}
