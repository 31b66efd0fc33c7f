//! A server that answers by a script, and records the requests that it saw.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::time::Instant;

/// Reaction of the server to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Answer(u16),
    /// An answer with `Retry-After`.
    Later(u16, &'static str),
    /// Closes the connection without an answer.
    HangUp,
    /// Never answers.
    Hang,
}

/// Requests that the server saw: method, value of `x-timeout-ms`, and time.
pub(crate) type Seen = Arc<Mutex<Vec<(Method, Option<u64>, Instant)>>>;

/// Starts a server that follows the script, and repeats its last line; returns its address and
/// the requests that it sees.
pub(crate) async fn server(script: &'static [Act]) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let seen = Seen::default();
    let log = Arc::clone(&seen);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let log = Arc::clone(&log);
            let serve = hyper::service::service_fn(move |request: Request<Incoming>| {
                let number = {
                    let timeout = request.headers().get("x-timeout-ms");
                    let timeout = timeout.map(|value| value.to_str().unwrap().parse().unwrap());
                    let mut log = log.lock().unwrap();
                    log.push((request.method().clone(), timeout, Instant::now()));
                    log.len() - 1
                };
                let act = *script.get(number).or(script.last()).unwrap();
                async move {
                    let answer = Response::builder();
                    let answer = match act {
                        Act::Answer(status) => answer.status(status),
                        Act::Later(status, when) => {
                            answer.status(status).header("retry-after", when)
                        }
                        Act::HangUp => return Err("hang up"),
                        Act::Hang => std::future::pending().await,
                    };
                    Ok::<_, &str>(answer.body(Full::<Bytes>::default()).unwrap())
                }
            });
            tokio::spawn(async move {
                let connection = hyper::server::conn::http1::Builder::new();
                let _ = connection
                    .serve_connection(TokioIo::new(stream), serve)
                    .await;
            });
        }
    });
    (address, seen)
}
