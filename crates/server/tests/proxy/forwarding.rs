//! Requests and responses pass, with the fields of a proxy.

use std::io::Write as _;
use std::sync::atomic::Ordering;

use super::upstream::{Next, Upstream};
use super::{Client, OPEN, Proxy};

#[test]
fn a_request_arrives_with_the_fields_of_a_proxy() {
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    let response = proxy.client().ask(
        "POST /a%20b?c=d&e HTTP/1.1\r\nHost: shop.example:8080\r\nX-Forwarded-For: 10.0.0.1\r\n\
         X-Debug: 1\r\nConnection: keep-alive, x-debug\r\nKeep-Alive: 5\r\nX-Ratekeeper-Shadow: x\r\n\
         X-Ratekeeper-Decision: forged\r\nX-Request-Id: mine\r\nAccept: a\r\nAccept: b\r\nContent-Length: 3\r\n\r\nabc",
    );
    assert_eq!((response.status(), response.text()), (200, "hello"));
    assert!(response.one("ratelimit").is_some(), "{response:?}");
    let seen = upstream.seen();
    assert_eq!(seen.start, "POST /a%20b?c=d&e HTTP/1.1");
    assert_eq!(seen.body, b"abc");
    assert_eq!(seen.all("accept").collect::<Vec<_>>(), ["a", "b"]);
    for (name, value) in [
        ("host", Some("shop.example:8080")),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-host", Some("shop.example:8080")),
        ("x-forwarded-proto", Some("http")),
        (
            "forwarded",
            Some("for=127.0.0.1;host=\"shop.example:8080\";proto=http"),
        ),
        ("via", Some("1.1 ratekeeper")),
        ("content-length", Some("3")),
        ("connection", None),
        ("keep-alive", None),
        ("x-debug", None),
        ("x-ratekeeper-shadow", None),
        ("x-ratekeeper-decision", None),
    ] {
        assert_eq!(seen.one(name), value, "{name}");
    }
    assert_ne!(
        seen.one("x-request-id"),
        Some("mine"),
        "it is not a trusted proxy"
    );
}

#[test]
fn fields_about_the_client_come_from_trusted_proxies_only() {
    let upstream = Upstream::hello();
    let policy = format!(
        "[client_ip]\ntrusted_proxies = [\"192.0.2.9\"]\nheader = \"cf-connecting-ip\"\n{OPEN}"
    );
    let proxy = Proxy::start(&[upstream.address], "", &policy);
    proxy.client().ask(
        "POST / HTTP/1.1\r\nhost: a\r\nx_forwarded_for: 10.0.0.1\r\nx-forwarded-prefix: /x\r\n\
         X_Ratekeeper-Shadow: x\r\nCF-Connecting-IP: 10.0.0.1\r\ncf_connecting_ip: 10.0.0.1\r\n\
         transfer-encoding: chunked\r\nx-kept: 1\r\n\
         trailer: x-forwarded-for, cf-connecting-ip, x_ratekeeper_shadow, connection, x-sum\r\n\r\n\
         0\r\nx-forwarded-for: 10.0.0.1\r\ncf-connecting-ip: 10.0.0.1\r\nx_ratekeeper_shadow: x\r\n\
         connection: close\r\nx-sum: 1\r\n\r\n",
    );
    let seen = upstream.seen();
    for (name, value) in [
        ("x_forwarded_for", None),
        ("x-forwarded-for", Some("127.0.0.1")),
        ("x-forwarded-prefix", None),
        ("x_ratekeeper-shadow", None),
        ("cf-connecting-ip", None),
        ("cf_connecting_ip", None),
        ("x-kept", Some("1")),
    ] {
        assert_eq!(seen.one(name), value, "{name}");
    }
    assert_eq!(seen.trailers, [("x-sum".to_owned(), "1".to_owned())]);
}

#[test]
fn a_trusted_proxy_is_believed() {
    let upstream = Upstream::hello();
    let trusting = format!("[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n{OPEN}");
    let proxy = Proxy::start(&[upstream.address], "", &trusting);
    proxy.client().ask(
        "GET / HTTP/1.1\r\nhost: a\r\nx-forwarded-for: 192.0.2.1\r\nx-forwarded-proto: https\r\n\
         x-forwarded-host: outer\r\nforwarded: for=192.0.2.1;host=outer\r\nvia: 1.0 cdn\r\n\
         x-request-id: mine\r\nx-ratekeeper-shadow: forged\r\n\r\n",
    );
    let seen = upstream.seen();
    for (name, value) in [
        ("x-forwarded-host", Some("outer")),
        (
            "forwarded",
            Some("for=192.0.2.1;host=outer, for=127.0.0.1;host=\"a\";proto=http"),
        ),
        ("via", Some("1.0 cdn, 1.1 ratekeeper")),
        ("x-ratekeeper-shadow", None),
    ] {
        assert_eq!(seen.one(name), value, "{name}");
    }
    assert_eq!(seen.one("x-forwarded-for"), Some("192.0.2.1, 127.0.0.1"));
    assert_eq!(seen.one("x-forwarded-proto"), Some("https"));
    assert_eq!(seen.one("x-request-id"), Some("mine"));
}

#[test]
fn an_id_that_is_no_name_is_replaced() {
    let upstream = Upstream::hello();
    let trusting = format!("[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n{OPEN}");
    let proxy = Proxy::start(&[upstream.address], "", &trusting);
    for id in [String::new(), "a b".into(), "x".repeat(129)] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\nx-request-id: {id}\r\n\r\n");
        proxy.client().ask(&request);
        let seen = upstream.seen();
        let made = seen.one("x-request-id").unwrap();
        assert!(made.len() == 28 && made != id, "{made}");
    }
}

#[test]
fn fields_of_the_connection_of_an_upstream_stay_behind() {
    let upstream = Upstream::with(
        "HTTP/1.1 200 OK\r\nconnection: keep-alive, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\n\
         proxy-connection: keep-alive\r\nproxy-authenticate: Basic\r\nupgrade: h2c\r\nte: trailers\r\n\
         x-end: 1\r\ncontent-length: 5\r\n\r\nhello",
    );
    let proxy = Proxy::in_front_of(&upstream);
    let response = proxy.client().get("/");
    assert_eq!((response.status(), response.text()), (200, "hello"));
    assert_eq!(response.one("x-end"), Some("1"));
    for name in [
        "connection",
        "x-hop",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "upgrade",
        "te",
        "transfer-encoding",
        "via",
    ] {
        assert_eq!(response.one(name), None, "{name}");
    }
}

#[test]
fn responses_without_a_body_have_none() {
    let upstream = Upstream::new(|visit| {
        let status = visit.request.start.split(['/', ' ']).nth(2).unwrap();
        let fields = match status {
            "204" => "",
            _ => "content-length: 7\r\n",
        };
        let head = format!("HTTP/1.1 {status} X\r\netag: \"e\"\r\n{fields}\r\n");
        visit.stream.write_all(head.as_bytes()).unwrap();
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    for _ in 0..3 {
        let response = client.ask("HEAD /200 HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(
            (response.status(), response.one("content-length")),
            (200, Some("7"))
        );
        let response = client.get("/204");
        assert_eq!(
            (response.status(), response.one("content-length")),
            (204, None)
        );
        let response = client.get("/304");
        assert_eq!(
            (response.status(), response.one("etag")),
            (304, Some("\"e\""))
        );
    }
    assert_eq!(upstream.connections.load(Ordering::SeqCst), 1, "kept");
}

#[test]
fn trailers_pass_both_ways() {
    let upstream = Upstream::with(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n\
         3\r\nabc\r\n0\r\nx-sum: 6\r\n\r\n",
    );
    let proxy = Proxy::in_front_of(&upstream);
    let response = proxy.client().ask(
        "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: x-end\r\nte: trailers\r\n\
         connection: te\r\n\r\n2\r\nhi\r\n0\r\nx-end: 1\r\n\r\n",
    );
    let pair = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    assert_eq!(
        (&response.body[..], &response.trailers),
        (&b"abc"[..], &pair("x-sum", "6"))
    );
    let seen = upstream.seen();
    assert_eq!(
        (&seen.body[..], &seen.trailers),
        (&b"hi"[..], &pair("x-end", "1"))
    );
    assert_eq!(seen.one("te"), Some("trailers"));
}

#[test]
fn a_body_is_asked_for_when_the_request_passes() {
    let upstream = Upstream::hello();
    let policy = "[[limit]]\nname = \"one\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n";
    let proxy = Proxy::start(&[upstream.address], "", policy);
    let head = "POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    let mut client = proxy.client();
    client.send(head);
    let mut line = String::new();
    std::io::BufRead::read_line(&mut client.stream, &mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 100 Continue\r\n");
    std::io::BufRead::read_line(&mut client.stream, &mut line).unwrap();
    client.send("hi");
    assert_eq!(client.response().status(), 200);
    let seen = upstream.seen();
    assert_eq!((&seen.body[..], seen.one("expect")), (&b"hi"[..], None));
    let mut client = proxy.client();
    client.send(head);
    line.clear();
    std::io::BufRead::read_line(&mut client.stream, &mut line).unwrap();
    assert_eq!(line, "HTTP/1.1 429 Too Many Requests\r\n");
    assert!(upstream.saw_nothing());
}

#[test]
fn a_body_larger_than_every_buffer_passes() {
    let body = vec![b'x'; 8 << 20];
    let mut response = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
    response.push_str(std::str::from_utf8(&body).unwrap());
    let upstream = Upstream::with(response);
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = Client::new(proxy.address());
    let head = format!(
        "PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    client.send(head);
    client.send(&body);
    let response = client.response();
    assert!(response.is_whole && response.body == body);
    assert!(upstream.seen().body == body);
}

#[test]
fn clients_of_http10_are_served() {
    let upstream = Upstream::with(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let proxy = Proxy::in_front_of(&upstream);
    let response = proxy.client().ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(
        (response.text(), response.one("transfer-encoding")),
        ("abc", None)
    );
    let own = upstream.address.to_string();
    assert_eq!(upstream.seen().one("host"), Some(&*own));
}

#[test]
fn a_response_has_one_length_or_is_refused() {
    for (lengths, expected) in [
        ("2, 2", 200),
        ("2\r\ncontent-length: 2", 200),
        ("2\r\ncontent-length: 3", 502),
        ("+2", 502),
        ("2 2", 502),
        ("", 502),
    ] {
        let upstream = Upstream::new(move |visit| {
            let is_head = visit.request.start.starts_with("HEAD");
            let body = if is_head { "" } else { "ok" };
            let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {lengths}\r\n\r\n{body}");
            visit.stream.write_all(response.as_bytes()).unwrap();
            Next::Request
        });
        let proxy = Proxy::in_front_of(&upstream);
        for method in ["GET", "HEAD"] {
            let response = proxy
                .client()
                .ask(&format!("{method} / HTTP/1.1\r\nhost: a\r\n\r\n"));
            assert_eq!(response.status(), expected, "{method} {lengths:?}");
            if expected == 200 {
                assert_eq!(response.one("content-length"), Some("2"), "{method}");
            }
        }
    }
}

#[test]
fn a_length_beside_a_coding_of_the_upstream_is_removed() {
    let upstream = Upstream::with(
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    );
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    for _ in 0..2 {
        let response = client.get("/");
        assert_eq!(
            (response.text(), response.one("content-length")),
            ("abc", None)
        );
    }
}
