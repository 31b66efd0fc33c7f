//! acquire: work that must be done, at a pace. Workers wait in a queue; no runtime is needed.
//!
//! `cargo run -p ratekeeper-examples --bin acquire_blocking`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::thread;

use ratekeeper::core::Quota;
use ratekeeper::{Clock, Limiter, WaitError};

/// One every five milliseconds, for all workers together.
const PACE: Quota = Quota::per_second(200).burst(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let limiter = Limiter::token_bucket(PACE)?;
    let start = limiter.clock().now();

    thread::scope(|scope| {
        let work = || -> Result<(), WaitError> {
            for _page in 0..5 {
                limiter.acquire_blocking()?;
                // fetch the page
            }
            Ok(())
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        let mut done = workers.into_iter().map(thread::ScopedJoinHandle::join);
        done.try_for_each(|worker| worker.expect("no worker panics"))
    })?;

    let took = limiter.clock().now().since(start);
    let kept = took.as_millis_ceil() >= 19 * 5 - 1; // a clock read twice may step back
    println!("4 workers fetched 20 pages, 5 ms apart: {kept}");
    Ok(())
}
