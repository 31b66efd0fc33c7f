//! A server that finds its own maximum number of concurrent requests.
//!
//! `cargo run -p ratekeeper-examples --bin adaptive`: 40 clients ask for two seconds.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use ratekeeper::tower::{AdaptiveSettings, RateLimitLayer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut settings = AdaptiveSettings::default(); // 20 to 200 at once, from 20
    (settings.bounds.least, settings.bounds.initial) = (1, 4);
    let layer = RateLimitLayer::adaptive(settings)?;

    // Capacity: a pool of 4 connections to a database, each busy for 10 ms.
    let pool = Arc::new(Semaphore::new(4));
    let handler = async move || {
        let _connection = pool.acquire().await;
        sleep(Duration::from_millis(10)).await;
    };
    let app = Router::new().route("/", get(handler)).layer(layer.clone());

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    tokio::spawn(axum::serve(listener, app).into_future());
    for _ in 0..40 {
        tokio::spawn(ask(url.clone()));
    }
    sleep(Duration::from_secs(1)).await;

    // A pause of the machine lowers the limit for a moment, so take the median of a second.
    let mut limits = [0; 21];
    for limit in &mut limits {
        sleep(Duration::from_millis(50)).await;
        *limit = layer.limit().limit();
    }
    limits.sort_unstable();
    let (limit, counts) = (limits[limits.len() / 2], layer.counts());
    println!("limit near capacity: {}", (4..=20).contains(&limit));
    println!("the others are refused: {}", counts.refused > 0);
    Ok(())
}

/// Asks repeatedly, and comes back later after a refusal.
async fn ask(url: String) -> Result<(), reqwest::Error> {
    let client = reqwest::Client::new();
    loop {
        if client.get(&url).send().await?.status() == StatusCode::SERVICE_UNAVAILABLE {
            sleep(Duration::from_millis(50)).await; // shorter than the second in Retry-After
        }
    }
}
