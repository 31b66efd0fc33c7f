//! Alerts of `ratekeeper run`: clients in parallel, and a receiver that goes away and comes back.

use std::io::{BufRead, BufReader, Read, Write};
use std::mem::discriminant;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::harness::clock;
use crate::harness::free_address;
use crate::harness::service::{Service, policy};
use crate::harness::visitor::Visitor;
use crate::recipes::blocks;

/// Long enough for six attempts of a message.
const PATIENCE: Duration = Duration::from_secs(60);

const GUIDE: &str = include_str!("../../../../docs/guide/advanced.md");

const LIMIT: &str = r#"
[[limit]]
name  = "per-path"
key   = ["path"]
limit = "20/5s"
alert = { above = "80%", for = "2s" }
"#;

/// Takes messages until it is dropped.
struct Receiver {
    bodies: Arc<Mutex<Vec<Value>>>,
    address: SocketAddr,
    closing: Arc<AtomicBool>,
}

impl Receiver {
    fn start(address: SocketAddr, bodies: &Arc<Mutex<Vec<Value>>>) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let closing = Arc::new(AtomicBool::new(false));
        let (bodies_too, closes) = (Arc::clone(bodies), Arc::clone(&closing));
        thread::spawn(move || {
            for stream in listener.incoming() {
                if closes.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(body) = stream.ok().and_then(take) {
                    let mut bodies = bodies_too.lock().unwrap_or_else(PoisonError::into_inner);
                    bodies.push(body);
                }
            }
        });
        Self {
            bodies: Arc::clone(bodies),
            address,
            closing,
        }
    }

    fn received(&self) -> Vec<Value> {
        let bodies = self.bodies.lock().unwrap_or_else(PoisonError::into_inner);
        bodies.clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.closing.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address); // wakes the acceptor
    }
}

/// Reads one message, and answers 200.
fn take(mut stream: TcpStream) -> Option<Value> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut length, mut line) = (0, String::new());
    while line != "\r\n" {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(text) = line.strip_prefix("content-length: ") {
            length = text.trim().parse().ok()?;
        }
    }
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body).ok()?;
    stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .ok()?;
    serde_json::from_slice(&body).ok()
}

/// Returns true if both have the same fields, of the same types.
fn is_like(value: &Value, shown: &Value) -> bool {
    match (value, shown) {
        (Value::Object(value), Value::Object(shown)) => {
            value.keys().eq(shown.keys())
                && value
                    .values()
                    .zip(shown.values())
                    .all(|(value, shown)| is_like(value, shown))
        }
        _ => discriminant(value) == discriminant(shown),
    }
}

#[test]
fn eight_clients_start_and_end_one_alert_and_a_lost_receiver_learns_of_it() {
    let desk = tempfile::tempdir().expect("a directory of its own");
    let dir = desk.path();
    let secret = dir.join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("writable");
    let address = free_address();
    let alerts = format!(
        "[alerts]\nreveal_keys = true\nwebhook = {{ url = \"http://{address}/\", secret = \"file:{}\" }}\n{LIMIT}",
        secret.display()
    );
    let path = dir.join("ratekeeper.toml");
    std::fs::write(&path, policy(&alerts)).expect("writable");
    let service = Service::start(dir, &path);

    // The receiver is not there yet when the alert starts.
    let stop = AtomicBool::new(false);
    let bodies = Arc::default();
    thread::scope(|scope| {
        for last in 2..10 {
            let (stop, http) = (&stop, service.http());
            scope.spawn(move || {
                let visitor = Visitor::at(last);
                while !stop.load(Ordering::Relaxed) {
                    let status = visitor.get(http, "/v1/auth").status;
                    assert!(matches!(status, 200 | 429), "{status}");
                }
            });
        }
        let started = clock::poll("the start of the alert", PATIENCE, || {
            let listed = Visitor::at(1).get(service.admin(), "/v1/alerts").body;
            let listed: Value = serde_json::from_str(&listed).ok()?;
            listed["alerts"].get(0).cloned()
        });
        stop.store(true, Ordering::Relaxed);
        let started = started.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(started["key"][0], "path=/v1/auth");
    });
    let receiver = Receiver::start(address, &bodies);
    let both = clock::poll("both messages", PATIENCE, || {
        Some(receiver.received()).filter(|all| all.len() >= 2)
    });
    let both = both.unwrap_or_else(|error| panic!("{error}"));
    let of = |body: &Value| (body["type"].clone(), body["data"]["id"].clone());
    assert_eq!(of(&both[0]).0, "alert.started");
    assert_eq!(of(&both[1]), ("alert.ended".into(), of(&both[0]).1));
    assert_eq!(both.len(), 2);
    let shown = blocks(GUIDE, "text").find_map(|block| block.split_once("\n\n"));
    let (_, shown) = shown.expect("the guide shows a message");
    let shown: Value = serde_json::from_str(shown).expect("its body is JSON");
    assert!(is_like(&both[0], &shown), "{} is not like {shown}", both[0]);
    let total = service.metric("ratekeeper_alerts_total{limit=\"per-path\"}");
    assert!((total - 1.0).abs() < f64::EPSILON, "{total}");
    service.process.log_with("alert started: limit `per-path`");
}
