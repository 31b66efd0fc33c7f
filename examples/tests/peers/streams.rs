//! As `streams`, with governor.

use std::error::Error;

use futures_util::{SinkExt, StreamExt, sink, stream};
use governor::prelude::{SinkRateLimitExt, StreamRateLimitExt};
use governor::{Quota, RateLimiter};
use nonzero_ext::nonzero;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = RateLimiter::direct(Quota::per_second(nonzero!(200_u32)));

    let pages = stream::iter(1..=5).ratelimit_stream(&limiter);
    println!("fetched {:?}", pages.collect::<Vec<u32>>().await);

    let mut mails = sink::drain().ratelimit_sink(&limiter);
    mails.send_all(&mut stream::iter(1..=5).map(Ok)).await?;
    println!("sent");
    Ok(())
}
