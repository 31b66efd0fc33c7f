//! A stop loses no request.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::upstream::{Next, Upstream};
use super::{Client, OPEN, Proxy, sleep};

#[test]
fn a_stop_under_load_loses_no_request() {
    let upstream = Upstream::new(|visit| {
        sleep(Duration::from_millis(5));
        let _ = visit
            .stream
            .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n");
        sleep(Duration::from_millis(5));
        let _ = visit.stream.write_all(b"3\r\ndef\r\n0\r\n\r\n");
        Next::Request
    });
    let proxy = Proxy::start(&[upstream.address], "", OPEN);
    let address = proxy.address();
    let (stopping, answered) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let (stopping, answered) = (Arc::clone(&stopping), Arc::clone(&answered));
            thread::spawn(move || {
                // A refused connection is the end: the listener is closed.
                while let Ok(stream) = TcpStream::connect(address) {
                    drop(stream);
                    let mut client = Client::new(address);
                    loop {
                        let response = client.get("/");
                        assert!(response.status() == 200 && response.is_whole);
                        assert_eq!(response.text(), "abcdef");
                        answered.fetch_add(1, Ordering::SeqCst);
                        if response.one("connection") == Some("close") {
                            break;
                        }
                    }
                    if stopping.load(Ordering::SeqCst) {
                        return;
                    }
                }
            })
        })
        .collect();
    while answered.load(Ordering::SeqCst) < 200 {
        sleep(Duration::from_millis(10));
    }
    stopping.store(true, Ordering::SeqCst);
    proxy.service.stop();
    for client in clients {
        client.join().unwrap();
    }
    proxy.service.wait();
}

/// `grace`, 30 s by default, bounds how long requests and tunnels may take after a stop.
#[test]
fn a_stop_waits_for_requests_as_long_as_the_grace() {
    let upstream = Upstream::new(|visit| {
        let upgrades = visit.request.one("upgrade").is_some();
        let head = if upgrades {
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello"
        };
        visit.stream.write_all(head.as_bytes()).unwrap();
        if upgrades || visit.request.start.contains("/hang") {
            sleep(Duration::from_secs(60)); // the test is over long before
        }
        sleep(Duration::from_millis(500));
        let _ = visit.stream.write_all(b"world");
        Next::Request
    });
    let policy = format!("[listen]\ndrain = \"0s\"\ngrace = \"3s\"\n{OPEN}");
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut tunnel = proxy.client();
    assert_eq!(tunnel.ask(upgrade).status(), 101);
    let ask = |path: &str| {
        let mut client = proxy.client();
        client.send(format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n"));
        drop(upstream.seen());
        client
    };
    drop(upstream.seen());
    let (mut slow, mut hangs) = (ask("/slow"), ask("/hang"));
    proxy.service.stop();
    let slow = slow.response();
    assert!(slow.is_whole && slow.text() == "helloworld");
    assert_eq!(slow.one("content-length"), Some("10"));
    proxy.service.wait();
    assert!(!hangs.response().is_whole);
    let end = std::io::Read::read(&mut tunnel.stream, &mut [0]);
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}
