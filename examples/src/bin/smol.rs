//! A limit that waits on another runtime than tokio: smol's timers.
//!
//! `cargo run -p ratekeeper-examples --bin smol`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use async_io::Timer;
use ratekeeper::core::Nanos;
use ratekeeper::{Clock, Limiter};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::per("1/10ms")?.with_timer(Timer::after);
    let start = limiter.clock().now();
    async_io::block_on(async {
        for _page in 0..5 {
            limiter.acquire().await?;
        }
        let spent = limiter.clock().now().since(start);
        println!("5 pages, 10 ms apart: {}", spent >= Nanos::from_millis(40));
        Ok(())
    })
}
