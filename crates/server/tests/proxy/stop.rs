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
