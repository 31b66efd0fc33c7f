//! From governor: its calls in comments, ours below each.
//!
//! `cargo run -p ratekeeper-examples --bin governor_migration`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use ratekeeper::core::Quota;
use ratekeeper::{KeyedLimiter, Limiter, Refused};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // RateLimiter::direct(Quota::per_second(nonzero!(50u32)));
    let _fifty_a_second = Limiter::per("50/1s")?;

    // Quota::with_period(Duration::from_secs(3600)).unwrap().allow_burst(nonzero!(3u32))
    let quota = Quota::per_hour(1).burst(3);
    let limiter = Limiter::token_bucket(quota)?;

    // match limiter.check() { Ok(()) => .., Err(not_until) => .. }
    // not_until.wait_time_from(clock.now())
    match limiter.check() {
        Ok(grant) => println!("passed, {} left", grant.remaining()), // no middleware needed
        Err(refused) => println!("{refused}"),
    }

    // match limiter.check_n(nonzero!(9u32)) {
    //     Ok(Ok(())) => .., Ok(Err(not_until)) => .., Err(InsufficientCapacity(most)) => ..
    // }
    match limiter.check_n(9) {
        Ok(_) => println!("all nine passed"),
        Err(Refused::Until(wait)) => println!("come back in {} s", wait.as_secs() + 1),
        Err(Refused::Never) => println!("nine never fit"),
    }

    // limiter.until_ready().await;    waiters race, hence its jitter
    limiter.acquire_blocking()?; // or `acquire().await`: waiters queue

    // RateLimiter::keyed(quota); limiter.check_key(&user)
    let keyed = KeyedLimiter::token_bucket(quota)?;
    let passed = |user: &str| keyed.check(user).is_ok();
    println!("ann: {}, bob: {}", passed("ann"), passed("bob"));

    // limiter.retain_recent(); limiter.shrink_to_fit();    never: memory has a bound
    println!("at most {} MiB", keyed.store().usage().budget_bytes >> 20);

    // A numeric difference: governor keeps whole nanoseconds between two permits, rounded down, so
    // 300,000,000 a second passes 11 % more; ours are exact.
    Ok(())
}
