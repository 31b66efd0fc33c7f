//! As `governor_migration`, with governor.

use governor::clock::{Clock, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::{InsufficientCapacity, Quota, RateLimiter};
use nonzero_ext::nonzero;

fn main() {
    let _fifty_a_second = RateLimiter::direct(Quota::per_second(nonzero!(50_u32)));

    let quota = Quota::per_hour(nonzero!(1_u32)).allow_burst(nonzero!(3_u32));
    let limiter = RateLimiter::direct(quota).with_middleware::<StateInformationMiddleware>();
    let clock = DefaultClock::default();

    match limiter.check() {
        Ok(state) => println!("passed, {} left", state.remaining_burst_capacity()),
        Err(not_until) => println!("try in {:?}", not_until.wait_time_from(clock.now())),
    }

    match limiter.check_n(nonzero!(9_u32)) {
        Ok(Ok(_)) => println!("all nine passed"),
        Ok(Err(wait)) => println!("try in {:?}", wait.wait_time_from(clock.now())),
        Err(InsufficientCapacity(_most)) => println!("nine never fit"),
    }

    async_io::block_on(limiter.until_ready());

    let keyed = RateLimiter::keyed(quota);
    let passed = |user: &'static str| keyed.check_key(&user).is_ok();
    println!("ann: {}, bob: {}", passed("ann"), passed("bob"));

    keyed.retain_recent();
    keyed.shrink_to_fit();
    println!("{} keys, without a bound", keyed.len());
}
