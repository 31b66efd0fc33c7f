//! An actix-web server with a limit for each address.
//!
//! `cargo run -p ratekeeper-examples --bin actix`: it asks itself four times.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use actix_web::{App, HttpServer, web};
use ratekeeper::KeyedLimiter;
use ratekeeper::tower::{Peer, RateLimitLayer, by_address};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = KeyedLimiter::per("3/1h")?; // one for all workers
    let limit = RateLimitLayer::keyed(limiter, by_address::<Peer>()).for_actix();
    let app = move || {
        let app = App::new().wrap(limit.clone());
        app.route("/", web::get().to(async || "hello"))
    };
    let server = HttpServer::new(app).workers(2).bind("127.0.0.1:0")?;
    let at = server.addrs()[0];
    let asking = tokio::task::spawn_blocking(move || -> std::io::Result<()> {
        for request in 1..=4 {
            println!("request {request}: {}", ask(at)?);
        }
        Ok(())
    });
    tokio::select! {
        ended = server.run() => ended?,
        asked = asking => asked??,
    }
    Ok(())
}

/// Returns the status line of the answer, and the wait that it states.
fn ask(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let mut lines = answer.lines();
    let status = lines.next().unwrap_or_default().to_owned();
    let wait = lines.find(|line| line.starts_with("retry-after"));
    Ok(wait.map_or_else(|| status.clone(), |wait| format!("{status}, {wait}")))
}
