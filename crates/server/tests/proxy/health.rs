//! Addresses that are checked, and left out while they do not serve.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use super::upstream::{Next, Upstream};
use super::{OPEN, PATIENCE, Proxy, eventually, sleep};

const HEALTH: &str = "health = { path = \"/healthz\", interval = \"100ms\" }";

/// Answers requests with its name, and checks with a status; none for status 0.
fn named(name: &'static str, status: &Arc<AtomicU16>) -> Upstream {
    let status = Arc::clone(status);
    Upstream::new(move |visit| {
        let response = if visit.request.start == "GET /healthz HTTP/1.1" {
            let host: SocketAddr = visit.request.one("host").unwrap().parse().unwrap();
            assert_eq!(host, visit.stream.local_addr().unwrap());
            let status = status.load(Ordering::SeqCst);
            if status == 0 {
                sleep(PATIENCE);
                return Next::Close;
            }
            format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n")
        } else {
            format!("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n{name}")
        };
        let _ = visit.stream.write_all(response.as_bytes()); // it may have left
        Next::Request
    })
}

fn is_up(proxy: &Proxy, address: u32) -> bool {
    let name = format!("ratekeeper_upstream_up{{route=\"\",address=\"{address}\"}}");
    proxy.metric(&name) == 1
}

/// Returns the names that answer four requests.
fn names(proxy: &Proxy) -> String {
    let mut client = proxy.client();
    (0..4).map(|_| client.get("/").text().to_owned()).collect()
}

#[test]
fn an_address_that_does_not_serve_is_left_out_until_it_does() {
    let [first, second] = [(); 2].map(|()| Arc::new(AtomicU16::new(204)));
    let (a, b) = (named("a", &first), named("b", &second));
    let proxy = Proxy::start(&[a.address, b.address], HEALTH, OPEN);
    assert_eq!(names(&proxy), "abab");
    for status in [503, 404, 0] {
        first.store(status, Ordering::SeqCst);
        eventually("the first is left out", || !is_up(&proxy, 1));
        assert!(is_up(&proxy, 2));
        assert_eq!(names(&proxy), "bbbb", "{status}");
        first.store(302, Ordering::SeqCst);
        eventually("the first serves again", || is_up(&proxy, 1));
        assert_eq!(names(&proxy).matches('a').count(), 2);
    }
    // If none serves, all are used.
    for status in [&first, &second] {
        status.store(500, Ordering::SeqCst);
    }
    eventually("both are left out", || {
        !is_up(&proxy, 1) && !is_up(&proxy, 2)
    });
    assert_eq!(names(&proxy).matches('a').count(), 2);
    // Checks are no requests: they are neither limited nor counted.
    let allowed = "ratekeeper_requests_total{protocol=\"proxy\",result=\"allowed\"}";
    assert_eq!(proxy.metric(allowed), 4 * 8);
}
