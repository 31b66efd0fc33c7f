//! Streams and sinks at a pace: each item waits in the queue of a limiter.
//!
//! `cargo run -p ratekeeper-examples --bin streams`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;

use futures_util::{SinkExt, StreamExt, TryStreamExt, sink, stream};
use ratekeeper::Limiter;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::per("1/5ms")?;

    let pages = stream::iter(1..=5).then(async |page| limiter.acquire().await.map(|_| page));
    println!("fetched {:?}", pages.try_collect::<Vec<u32>>().await?);

    let mut mails = Box::pin(sink::drain().with(async |mail: u32| {
        limiter.acquire().await?;
        Ok::<_, Box<dyn Error>>(mail)
    }));
    mails.send_all(&mut stream::iter(1..=5).map(Ok)).await?;
    println!("sent, with {} waiting", limiter.waiting());
    Ok(())
}
