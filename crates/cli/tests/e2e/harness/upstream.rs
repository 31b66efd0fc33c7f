//! The application behind the proxy: answers with the request that it received, and counts. The
//! status is 200, or that of the request's `x-status`, after the milliseconds of `x-wait-ms`.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::clock;

#[derive(Default)]
struct Shared {
    counts: Mutex<HashMap<String, usize>>,
    arrivals: Mutex<Vec<Instant>>,
    closing: AtomicBool,
}

pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let shared = Arc::new(Shared::default());
        let acceptor = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || accept(&listener, &shared))
        };
        Self {
            address,
            shared,
            acceptor: Some(acceptor),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address as a policy names it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the number of requests that have reached the application.
    pub(crate) fn total(&self) -> usize {
        self.counts(|counts| counts.values().sum())
    }

    /// Returns when each request reached the application, in order.
    pub(crate) fn arrivals(&self) -> Vec<Instant> {
        let arrivals = self.shared.arrivals.lock();
        arrivals.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the number of requests for `what`, spelled `GET /path` without the query.
    pub(crate) fn count(&self, what: &str) -> usize {
        self.counts(|counts| counts.get(what).copied().unwrap_or(0))
    }

    fn counts<T>(&self, read: impl FnOnce(&HashMap<String, usize>) -> T) -> T {
        read(
            &self
                .shared
                .counts
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the acceptor
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.closing.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // A proxy may close the connection at any time.
        thread::spawn(move || answer(stream, &shared).unwrap_or_default());
    }
}

/// Answers one request per connection; the body of the answer is the head of the request.
fn answer(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    let (mut body_length, mut status) = (0, "200 OK".to_owned());
    let mut wait = Duration::ZERO;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            body_length = value.trim().parse().unwrap_or(0);
        } else if name.eq_ignore_ascii_case("x-status") {
            status = format!("{} As Told", value.trim());
        } else if name.eq_ignore_ascii_case("x-wait-ms") {
            wait = Duration::from_millis(value.trim().parse().unwrap_or(0));
        }
        head.push_str(&line);
    }
    io::copy(&mut reader.take(body_length), &mut io::sink())?;

    shared
        .arrivals
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(clock::now());
    let mut words = head.split_whitespace();
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let path = target.split('?').next().unwrap_or("");
    *shared
        .counts
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .entry(format!("{method} {path}"))
        .or_default() += 1;

    clock::wait(wait);
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{head}",
        head.len(),
    )
}
