//! A limit that waits on another runtime than tokio: smol's timers, the system's time.
//!
//! `cargo run -p ratekeeper-examples --bin smol`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use async_io::Timer;
use ratekeeper::core::{Gcra, Nanos, Quota};
use ratekeeper::{Clock, Limiter, RuntimeClock};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limit = Gcra::token_bucket(Quota::per_second(100).burst(1))?;
    let limiter = Limiter::with_clock(limit, RuntimeClock::new(Timer::after));
    let start = limiter.clock().now();
    async_io::block_on(async {
        for _page in 0..5 {
            limiter.acquire().await?;
        }
        Ok::<_, ratekeeper::WaitError>(())
    })?;
    let spent = limiter.clock().now().since(start);
    println!("5 pages, 10 ms apart: {}", spent >= Nanos::from_millis(40));
    Ok(())
}
