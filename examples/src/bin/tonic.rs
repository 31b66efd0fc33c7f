//! A tonic server behind a policy: its clients get `RESOURCE_EXHAUSTED`, and when to retry.
//!
//! `cargo run -p ratekeeper-examples --bin tonic`
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;

use ratekeeper::tower::RateLimitLayer;
use tokio::net::TcpListener;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const POLICY: &str = r#"
version = 1

[[limit]]                     # each address, all methods of the service together
name   = "per-address"
match  = { path = "/grpc.health.v1.Health/*" }
key    = ["ip"]
bucket = { size = 2, refill = "2/1h" }
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = RateLimitLayer::policy_text(POLICY)?.peer_from(TcpConnectInfo::remote_addr);

    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    let (_reporter, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let channel = Channel::from_shared(address)?.connect().await?;
    let mut client = HealthClient::new(channel);
    for call in 1..=3 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("call {call}: served"),
            Err(status) => println!("call {call}: {:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}
