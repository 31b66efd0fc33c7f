//! A limit that waits on another runtime than tokio: smol's timers.
//!
//! `cargo run -p ratekeeper-examples --bin smol`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::time::{Duration, Instant};

use async_io::Timer;
use ratekeeper::Limiter;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::per("1/10ms")?.with_timer(Timer::after);
    let start = Instant::now();
    async_io::block_on(async {
        for _page in 0..5 {
            limiter.acquire().await?;
        }
        let kept = start.elapsed() >= Duration::from_millis(39); // two clocks, to a microsecond
        println!("5 pages, 10 ms apart: {kept}");
        Ok(())
    })
}
