//! Responses that an upstream sends before its response, such as `103 Early Hints`.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::message::{Message, read_any_response};
use super::upstream::{Next, Upstream};
use super::{Client, OPEN, Proxy, sleep};

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

fn hint(path: &str) -> String {
    format!("HTTP/1.1 103 Early Hints\r\nlink: <{path}>; rel=preload\r\n\r\n")
}

/// Returns the next response, which may be an interim one.
fn next(client: &mut Client) -> Message {
    read_any_response(&mut client.stream, "GET").expect("no response")
}

#[test]
fn a_hint_reaches_the_client_before_the_response_exists() {
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let upstream = Upstream::new(move |visit| {
        let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\nlink: </b.js>\r\n\
            connection: x-hop\r\nx-hop: 1\r\nkeep-alive: 5\r\ncontent-length: 9\r\n\r\n";
        visit.stream.write_all(hint.as_bytes()).unwrap();
        goes.lock().unwrap().recv().unwrap();
        visit.stream.write_all(HELLO.as_bytes()).unwrap();
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    for _ in 0..3 {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
        let hint = next(&mut client);
        assert_eq!(hint.start, "HTTP/1.1 103 Early Hints");
        let links = ["</a.css>; rel=preload", "</b.js>"].map(|link| ("link".into(), link.into()));
        assert_eq!(hint.fields, links);
        go.send(()).unwrap();
        let response = next(&mut client);
        assert_eq!((response.status(), response.text()), (200, "hello"));
        assert_eq!(response.one("link"), None);
    }
    let kept = upstream.connections.load(Ordering::SeqCst);
    assert_eq!(kept, 1, "the connection is kept");
}

/// Also those that come in one packet with the response.
#[test]
fn all_but_100_and_101_pass_on() {
    let codes = [100, 102, 103, 104, 110, 199];
    let all = codes.map(|code| format!("HTTP/1.1 {code} X\r\nx-code: {code}\r\n\r\n"));
    let upstream = Upstream::with(all.concat() + HELLO);
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    for request in [
        "GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi",
    ] {
        client.send(request);
        for code in &codes[1..] {
            let interim = next(&mut client);
            assert_eq!(interim.status(), *code);
            assert_eq!(interim.one("x-code"), Some(&*code.to_string()));
        }
        assert_eq!(next(&mut client).text(), "hello");
    }
}

/// Each response, in parts, follows the hints for its request, whatever the packets are.
#[test]
fn hints_for_pipelined_requests_never_stand_inside_other_messages() {
    const REQUESTS: usize = 300;
    let hints = |number: usize| number % 4;
    let upstream = Upstream::new(move |visit| {
        let path = visit.request.start.split(' ').nth(1).unwrap().to_owned();
        let number: usize = path[1..].parse().unwrap();
        let bytes = format!(
            "{}HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n\
             {:x}\r\n{path}\r\n5\r\n-----\r\n0\r\n\r\n",
            hint(&path).repeat(hints(number)),
            path.len()
        );
        // All at once, in parts of some bytes, or a hint alone.
        let size = [usize::MAX, 7, hint(&path).len()][number % 3];
        for part in bytes.as_bytes().chunks(size.min(bytes.len())) {
            visit.stream.write_all(part).unwrap();
            if size != 7 && number.is_multiple_of(5) {
                sleep(Duration::from_millis(1));
            }
        }
        Next::Request
    });
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    let all = (0..REQUESTS).map(|number| format!("GET /{number} HTTP/1.1\r\nhost: a\r\n\r\n"));
    let all: String = all.collect();
    let mut writer = client.stream.get_ref().try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(all.as_bytes()).unwrap());
    for number in 0..REQUESTS {
        for _ in 0..hints(number) {
            let hint = next(&mut client);
            assert_eq!(hint.status(), 103, "{number}");
            let link = format!("</{number}>; rel=preload");
            assert_eq!(hint.one("link"), Some(&*link));
        }
        let response = next(&mut client);
        assert!(response.is_whole && response.status() == 200, "{number}");
        assert_eq!(response.text(), format!("/{number}-----"));
    }
    writing.join().unwrap();
}

#[test]
fn clients_of_older_and_newer_versions_have_the_response_alone() {
    let upstream = Upstream::with(hint("/a") + HELLO);
    let proxy = Proxy::in_front_of(&upstream);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    let mut bytes = String::new();
    client.stream.read_to_string(&mut bytes).unwrap();
    assert!(bytes.starts_with("HTTP/1.0 200 OK\r\n"), "{bytes}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await;
        let (client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request = http::Request::get("http://a.example/").body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(!response.headers().contains_key("link"));
    });
}

#[test]
fn a_hint_beside_100_continue_is_whole() {
    // Sends hints when it has the head, and then reads the body, which the gateway asks for.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let hints = hint("/a").repeat(20);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut seen = Vec::new();
            let mut byte = [0];
            while !seen.ends_with(b"\r\n\r\nhi") {
                stream.read_exact(&mut byte).unwrap();
                seen.push(byte[0]);
                if seen.ends_with(b"\r\n\r\n") {
                    stream.write_all(hints.as_bytes()).unwrap();
                }
            }
            stream.write_all(HELLO.as_bytes()).unwrap();
        }
    });
    let proxy = Proxy::start(&[address], "", OPEN);
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n");
    let mut statuses = Vec::new();
    while !statuses.contains(&100) {
        statuses.push(next(&mut client).status());
    }
    client.send("hi");
    while !statuses.contains(&200) {
        statuses.push(next(&mut client).status());
    }
    assert_eq!(statuses.len(), 1 + 20 + 1, "{statuses:?}");
    statuses.retain(|status| *status != 103);
    assert_eq!(statuses, [100, 200]);
}

#[test]
fn hints_without_end_are_no_response_and_wait_within_a_bound() {
    let upstream = Upstream::new(|visit| {
        while visit.stream.write_all(hint("/a").as_bytes()).is_ok() {}
        Next::Close
    });
    let short = "response_timeout = \"200ms\"";
    let proxy = Proxy::start(&[upstream.address], short, OPEN);
    assert_eq!(proxy.client().get("/").status(), 504);
    // A client that reads nothing meanwhile has whole messages, and then the response.
    let mut slow = proxy.client();
    slow.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    sleep(Duration::from_secs(1));
    assert_eq!(slow.response().status(), 504);
    assert_eq!(slow.get("/").status(), 504, "the connection is kept");
}

#[test]
fn a_request_with_hints_is_not_sent_again() {
    let begins = |text: &'static str| {
        Upstream::new(move |visit| {
            visit.stream.write_all(text.as_bytes()).unwrap();
            Next::Close
        })
    };
    for text in [
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconte",
        "H",
    ] {
        let (broken, up) = (begins(text), Upstream::hello());
        let proxy = Proxy::start(&[broken.address, up.address], "", OPEN);
        let mut client = proxy.client();
        let statuses = [(); 2].map(|()| client.get("/").status());
        assert_eq!(statuses, [502, 200], "{text:?}");
        drop(up.seen());
        assert!(up.saw_nothing(), "the first request was not sent to it");
    }
}

#[test]
fn a_late_hint_is_not_for_the_next_request() {
    let (go, goes) = channel::<()>();
    let goes = Mutex::new(goes);
    let upstream = Upstream::new(move |mut visit| {
        if visit.request.start.contains("/late") {
            goes.lock().unwrap().recv().unwrap();
            let _ = visit.stream.write_all(hint("/late").as_bytes());
            return Next::Close;
        }
        go.send(()).unwrap();
        visit.until_closed();
        Next::Close
    });
    let short = "response_timeout = \"200ms\"";
    let proxy = Proxy::start(&[upstream.address], short, OPEN);
    let mut client = proxy.client();
    client.send("GET /late HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(next(&mut client).status(), 504);
    client.send("GET /next HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(next(&mut client).status(), 504);
}
