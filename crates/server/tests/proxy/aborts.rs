//! Clients that leave at each byte of an exchange: nothing that a request held stays behind.
//!
//! ```text
//!   request   |P|O|S|T| |/| .. |h|i|      closed after each byte, by an end or by a reset
//!   response  |H|T|T|P|/|1| .. |d|
//! ```

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use socket2::SockRef;

use super::upstream::{Next, Upstream};
use super::{Client, Proxy, eventually};

/// A queue of one place a millisecond, a body that a limit reads, and permits.
const LIMITS: &str = "[[limit]]\nname = \"work\"\nkey = [\"all\"]\n\
    concurrency = { max = 1000, lease = \"1h\" }\n\
    [[limit]]\nname = \"user\"\nkey = [\"form:user\"]\nmissing_key = \"skip\"\nlimit = \"1000000/1h\"\n\
    [[limit]]\nname = \"queue\"\nkey = [\"all\"]\nlimit = \"1000/1s\"\nalgorithm = \"leaky-bucket\"\n\
    queue = { max = 1000, max_wait = \"10s\" }\n";
const REQUEST: &str = "POST / HTTP/1.1\r\nhost: a\r\ncontent-type: application/x-www-form-urlencoded\r\n\
    content-length: 8\r\n\r\nuser=ann";

/// How a client ends its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// Its last byte is acknowledged.
    Close,
    /// It is gone at once.
    Reset,
}

fn leave(client: Client, end: End) {
    let stream: TcpStream = client.stream.into_inner();
    if end == End::Reset {
        let socket = SockRef::from(&stream);
        socket.set_linger(Some(std::time::Duration::ZERO)).unwrap();
    }
}

/// Streams that a client resets, while its connection stays.
#[test]
fn streams_that_are_reset_at_each_state_hold_nothing() {
    let upstream = Upstream::new(|visit| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
        if !visit.request.start.contains("/hang") {
            let _ = visit.stream.write_all(head.as_bytes());
        }
        if !visit.request.start.contains("/whole") {
            super::sleep(super::PATIENCE); // its stream is reset long before
        }
        let _ = visit.stream.write_all(b"world");
        Next::Request
    });
    let longest = "response_timeout = \"2s\"";
    let proxy = Proxy::start(&[upstream.address], longest, LIMITS);
    let request = |path: &str| {
        let request = http::Request::post(format!("http://a{path}"));
        let form = "application/x-www-form-urlencoded";
        request.header("content-type", form).body(()).unwrap()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let connection = runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await;
        let (client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..10 {
            for (path, body, ends) in [
                ("/whole", "", false),         // before its body
                ("/whole", "user=a", false),   // in the middle of it
                ("/hang", "user=ann", true),   // before the response
                ("/middle", "user=ann", true), // in the middle of that
            ] {
                let mut client = client.clone().ready().await.unwrap();
                let (response, mut send) = client.send_request(request(path), false).unwrap();
                send.send_data(body.into(), ends).unwrap();
                let mut received = None;
                match path {
                    "/hang" => drop(upstream.seen()),
                    "/middle" => {
                        let mut body = response.await.unwrap().into_body();
                        assert_eq!(body.data().await.unwrap().unwrap(), "hello");
                        received = Some(body);
                    }
                    _ => tokio::task::yield_now().await,
                }
                send.send_reset(h2::Reason::CANCEL);
                drop(received);
            }
        }
        client
    });
    nothing_is_held(&proxy);
    drop(connection);
}

/// Everything that requests take is free again.
fn nothing_is_held(proxy: &Proxy) {
    for name in [
        "ratekeeper_concurrency_in_use{limit=\"work\"}",
        "ratekeeper_held_body_bytes",
        "ratekeeper_held_answers",
    ] {
        eventually(name, || proxy.metric(name) == 0);
    }
    let request = REQUEST.replace("POST / ", "POST /whole ");
    assert_eq!(proxy.client().ask(&request).status(), 200);
}

#[test]
fn clients_that_leave_at_each_byte_of_a_request_hold_nothing() {
    let upstream = Upstream::hello();
    let proxy = Proxy::start(&[upstream.address], "", LIMITS);
    for end in [End::Close, End::Reset] {
        for sent in 0..=REQUEST.len() {
            let mut client = proxy.client();
            client.send(&REQUEST[..sent]);
            leave(client, end);
        }
    }
    nothing_is_held(&proxy);
}

#[test]
fn clients_that_leave_at_each_byte_of_a_response_hold_nothing() {
    const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
        5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let upstream = Upstream::new(|visit| {
        for byte in RESPONSE {
            if visit.stream.write_all(&[*byte]).is_err() {
                return Next::Close; // the gateway left
            }
        }
        Next::Request
    });
    let proxy = Proxy::start(&[upstream.address], "", LIMITS);
    for end in [End::Close, End::Reset] {
        for most in 0.. {
            let mut client = proxy.client();
            client.send(REQUEST);
            // Responses differ in length, by the numbers of `RateLimit`.
            let mut bytes = Vec::new();
            while bytes.len() < most && !bytes.ends_with(b"\r\n0\r\n\r\n") {
                let mut byte = [0];
                client.stream.read_exact(&mut byte).unwrap();
                bytes.push(byte[0]);
            }
            leave(client, end);
            if bytes.len() < most {
                break;
            }
        }
    }
    nothing_is_held(&proxy);
}
