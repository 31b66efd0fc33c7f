//! As `smol`, with governor.

use std::time::{Duration, Instant};

use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;

fn main() {
    let quota = Quota::per_second(nonzero!(100_u32)).allow_burst(nonzero!(1_u32));
    let limiter = RateLimiter::direct(quota);
    let start = Instant::now();
    async_io::block_on(async {
        for _page in 0..5 {
            limiter.until_ready().await;
        }
    });
    let kept = start.elapsed() >= Duration::from_millis(39);
    println!("5 pages, 10 ms apart: {kept}");
}
