//! Requests that never reach the application cost nothing.

use std::io::Write as _;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::upstream::{Next, Upstream};
use super::{Proxy, REFUSES, eventually, sleep};

/// Each passes three requests.
const LIMITS: [&str; 11] = [
    "limit = \"3/1h\"",
    "limit = \"3/1h\"\nalgorithm = \"fixed-window\"",
    "limit = \"3/1h\"\nalgorithm = \"sliding-window-log\"",
    "limit = \"3/1h\"\nalgorithm = \"sliding-window-counter\"",
    "limit = \"3/1h\"\nalgorithm = \"exponential\"",
    "bucket = { size = 3, refill = \"1/1h\" }",
    "bucket = { size = 3, refill = \"1/1h\" }\ncost = { reserve = 1, settle = \"response.header:x-cost\" }",
    "limit = \"3/1h\"\ncount = { status = [200, 502] }",
    "limit = \"3/1h\"\nreset_on = { status = 200 }",
    "limit = \"3/1h\"\nban = { after = 1, within = \"1h\", for = \"1h\" }",
    "limit = \"3/1h\"\nsoft = { extra = \"34%\" }",
];

/// Returns the statuses of six requests under a limit.
fn statuses(url: String, limit: &str) -> [u16; 6] {
    let policy = format!("[[limit]]\nname = \"all\"\nkey = [\"all\"]\n{limit}\n");
    let proxy = Proxy::start_at(&[url], "connect_timeout = \"100ms\"", &policy);
    let mut client = proxy.client();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    [(); 6].map(|()| client.ask(post).status())
}

#[test]
fn a_request_whose_connection_is_refused_costs_nothing_under_any_limit() {
    for limit in LIMITS {
        let statuses = statuses(format!("http://{REFUSES}"), limit);
        assert_eq!(statuses, [502; 6], "{limit}");
    }
}

#[test]
fn only_a_request_that_was_sent_costs() {
    // Accepts connections, by the kernel, and reads nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|at| (silent, at)).unwrap();
    let resets = Upstream::new(|_| Next::Close);
    let (silent, resets) = (silent.1, resets.address);
    for (url, expected) in [
        (format!("https://{resets}"), [502; 6]),
        (format!("h2c://{silent}"), [504; 6]),
        (format!("http://{resets}"), [502, 502, 502, 429, 429, 429]),
    ] {
        assert_eq!(statuses(url.clone(), LIMITS[0]), expected, "{url}");
    }
}

/// Each reload makes new versions of all limits.
#[test]
fn a_request_that_was_under_way_at_a_reload_costs_nothing_either() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("h2c://{}", silent.local_addr().unwrap());
    for limit in LIMITS {
        let limit = limit
            .replace("size = 3", "size = 1")
            .replace("3/1h", "1/1h")
            .replace("34%", "100%");
        let policy = format!("[[limit]]\nname = \"all\"\nkey = [\"all\"]\n{limit}\n");
        let proxy = Proxy::start_at(
            std::slice::from_ref(&url),
            "connect_timeout = \"1s\"",
            &policy,
        );
        let mut waits = proxy.client();
        waits.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let decided =
            || proxy.metric("ratekeeper_requests_total{protocol=\"proxy\",result=\"allowed\"}");
        eventually("it is decided", || decided() == 1);
        let other = "[[limit]]\nname = \"other\"\nkey = [\"ip\"]\nlimit = \"9/1h\"\n";
        proxy.reload_with(&[REFUSES], "", &format!("{policy}{other}"));
        assert_eq!(waits.response().status(), 504, "{limit}");
        assert_eq!(proxy.client().get("/").status(), 502, "{limit}");
    }
}

#[test]
fn permits_and_shadow_counts_are_given_back_too() {
    let policy = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1/1h\"\nmode = \"shadow\"\n\
                  [[limit]]\nname = \"lent\"\nkey = [\"all\"]\nconcurrency = { max = 1, lease = \"1h\" }\n";
    let proxy = Proxy::start(&[REFUSES], "", policy);
    let mut client = proxy.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").status(), 502);
    }
    let denied = "ratekeeper_decisions_total{limit=\"all\",outcome=\"denied\",mode=\"shadow\"}";
    assert_eq!(proxy.metric(denied), 0);
}

#[test]
fn a_client_that_leaves_before_its_request_is_sent_is_charged_nothing() {
    // Accepts connections, by the kernel, and sends no settings of HTTP/2.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("h2c://{}", silent.local_addr().unwrap());
    let permits = "[[limit]]\nname = \"lent\"\nkey = [\"all\"]\n\
                   concurrency = { max = 9, lease = \"1h\" }\n";
    let in_flight = "ratekeeper_upstream_in_flight{route=\"\"}";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for permits in ["", permits] {
        let policy =
            format!("[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"3/1h\"\n{permits}");
        let proxy = Proxy::start_at(
            std::slice::from_ref(&url),
            "connect_timeout = \"5s\"",
            &policy,
        );
        let waits = |count: u64| eventually("it waits", || proxy.metric(in_flight) == count);
        for _ in 0..4 {
            let mut client = proxy.client();
            client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi");
            waits(1);
            drop(client);
            waits(0);
        }
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(proxy.address()).await;
            let (client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
            tokio::spawn(connection);
            for _ in 0..4 {
                let request = http::Request::get("http://a/").body(()).unwrap();
                let mut client = client.clone().ready().await.unwrap();
                let (_response, mut send) = client.send_request(request, true).unwrap();
                waits(1);
                send.send_reset(h2::Reason::CANCEL);
                waits(0);
            }
        });
        assert_eq!(proxy.client().get("/").status(), 504);
    }
}

#[test]
fn a_client_that_leaves_after_its_request_is_sent_is_charged() {
    let upstream = Upstream::new(|mut visit| {
        visit.until_closed();
        Next::Close
    });
    let policy = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"3/1h\"\n";
    let proxy = Proxy::start(&[upstream.address], "", policy);
    for _ in 0..3 {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        drop(upstream.seen());
        drop(client);
        let in_flight = "ratekeeper_upstream_in_flight{route=\"\"}";
        eventually("it leaves", || proxy.metric(in_flight) == 0);
    }
    assert_eq!(proxy.client().get("/").status(), 429);
}

/// Servers close a connection that was idle for some seconds, perhaps as a request is written.
#[test]
fn a_request_that_must_not_be_repeated_takes_no_connection_that_was_idle_for_long() {
    let served = AtomicUsize::new(usize::MAX);
    let upstream = Upstream::new(move |visit| {
        if served.swap(visit.connection, Ordering::SeqCst) == visit.connection {
            return Next::Close;
        }
        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        visit.stream.write_all(ok).unwrap();
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    let post = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi";
    assert_eq!(client.ask(post).status(), 200);
    sleep(Duration::from_millis(1_100));
    assert_eq!(client.ask(post).status(), 200, "on a new connection");
}
