//! Requests that the gateway itself answers: bodies that are too large, and the form of its errors.

use std::future::poll_fn;
use std::io::Write as _;
use std::net::TcpListener;
use std::task::Poll;

use super::message::{Message, read_response};
use super::upstream::{Next, Upstream};
use super::{OPEN, Proxy, REFUSES, eventually};

const MAX: &str = "max_body = \"1KiB\"";
/// Three requests, of which one at a time.
const LIMITS: &str = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"3/1h\"\n\
    [[limit]]\nname = \"lent\"\nkey = [\"all\"]\nconcurrency = { max = 1, lease = \"1h\" }\n";

fn chunked(size: usize) -> String {
    let part = format!("200\r\n{}\r\n", "x".repeat(512));
    let parts = part.repeat(size / 512);
    format!("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{parts}0\r\n\r\n")
}

fn faults(proxy: &Proxy, kind: &str) -> u64 {
    proxy.metric(&format!(
        "ratekeeper_request_faults_total{{kind=\"{kind}\"}}"
    ))
}

#[test]
fn a_length_above_the_maximum_is_refused_before_anything_is_charged_or_sent() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], MAX, LIMITS);
    for _ in 0..5 {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1025\r\n\r\n");
        let refusal = client.response();
        assert_eq!(refusal.status(), 413);
        assert!(refusal.text().contains("up to 1024 bytes"), "{refusal:?}");
        assert!(refusal.one("x-request-id").is_some());
    }
    assert!(upstream.saw_nothing());
    assert_eq!(faults(&proxy, "body_too_large"), 5);
    let whole = format!(
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1024\r\n\r\n{}",
        "x".repeat(1024)
    );
    for _ in 0..3 {
        assert_eq!(proxy.client().ask(&whole).status(), 200);
        assert_eq!(upstream.seen().body.len(), 1024);
    }
}

#[test]
fn a_body_that_grows_above_the_maximum_ends_and_returns_its_permit() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], MAX, LIMITS);
    assert_eq!(proxy.client().ask(&chunked(1024)).status(), 200);
    assert_eq!(upstream.seen().body.len(), 1024);
    for expected in [413, 413, 429] {
        let mut client = proxy.client();
        let mut writer = client.stream.get_ref().try_clone().unwrap();
        let writing = std::thread::spawn(move || {
            let _ = writer.write_all(chunked(4096).as_bytes()); // refused before its end
        });
        let response = read_response(&mut client.stream, "POST").unwrap();
        assert_eq!(response.status(), expected, "{response:?}");
        writing.join().unwrap();
        if expected == 413 {
            let cut = upstream.seen();
            assert!(!cut.is_whole && cut.body.len() <= 1024);
        }
    }
    assert_eq!(faults(&proxy, "body_too_large"), 2);
    assert_eq!(proxy.metric("ratekeeper_upstream_left_total"), 0);
}

#[test]
fn a_client_of_http2_may_send_the_rest_of_a_refused_body() {
    let upstream = Upstream::hello();
    let limit = "[[limit]]\nname = \"a\"\nkey = [\"header:x-a\"]\nmissing_key = \"deny\"\nlimit = \"1/1h\"\n";
    let proxy = Proxy::start(&[upstream.address], MAX, limit);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await;
        let (mut client, mut connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::spawn(connection);
        for (length, status) in [("300000", 413), ("1000", 429)] {
            let request = http::Request::post("http://a/").header("content-length", length);
            let request = request.body(()).unwrap();
            let (response, mut body) = client.send_request(request, false).unwrap();
            assert_eq!(response.await.unwrap().status(), status);
            // Frames from before the pong have arrived with it.
            pings.ping(h2::Ping::opaque()).await.unwrap();
            let rest = vec![b'x'; length.parse().unwrap()].into();
            body.send_data(rest, true).expect("not reset");
            pings.ping(h2::Ping::opaque()).await.unwrap();
            let polled = poll_fn(|context| Poll::Ready(body.poll_reset(context))).await;
            assert!(polled.is_pending(), "{polled:?}");
        }
    });
}

#[test]
fn a_route_has_its_own_maximum() {
    let upstream = Upstream::hello();
    let routes = [("large", "max_body = \"4KiB\""), ("same", "")].map(|(name, max)| {
        format!(
            "[[listen.proxy.route]]\nname = \"{name}\"\nmatch = {{ path = \"/{name}\" }}\n\
             upstream = \"http://{}\"\n{max}\n",
            upstream.address
        )
    });
    let listener = format!("{MAX}\n{}", routes.concat());
    let proxy = Proxy::start(&[upstream.address], &listener, OPEN);
    for (target, most) in [("/", 1024), ("/same", 1024), ("/large", 4096)] {
        for (size, expected) in [(most, 200), (most + 512, 413)] {
            let stated = format!(
                "POST {target} HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n{}",
                "x".repeat(size)
            );
            let streamed = chunked(size).replace("POST /", &format!("POST {target}"));
            for request in [stated, streamed] {
                let response = proxy.client().ask(&request);
                assert_eq!(response.status(), expected, "{target} {size}");
            }
        }
    }
}

#[test]
fn a_reload_changes_the_maximum() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], MAX, OPEN);
    let post = chunked(2048);
    assert_eq!(proxy.client().ask(&post).status(), 413);
    proxy.reload_with(&[upstream.address], "max_body = \"1MiB\"", OPEN);
    assert_eq!(proxy.client().ask(&post).status(), 200);
}

/// Returns the response to a request with these fields.
fn ask(proxy: &Proxy, fields: &str) -> Message {
    let mut client = proxy.client();
    client.ask(&format!(
        "GET / HTTP/1.1\r\nhost: a\r\nx-request-id: <id&1>\r\n{fields}\r\n"
    ))
}

#[test]
fn a_failure_has_the_form_that_its_client_reads() {
    // Accepts connections, by the kernel, and reads nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let resets = Upstream::new(|_| Next::Close);
    let trust = format!("[client_ip]\ntrusted_proxies = [\"127.0.0.0/8\"]\n{OPEN}");
    for (address, listener, status, grpc) in [
        (resets.address, "", 502, "14"),
        (
            silent.local_addr().unwrap(),
            "response_timeout = \"100ms\"",
            504,
            "4",
        ),
    ] {
        let proxy = Proxy::start(&[address], listener, &trust);
        let problem = ask(&proxy, "");
        assert_eq!(problem.status(), status);
        assert_eq!(
            problem.one("content-type"),
            Some("application/problem+json")
        );
        assert!(problem.text().contains("\"request_id\":\"<id&1>\""));
        let page = ask(&proxy, "accept: text/html,*/*;q=0.8\r\n");
        assert_eq!(page.status(), status);
        assert_eq!(page.one("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(page.one("x-request-id"), Some("<id&1>"));
        assert!(page.text().contains("number is &lt;id&amp;1>."), "{page:?}");
        let line = ask(&proxy, "accept: image/png\r\naccept: text/plain\r\n");
        assert_eq!(line.one("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(line.text().lines().count(), 1);
        let call = ask(&proxy, "content-type: application/grpc\r\n");
        assert_eq!((call.status(), call.one("grpc-status")), (200, Some(grpc)));
        assert!(call.one("grpc-message").is_some() && call.body.is_empty());
        assert_eq!(call.one("x-request-id"), Some("<id&1>"));
    }
}

#[test]
fn errors_of_clients_have_the_form_that_they_read_and_are_counted() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], MAX, OPEN);
    let long = format!("x-long: {}\r\n", "x".repeat(20 << 10));
    for (kind, request, expected) in [
        ("method", "TRACE / HTTP/1.1\r\nhost: a\r\n".to_owned(), 405),
        (
            "malformed",
            "GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n".to_owned(),
            400,
        ),
        (
            "body_too_large",
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n".to_owned(),
            413,
        ),
    ] {
        let mut client = proxy.client();
        client.send(format!("{request}accept: text/html\r\n\r\n"));
        let page = client.response();
        assert_eq!(page.status(), expected, "{kind}");
        assert_eq!(page.one("content-type"), Some("text/html; charset=utf-8"));
        assert!(page.one("x-request-id").is_some());
        let mut client = proxy.client();
        client.send(format!("{request}content-type: application/grpc\r\n\r\n"));
        assert!(client.response().one("grpc-status").is_some(), "{kind}");
        assert_eq!(faults(&proxy, kind), 2, "{kind}");
    }
    // These are answered before their fields are known.
    for (kind, request, expected) in [
        (
            "head_too_large",
            format!("GET / HTTP/1.1\r\n{long}\r\n"),
            431,
        ),
        (
            "malformed",
            "GET /?q=\"a\" HTTP/1.1\r\nhost: a\r\n\r\n".to_owned(),
            400,
        ),
    ] {
        let before = faults(&proxy, kind);
        assert_eq!(proxy.client().ask(&request).status(), expected, "{kind}");
        eventually(kind, || faults(&proxy, kind) == before + 1);
    }
    let errors = "ratekeeper_requests_total{protocol=\"proxy\",result=\"error\"}";
    assert_eq!(proxy.metric(errors), 8);
    assert!(upstream.saw_nothing());
}

#[test]
fn browsers_see_the_pages_of_the_policy() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("502.html"), "<h1>away</h1>").unwrap();
    let pages = "error_pages = { 502 = \"502.html\" }";
    let urls = ["http://127.0.0.1:1".to_owned()];
    let proxy = Proxy::start_in(directory, &urls, pages, OPEN);
    let page = ask(&proxy, "accept: text/html\r\n");
    assert_eq!((page.status(), page.text()), (502, "<h1>away</h1>"));
    assert!(page.one("x-request-id").is_some());
    assert!(ask(&proxy, "").text().contains("request_id"));
    // Its content is a part of the policy.
    let file = proxy.directory.path().join("502.html");
    std::fs::write(&file, "<h1>still away</h1>").unwrap();
    proxy.reload();
    let page = ask(&proxy, "accept: text/html\r\n");
    assert_eq!(page.text(), "<h1>still away</h1>");
    std::fs::remove_file(file).unwrap();
    let refused = proxy.try_reload();
    assert!(refused.text().contains("502.html"), "{}", refused.text());
}

#[test]
fn heads_are_as_large_as_the_policy_says() {
    let upstream = Upstream::hello();
    let bounds = "max_head = \"1MiB\"\nmax_head_fields = 1000";
    let proxy = Proxy::start(&[upstream.address], bounds, OPEN);
    let long = |bytes: usize| format!("x-long: {}\r\n", "x".repeat(bytes));
    let many = |fields: usize| {
        let fields: Vec<String> = (0..fields).map(|it| format!("x-{it}: 1\r\n")).collect();
        fields.concat()
    };
    for (fields, status) in [
        (long(1_000_000), 200),
        (many(990), 200),
        (long(2 << 20), 431), // hyper compares before it reads on
        (many(1001), 431),
    ] {
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{fields}\r\n");
        assert_eq!(
            proxy.client().ask(&request).status(),
            status,
            "{}",
            fields.len()
        );
    }
}

#[test]
fn a_connection_goes_on_behind_a_body_that_comes_after_its_refusal() {
    let upstream = Upstream::hello();
    let none = LIMITS.replace("3/1h", "1/1h");
    for (address, limits, size, expected) in [
        (upstream.address, OPEN, 100_000, 413),
        (upstream.address, &*none, 1_000, 429),
        (REFUSES, OPEN, 1_000, 502),
    ] {
        let proxy = Proxy::start(&[address], MAX, limits);
        let mut client = proxy.client();
        let first = client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        for _ in 0..3 {
            client.send(format!(
                "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: {size}\r\n\r\n"
            ));
            assert_eq!(client.response().status(), expected);
            client.send("x".repeat(size));
        }
        let last = client.ask("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let expected = if expected == 429 { 429 } else { first.status() };
        assert_eq!(last.status(), expected);
    }
}
