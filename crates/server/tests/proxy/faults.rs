//! Upstreams that fail, each in its way.

use std::io::{BufRead as _, Write as _};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::upstream::{Next, Upstream};
use super::{OPEN, PATIENCE, Proxy, REFUSES, sleep};

fn errors(proxy: &Proxy, kind: &str) -> u64 {
    proxy.metric(&format!(
        "ratekeeper_upstream_errors_total{{route=\"\",kind=\"{kind}\"}}"
    ))
}

#[test]
fn an_upstream_that_is_down_is_a_502_with_the_id_of_the_request() {
    let proxy = Proxy::start(&[REFUSES], "", OPEN);
    let response = proxy.client().get("/");
    assert_eq!(response.status(), 502);
    assert_eq!(
        response.one("content-type"),
        Some("application/problem+json")
    );
    let id = response.one("x-request-id").unwrap();
    assert!(
        response
            .text()
            .contains(&format!("\"request_id\":\"{id}\"")),
        "{}",
        response.text()
    );
    assert!(response.text().contains("RK0524"), "{}", response.text());
    assert_eq!(errors(&proxy, "refused"), 1);
}

#[test]
fn a_status_above_599_counts_as_5xx() {
    let upstream = Upstream::with("HTTP/1.1 999 Odd\r\ncontent-length: 2\r\n\r\nhi");
    let proxy = Proxy::start(&[upstream.address], "", OPEN);
    assert_eq!(proxy.client().get("/").status(), 999);
    let responses = "ratekeeper_upstream_responses_total{route=\"\",class=\"5xx\"}";
    assert_eq!(proxy.metric(responses), 1);
}

#[test]
fn an_upstream_that_hangs_is_a_504() {
    let upstream = Upstream::new(|_| {
        sleep(PATIENCE);
        Next::Close
    });
    let proxy = Proxy::start(&[upstream.address], "response_timeout = \"200ms\"", OPEN);
    let mut client = proxy.client();
    let response = client.get("/");
    assert_eq!(
        (response.status(), errors(&proxy, "response_timeout")),
        (504, 1)
    );
    assert!(response.text().contains("RK0525"), "{}", response.text());
    // An upload that moves is no hang of the upstream, and one that stalls is the client's.
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n");
    for _ in 0..4 {
        sleep(Duration::from_millis(100));
        client.send("x");
    }
    let response = client.response();
    assert_eq!(response.status(), 408, "{}", response.text());
}

#[test]
fn an_upstream_that_sends_no_http_is_a_502() {
    for response in [
        "",
        "SSH-2.0-x\r\n",
        "HTTP/1.1 200 OK\r\nconte",
        "HTTP/1.1 200 OK\r\na b: c\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
    ] {
        let response = response.to_owned();
        let upstream = Upstream::new(move |visit| {
            visit.stream.write_all(response.as_bytes()).unwrap();
            Next::Close
        });
        let proxy = Proxy::in_front_of(&upstream);
        assert_eq!(proxy.client().get("/").status(), 502);
        assert_eq!(errors(&proxy, "reset") + errors(&proxy, "bad_response"), 1);
    }
}

/// 502 and 504 name the request as the upstream knows it.
#[test]
fn an_error_has_the_id_that_the_upstream_received() {
    let upstream = Upstream::new(|visit| {
        if visit.request.start.contains("/hang") {
            sleep(PATIENCE);
        }
        Next::Close
    });
    let proxy = Proxy::start(&[upstream.address], "response_timeout = \"200ms\"", OPEN);
    for (path, status) in [("/close", 502), ("/hang", 504)] {
        let response = proxy.client().get(path);
        assert_eq!(response.status(), status);
        let problem = Some("application/problem+json");
        assert_eq!(response.one("content-type"), problem);
        let seen = upstream.seen();
        let id = seen.one("x-request-id");
        assert_eq!(response.one("x-request-id"), id);
        let member = format!("\"request_id\":\"{}\"", id.unwrap());
        assert!(response.text().contains(&member), "{}", response.text());
    }
}

/// A reset, unlike an end, discards the bytes that were sent before it.
#[test]
fn a_reset_in_the_body_ends_the_response() {
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let upstream = Upstream::new(move |visit| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
        visit.stream.write_all(head.as_bytes()).unwrap();
        goes.lock().unwrap().recv().unwrap();
        let socket = socket2::SockRef::from(&*visit.stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        visit.stream.shutdown(std::net::Shutdown::Write).unwrap();
        Next::Close
    });
    let proxy = Proxy::in_front_of(&upstream);
    for broken in 1..=2 {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        client.stream.fill_buf().unwrap(); // the head
        go.send(()).unwrap();
        let response = client.response();
        assert!(response.status() == 200 && !response.is_whole);
        assert_eq!(errors(&proxy, "body_broken"), broken);
    }
}

/// As Node does after a head or a body that is too large.
#[test]
fn the_head_before_a_reset_reaches_the_client() {
    let upstream = Upstream::new(|visit| {
        let head = b"HTTP/1.1 413 Too Large\r\nconnection: close\r\n\r\n";
        visit.stream.write_all(head).unwrap();
        let socket = socket2::SockRef::from(&*visit.stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        Next::Close
    });
    let proxy = Proxy::in_front_of(&upstream);
    for _ in 0..20 {
        let response = proxy.client().get("/");
        // 502 if the reset has discarded the head before it was read.
        assert!(matches!(
            (response.status(), response.is_whole),
            (413, false) | (502, true)
        ));
    }
}

#[test]
fn an_answer_that_was_not_asked_for_is_not_used() {
    // Two responses to the first request: the second one must not answer the next request.
    let two = "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nones".repeat(2);
    let upstream = Upstream::with(two.replace("ones", "one"));
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    for _ in 0..5 {
        let response = client.get("/");
        assert_eq!((response.status(), response.text()), (200, "one"));
        sleep(Duration::from_millis(20));
    }
    let connections = upstream
        .connections
        .load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(connections, 5, "each connection is given up");
    let proxy = Proxy::start(
        &[
            Upstream::with("HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n")
                .address,
        ],
        "",
        OPEN,
    );
    assert_eq!(proxy.client().get("/").status(), 502);
}

#[test]
fn a_connection_that_was_closed_while_idle_costs_a_retry_and_no_error() {
    // Answers one request, and closes as the second one comes.
    let upstream = Upstream::new(|visit| {
        if visit.request.start.contains("/close") {
            return Next::Close;
        }
        visit
            .stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .unwrap();
        if visit.connection == 0 {
            let mut byte = [0];
            visit.stream.peek(&mut byte).unwrap();
            return Next::Close;
        }
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    assert_eq!(client.get("/1").status(), 200);
    assert_eq!(
        client.get("/2").status(),
        200,
        "sent again on a new connection"
    );
    // A request that is not idempotent is not sent again.
    let response = client.ask("POST /close HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\nx");
    assert_eq!(response.status(), 502);
    let posts = std::iter::from_fn(|| upstream.seen_already());
    assert_eq!(
        posts.filter(|seen| seen.start.starts_with("POST")).count(),
        1
    );
}
