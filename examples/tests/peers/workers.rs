//! As `acquire_blocking`, with leaky-bucket: it has no waiting for threads, so by tasks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use leaky_bucket::RateLimiter;

/// One every five milliseconds, for all workers together.
const PACE: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut limiter = RateLimiter::builder();
    limiter.max(1).initial(1).interval(PACE);
    let limiter = Arc::new(limiter.build());
    let start = Instant::now();

    let work = |_| {
        let limiter = Arc::clone(&limiter);
        tokio::spawn(async move {
            for _page in 0..5 {
                limiter.acquire_one().await;
                // fetch the page
            }
        })
    };
    let workers: Vec<_> = (0..4).map(work).collect();
    for worker in workers {
        worker.await?;
    }

    let kept = start.elapsed() >= Duration::from_millis(19 * 5 - 1);
    println!("4 workers fetched 20 pages, 5 ms apart: {kept}");
    Ok(())
}
