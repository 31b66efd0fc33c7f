//! An actix-web server with a limit for each address, by a middleware function.
//!
//! `cargo run -p ratekeeper-examples --bin actix`: it asks itself four times.
#![expect(clippy::print_stdout, reason = "an example prints its results")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::RETRY_AFTER;
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, HttpResponse, HttpServer, error, web};
use ratekeeper::{KeyedLimiter, Refused};

/// Answers 429 for an address that has used up its limit. No proxy is trusted, so the address is that
/// of the connection.
async fn per_address(
    limiter: web::Data<KeyedLimiter>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    let peer = request.peer_addr();
    let peer = peer.ok_or_else(|| error::ErrorInternalServerError("no address of a client"))?;
    let Err(refused) = limiter.check(peer.ip()) else {
        return Ok(next.call(request).await?.map_into_left_body());
    };
    let mut response = HttpResponse::TooManyRequests();
    if let Refused::Until(wait) = refused {
        response.insert_header((RETRY_AFTER, wait.as_millis().div_ceil(1_000).to_string()));
    }
    let response = response.body(refused.to_string());
    Ok(request.into_response(response).map_into_right_body())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = web::Data::new(KeyedLimiter::per("3/1h")?); // one for all workers
    let app = move || {
        App::new()
            .app_data(limiter.clone())
            .wrap(from_fn(per_address))
            .route("/", web::get().to(async || "hello"))
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
