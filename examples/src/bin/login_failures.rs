//! A login server that refuses a user after three failures, and counts nothing else.
//!
//! `cargo run -p ratekeeper-examples --bin login_failures`: each attempt is charged before the
//! handler runs, so attempts at the same time cannot slip by; the status of the response corrects
//! the charge.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::routing::post;
use ratekeeper::tower::RateLimitLayer;
use tokio::net::TcpListener;

const POLICY: &str = r#"
version = 1
[[limit]]
name     = "login-failures"
key      = ["header:x-user"]
missing_key = "deny"
bucket   = { size = 3, refill = "1/1h" }
count    = { status = 401 }
reset_on = { status = 200 }
"#;

async fn login(uri: Uri) -> StatusCode {
    match uri.query() {
        Some("right") => StatusCode::OK,
        Some("maintenance") => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::UNAUTHORIZED,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let layer = RateLimitLayer::policy_text(POLICY)?;
    let app = Router::new().route("/login", post(login)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, app).into_future());
    let passwords = "wrong maintenance wrong right wrong wrong wrong right";
    for password in passwords.split(' ') {
        println!("{password}: {}", attempt(at, password).await?);
    }
    Ok(())
}

async fn attempt(at: SocketAddr, password: &str) -> Result<u16, Box<dyn Error>> {
    let request = reqwest::Client::new().post(format!("http://{at}/login?{password}"));
    let response = request.header("x-user", "ann").send().await?;
    Ok(response.status().as_u16())
}
