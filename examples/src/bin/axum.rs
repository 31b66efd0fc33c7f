//! An axum server behind two limits: requests per address, and requests in flight.
//!
//! `cargo run -p ratekeeper-examples --bin axum`: it asks itself four times.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use ratekeeper::KeyedLimiter;
use ratekeeper::tower::{RateLimitLayer, by_address};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // No proxy is trusted, so the address is that of the connection.
    let address = by_address::<ConnectInfo<SocketAddr>>();
    let per_address = RateLimitLayer::keyed(KeyedLimiter::per("3/1h")?, address);
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(per_address.named("per-address"))
        .layer(RateLimitLayer::in_flight(200)) // the last is asked first
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
