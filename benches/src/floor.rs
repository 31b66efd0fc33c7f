//! Floor: cost of an answer without a decision.

use std::convert::Infallible;
use std::future::Future;
use std::net::TcpListener;
use std::sync::Mutex;
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;

/// Bytes that hyper puts before the body of a constant: status, date, length.
const HEAD_BYTES: usize = 75;

/// Answers `length` bytes to any request; returns the port.
pub(crate) fn bytes(length: usize) -> u16 {
    let body = " ".repeat(length.saturating_sub(HEAD_BYTES));
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", body.len());
    let padding = length.saturating_sub(head.len() + body.len() + "x: \r\n\r\n".len());
    let answer = format!("{head}x: {}\r\n\r\n{body}", "-".repeat(padding));
    let answer = Bytes::from(answer);
    start(move |mut stream| {
        let answer = answer.clone();
        async move {
            let mut question = [0; 4096];
            // `wrk` sends a question in one piece, and waits for its answer.
            while let Ok(1..) = stream.read(&mut question).await {
                if stream.write_all(&answer).await.is_err() {
                    return;
                }
            }
        }
    })
}

/// Reads a request and its body, and answers a constant of `length` bytes; returns the port.
pub(crate) fn hyper(length: usize) -> u16 {
    let body = " ".repeat(length.saturating_sub(HEAD_BYTES));
    constant(Response::new(Full::from(body)))
}

/// As [`hyper()`], with the status, the fields and the body of this answer; returns the port.
pub(crate) fn hyper_like(answer: &str) -> u16 {
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let mut response = Response::builder().status(status.expect("a status"));
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        // Those of the connection, which hyper writes.
        if !["connection", "content-length", "date"].contains(&name) {
            response = response.header(name, value);
        }
    }
    let response = response.body(Full::from(body.to_owned()));
    constant(response.expect("fields of an answer"))
}

fn constant(response: Response<Full<Bytes>>) -> u16 {
    start(move |stream| {
        let response = response.clone();
        let answer = move |request: Request<Incoming>| {
            let response = response.clone();
            async move {
                let _ = request.into_body().collect().await; // broken off: hyper closes
                Ok::<_, Infallible>(response)
            }
        };
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None).writev(false);
        let connection = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
        async move {
            let _ = connection.await; // the client left
        }
    })
}

/// Forwards requests to a port of this machine, each connection over one of its own; returns the
/// port.
pub(crate) fn forward(upstream: u16) -> u16 {
    start(move |stream| async move {
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", upstream)).await else {
            return;
        };
        let _ = upstream.set_nodelay(true);
        let Ok((sender, connection)) = client::handshake(TokioIo::new(upstream)).await else {
            return;
        };
        let connection = tokio::spawn(connection);
        let sender = Mutex::new(sender);
        let answer = move |request: Request<Incoming>| {
            let mut sender = sender.lock().expect("one request at a time");
            sender.send_request(request)
        };
        let mut builder = http1::Builder::new();
        builder.header_read_timeout(None);
        let served = builder.serve_connection(TokioIo::new(stream), service_fn(answer));
        let _ = served.await; // the client left
        connection.abort();
    })
}

/// Starts a runtime for each core, as the service does; connections are given to them in turn.
fn start<F>(serve: impl Fn(TcpStream) -> F + Clone + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let cores = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let handles: Vec<_> = (0..cores)
        .map(|_| {
            let runtime = Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let handle = runtime.handle().clone();
            thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
            handle
        })
        .collect();
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    thread::spawn(move || {
        for handle in handles.iter().cycle() {
            let Ok((stream, _)) = listener.accept() else {
                return;
            };
            let _ = stream.set_nodelay(true); // as the service does
            let _ = stream.set_nonblocking(true);
            let serve = serve.clone();
            handle.spawn(async move {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    serve(stream).await;
                }
            });
        }
    });
    port
}
