//! As `axum`, with `tower_governor`, and tower for the requests in flight.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let per_address = GovernorConfigBuilder::default()
        .period(Duration::from_secs(1_200))
        .burst_size(3)
        .finish()
        .ok_or("a quota of zero")?;
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(GovernorLayer::new(per_address))
        .layer(GlobalConcurrencyLimitLayer::new(200)) // the last is asked first
        .into_make_service_with_connect_info::<SocketAddr>();

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, app).into_future());
    for request in 1..=4 {
        let status = tokio::task::spawn_blocking(move || ask(at)).await??;
        println!("request {request}: {status}");
    }
    Ok(())
}

/// Returns the status line of the answer.
fn ask(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer.lines().next().unwrap_or_default().to_owned())
}
