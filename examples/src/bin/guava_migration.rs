//! From Guava's `RateLimiter`: its calls in comments, ours below each, the waits the same.
//!
//! `cargo run -p ratekeeper-examples --bin guava_migration`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::Duration;

use ratekeeper::core::{Error, WarmUp};
use ratekeeper::{ManualClock, SmoothRateLimiter};

fn main() -> Result<(), Error> {
    // RateLimiter limiter = RateLimiter.create(100.0);
    let _limiter = SmoothRateLimiter::create(100.0)?;
    // The same on a clock that moves only during a sleep, so that every wait below is exact.
    let hundred = WarmUp::bursty(100.0, 1.0)?;
    let limiter = SmoothRateLimiter::with_clock(hundred, ManualClock::default());

    // double slept = limiter.acquire();
    println!("one slept {:?}", limiter.acquire(1));
    // limiter.acquire(5);    the next caller pays for the five
    println!("five slept {:?}", limiter.acquire(5));
    // limiter.acquire();
    println!("the next slept {:?}", limiter.acquire(1));

    // limiter.tryAcquire();
    let at_once = limiter.try_acquire(1, Duration::ZERO);
    // limiter.tryAcquire(1, 1, TimeUnit.SECONDS);
    let in_time = limiter.try_acquire(1, Duration::from_secs(1));
    println!("at once: {at_once}, within a second: {in_time}");

    // limiter.setRate(200.0);
    limiter.set_rate(200.0)?;
    // limiter.getRate();
    println!("{} a second from now on", limiter.rate().round());

    // RateLimiter.create(100.0, Duration.ofSeconds(10));
    let cold = SmoothRateLimiter::create_warming_up(100.0, Duration::from_secs(10))?;
    // Not in Guava: a task that must not block reserves, and sleeps in its own way.
    let _wait = cold.reserve(1);

    // New code has no reason to let the next caller pay: `Limiter` makes each wait for itself.
    Ok(())
}
