//! Connections that switch to another protocol.

use std::io::{Read as _, Write as _};

use super::upstream::{Next, Upstream};
use super::{OPEN, Proxy, eventually};

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nhost: a\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
    sec-websocket-key: x\r\nsec-websocket-version: 13\r\n\r\n";

/// Answers an upgrade, and then returns each byte.
fn echo() -> Upstream {
    Upstream::new(|visit| {
        let Some(protocol) = visit.request.one("upgrade") else {
            let response = b"HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n";
            visit.stream.write_all(response).unwrap();
            return Next::Request;
        };
        let response = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
             upgrade: {protocol}\r\nsec-websocket-accept: y\r\n\r\n"
        );
        visit.stream.write_all(response.as_bytes()).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = visit.stream.read(&mut buffer) {
            let _ = visit.stream.write_all(&buffer[..read]);
        }
        Next::Close
    })
}

#[test]
fn bytes_pass_both_ways_after_an_upgrade() {
    let upstream = echo();
    let policy =
        "[[limit]]\nname = \"open\"\nkey = [\"all\"]\nconcurrency = { max = 1, lease = \"1h\" }\n";
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let mut client = proxy.client();
    client.send(UPGRADE);
    let response = client.response();
    assert_eq!(
        (response.status(), response.one("sec-websocket-accept")),
        (101, Some("y"))
    );
    assert_eq!(response.one("upgrade"), Some("websocket"));
    for text in ["hello", &"x".repeat(100_000)] {
        client.send(text);
        let mut echoed = vec![0; text.len()];
        client.stream.read_exact(&mut echoed).unwrap();
        assert!(echoed == text.as_bytes());
    }
    assert_eq!(
        proxy.client().get("/").status(),
        429,
        "the connection holds its permit"
    );
    drop(client);
    eventually("the permit came back", || {
        proxy.client().get("/").status() == 426
    });
}

#[test]
fn bytes_sent_with_the_upgrade_are_not_lost() {
    let upstream = echo();
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    client.send(format!("{UPGRADE}early"));
    assert_eq!(client.response().status(), 101);
    let mut echoed = [0; 5];
    client.stream.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"early");
}

#[test]
fn an_upgrade_that_the_upstream_refuses_leaves_the_connection_as_it_is() {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send(UPGRADE);
        assert_eq!(client.response().status(), 200);
        assert_eq!(client.get("/").status(), 200);
    }
}

#[test]
fn other_protocols_are_not_offered() {
    let upstream = echo();
    let proxy = Proxy::in_front_of(&upstream);
    let response = proxy.client().ask(
        "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: x\r\n\r\n",
    );
    assert_eq!(response.status(), 426);
    let seen = upstream.seen();
    assert_eq!(
        (seen.one("upgrade"), seen.one("http2-settings")),
        (None, None)
    );
}

#[test]
fn the_policy_names_the_protocols_that_pass() {
    let upstream = echo();
    let offer = |protocols: &str| {
        format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: {protocols}\r\n\r\n")
    };
    let proxy = Proxy::start(
        &[upstream.address],
        "upgrades = [\"Echo/1\", \"tcp\"]",
        OPEN,
    );
    for (offered, passes) in [
        ("echo/1", Some("Echo/1")),
        ("websocket, TCP, echo/1", Some("tcp")),
        ("websocket", None),
        ("echo", None),
        ("h2c", None),
    ] {
        let mut client = proxy.client();
        let response = client.ask(&offer(offered));
        assert_eq!(upstream.seen().one("upgrade"), passes, "{offered}");
        assert_eq!(response.one("upgrade"), passes, "{offered}");
        if passes.is_some() {
            assert_eq!(response.status(), 101);
            client.send("hello");
            let mut echoed = [0; 5];
            client.stream.read_exact(&mut echoed).unwrap();
            assert_eq!(&echoed, b"hello");
        } else {
            assert_eq!(response.status(), 426);
        }
    }
    // An upstream that switches to something else than it was asked for is at fault.
    let other = Upstream::with("HTTP/1.1 101 X\r\nupgrade: tcp\r\nconnection: upgrade\r\n\r\n");
    let proxy = Proxy::start(&[other.address], "upgrades = [\"Echo/1\", \"tcp\"]", OPEN);
    assert_eq!(proxy.client().ask(&offer("echo/1")).status(), 502);
}

#[test]
fn a_silent_connection_is_closed() {
    let upstream = echo();
    let proxy = Proxy::start(&[upstream.address], "upgrade_timeout = \"1s\"", OPEN);
    let mut client = proxy.client();
    client.send(UPGRADE);
    assert_eq!(client.response().status(), 101);
    assert_eq!(client.stream.read(&mut [0]).unwrap(), 0);
}
