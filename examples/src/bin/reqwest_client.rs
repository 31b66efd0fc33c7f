//! A well-behaved reqwest client: it keeps its own pace, waits when the server asks for it, retries
//! within a budget, and stops calling a server that is down.
//!
//! `cargo run -p ratekeeper-examples --bin reqwest_client`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::sync::Arc;

use ratekeeper::Limiter;
use ratekeeper_resilience::tower::{CallSettings, Guard, ResilienceLayer};
use ratekeeper_resilience::{Breaker, BreakerSettings, Budget, BudgetSettings, SplitMix};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    // Ten seconds and three attempts a call, full jitter; Retry-After takes precedence.
    let breaker = Breaker::new(BreakerSettings::default(), SplitMix::seeded())?;
    let settings = CallSettings {
        guard: Guard::Breaker(Arc::new(breaker)),
        ..CallSettings::default()
    };
    // All calls share it, so that retries add at most a tenth to the load.
    let budget = Arc::new(Budget::new(BudgetSettings::default())?);
    let plain = reqwest::Client::new();
    let mut client = ResilienceLayer::new(settings, budget).layer(plain.clone());
    let pace = Limiter::per("50/1s")?; // as agreed with the server

    for page in 1..=3 {
        pace.acquire().await?;
        let answer = client.call(plain.get(&url).build()?).await?;
        println!("page {page}: {}", answer.status());
    }
    println!("the server was asked {} times", server.await??);
    Ok(())
}

/// Refuses twice, once with `Retry-After`, before it serves.
async fn serve(listener: TcpListener) -> std::io::Result<usize> {
    let late = "429 Too Many Requests\r\nretry-after: 1";
    let answers = [late, "429 Too Many Requests", "200 OK", "200 OK", "200 OK"];
    for answer in answers {
        let (mut stream, _) = listener.accept().await?;
        let _request = stream.read(&mut [0; 4_096]).await?;
        let answer = format!("HTTP/1.1 {answer}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(answer.as_bytes()).await?;
    }
    Ok(answers.len())
}
