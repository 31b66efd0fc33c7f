//! Requests that a proxy and an upstream might divide differently.

use std::io::Read as _;

use super::upstream::Upstream;
use super::{Client, Proxy};

/// Appended to each case: it must not reach the upstream from a connection that is refused.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: a\r\n\r\n";

/// Returns all bytes that the client receives until the connection is closed.
fn all(proxy: &Proxy, request: &str) -> String {
    let mut client = Client::new(proxy.address());
    client.send(format!("{request}{HIDDEN}"));
    let mut bytes = Vec::new();
    // A reset after the response is a closed connection too.
    let _ = client.stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).unwrap()
}

#[test]
fn ambiguous_requests_are_refused_and_the_connection_is_closed() {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    for request in [
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcdef",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5, 5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: +5\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: -1\r\n\r\nabcde",
        "GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\r\n folded: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx-a : 1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\n x-a: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\rx-b: 2\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx-a: 1\0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nx\ta: 1\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip\r\n\r\nabcde",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        "GET / HTTP/1.1\r\nx-a: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a/b\r\n\r\n",
        "GET http://u:p@b/ HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: host\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close, x-forwarded-for\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\nconnection: Content-Length\r\ncontent-length: 5\r\n\r\nabcde",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: authorization\r\nauthorization: x\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\nconnection: x-ratekeeper-shadow\r\n\r\n",
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: x-request-id\r\n\r\n",
        "GET  / HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET b.example HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET b.example:80 HTTP/1.1\r\nhost: b.example:80\r\n\r\n",
        "GET * HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nhost: a\r\n\r\n",
        "GET / HTTP/3.0\r\nhost: a\r\n\r\n",
    ] {
        let response = all(&proxy, request);
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{request:?}: {response:?}"
        );
        assert_eq!(
            response.matches("HTTP/1.1 ").count(),
            1,
            "{request:?}: {response:?}"
        );
        assert!(upstream.saw_nothing(), "{request:?}");
    }
}

/// RFC 9112, section 6.3: the coding decides, the length is removed, and the connection is closed.
#[test]
fn a_length_beside_a_coding_is_removed_and_the_connection_is_closed() {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    for fields in [
        "content-length: 6\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 6",
    ] {
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{fields}\r\n\r\n0\r\n\r\n");
        let response = all(&proxy, &request);
        assert_eq!(response.matches("HTTP/1.1 ").count(), 1, "{response:?}");
        let seen = upstream.seen();
        assert_eq!(
            (seen.one("content-length"), &seen.body[..]),
            (None, &b""[..])
        );
        assert!(upstream.saw_nothing(), "the rest is not a request");
    }
}

/// A request that holds a permit keeps its connection to the upstream: that is no failure of the
/// upstream either.
#[test]
fn bodies_that_break_off_are_no_requests_and_no_failures() {
    let permits =
        "[[limit]]\nname = \"work\"\nkey = [\"all\"]\nconcurrency = { max = 9, lease = \"60s\" }\n";
    for (listener, policy) in [
        ("", super::OPEN),
        ("response_timeout = \"100ms\"", permits),
        (
            "response_timeout = \"100ms\"\nadaptive_concurrency = { min = 9, max = 9 }",
            super::OPEN,
        ),
    ] {
        let upstreams = [Upstream::hello(), Upstream::hello()];
        let addresses = upstreams.each_ref().map(|it| it.address);
        let proxy = Proxy::start(&addresses, listener, policy);
        break_off(&proxy);
        for (upstream, address) in upstreams.iter().zip(1..) {
            while let Some(seen) = upstream.seen_already() {
                assert!(!seen.is_whole && !seen.start.contains("hidden"), "{seen:?}");
            }
            let up = format!("ratekeeper_upstream_up{{route=\"\",address=\"{address}\"}}");
            assert_eq!(proxy.metric(&up), 1, "{listener}");
        }
    }
}

fn break_off(proxy: &Proxy) {
    for body in [
        "zz\r\nabc\r\n",
        "3\r\nabcd\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "0x3\r\nabc\r\n0\r\n\r\n",
        "3\nabc\n0\n\n",
        "3;x\nabc\r\n0\r\n\r\n",
        "3;x\rabc\r\n0\r\n\r\n",
        "\r\n3\r\nabc\r\n0\r\n\r\n",
        "3\r\nabc0\r\n\r\n",
        "3\r\nabc\r\n0\r\nx: 1\r\n folded: 2\r\n\r\n",
        "3\r\nabc\r\n0\r\nx : 1\r\n\r\n",
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{body}");
        let response = all(proxy, &request);
        assert!(
            response.starts_with("HTTP/1.1 400 "),
            "{body:?}: {response:?}"
        );
    }
}

#[test]
fn it_is_no_forward_proxy() {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    for request in [
        "CONNECT b.example:443 HTTP/1.1\r\nhost: b.example:443\r\n\r\n",
        "TRACE / HTTP/1.1\r\nhost: b.example\r\n\r\n",
    ] {
        let response = all(&proxy, request);
        assert!(response.starts_with("HTTP/1.1 405 "), "{response:?}");
    }
    assert!(upstream.saw_nothing());
    let response = proxy
        .client()
        .ask("GET http://b.example/x HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(response.status(), 200);
    let seen = upstream.seen();
    assert_eq!(
        (&*seen.start, seen.one("host")),
        ("GET /x HTTP/1.1", Some("b.example"))
    );
    for target in [
        "http://b.example",
        "http://b.example#x",
        "http://b.example?",
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(proxy.client().ask(&request).status(), 200, "{target}");
        let path = if target.ends_with('?') { "/?" } else { "/" };
        assert_eq!(upstream.seen().start, format!("GET {path} HTTP/1.1"));
    }
}

/// The end of a body is the same for both sides, whatever stands beside its length.
#[test]
fn extensions_of_chunks_and_equal_lengths_stay_behind() {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    for (framing, body) in [
        (
            "transfer-encoding: chunked",
            "3;a=b;c=\"d\"\r\nabc\r\n0;e\r\n\r\n",
        ),
        ("Transfer-Encoding: Chunked", "003\r\nabc\r\n000\r\n\r\n"),
        ("content-length: 3\r\ncontent-length: 3", "abc"),
        ("content-length: 003", "abc"),
    ] {
        let mut client = proxy.client();
        let request = format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n{body}");
        client.send(request + "GET /next HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(client.response().status(), 200, "{framing}");
        assert_eq!(client.response().status(), 200, "{framing}");
        let seen = upstream.seen();
        assert!(seen.is_whole && seen.body == b"abc", "{framing}: {seen:?}");
        assert!(seen.all("content-length").count() <= 1, "{seen:?}");
        assert_eq!(upstream.seen().start, "GET /next HTTP/1.1");
    }
    // Extensions without end are no way to send without being counted.
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3;");
    let mut sent = 0;
    while sent < 64 << 20 {
        match std::io::Write::write(client.stream.get_mut(), &[b'x'; 4096]) {
            Ok(count) => sent += count,
            Err(_) => break,
        }
    }
    assert!(sent < 64 << 20, "the connection ends");
}
