//! A well-behaved reqwest client: it keeps its own pace, waits when the server asks for it, and
//! retries within a budget.
//!
//! `cargo run -p ratekeeper-examples --bin reqwest_client`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;

use ratekeeper::Limiter;
use ratekeeper_resilience::tower::ResilienceLayer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tower_layer::Layer;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/", listener.local_addr()?);
    let server = tokio::spawn(serve(listener));

    let http = reqwest::Client::new();
    let client = ResilienceLayer::default().layer(http.clone()); // 10 s, three attempts a call
    let pace = Limiter::per("50/1s")?; // as agreed with the server
    for page in 1..=3 {
        pace.acquire().await?;
        let answer = client.send(http.get(&url)).await?;
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
