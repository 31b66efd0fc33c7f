//! Bounds: requests that are too large or too many are refused, and cost no memory.

use std::io::Write;

use ratekeeper_server::Door;

use super::Fixture;
use super::client::Talk;
use super::reviewed::assert_reviewed;

const POLICY: &str = r#"
version = 1
[[limit]]
name   = "all"
key    = ["all"]
bucket = { size = 1000, refill = "1/1h" }
"#;

#[test]
fn bodies_have_a_bound() {
    let fixture = Fixture::new(POLICY);
    let largest = |max: usize| format!("{{}}{}", " ".repeat(max - 2));
    for (target, max) in [
        ("/v1/check", 64 << 10),
        ("/v1/peek", 64 << 10),
        ("/v1/reset", 64 << 10),
        ("/v1/check/batch", 1 << 20),
    ] {
        let answer = fixture.http().post(target, &largest(max));
        assert!(
            matches!(answer.status, 200 | 400),
            "{target}: {}",
            answer.status
        );
        let answer = fixture
            .http()
            .ask(&format!("POST {target}\ncontent-length: {}", max + 1), b"");
        assert_eq!(answer.status, 413, "{target}, announced");
    }
    let mut talk = Talk::default();
    talk.ask(
        &mut fixture.http(),
        "POST /v1/check\ncontent-length: 65537",
        "",
    );
    assert_reviewed!(talk.text());
}

#[test]
fn bodies_in_chunks_have_the_same_bound() {
    let fixture = Fixture::new(POLICY);
    let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
    for (chunks, status) in [(15, 200), (16, 413)] {
        let mut http = fixture.http();
        http.send("POST /v1/check\ntransfer-encoding: chunked", b"");
        let stream = http.stream.get_mut();
        for _ in 0..chunks {
            stream.write_all(chunk.as_bytes()).unwrap();
        }
        stream.write_all(b"2\r\n{}\r\n0\r\n\r\n").unwrap();
        assert_eq!(http.answer(false).status, status, "{chunks} chunks");
    }
}

#[test]
fn heads_have_a_bound() {
    let fixture = Fixture::new(POLICY);
    let header = format!("x-filler: {}", "x".repeat(20_000));
    let answer = fixture.http().ask(&format!("GET /v1/auth\n{header}"), b"");
    assert_eq!(answer.status, 431);
    let headers = "x-filler: x\n".repeat(101);
    let answer = fixture.http().ask(&format!("GET /v1/auth\n{headers}"), b"");
    assert_eq!(answer.status, 431);
    let headers = "x-filler: x\n".repeat(90);
    let answer = fixture.http().ask(&format!("GET /v1/auth\n{headers}"), b"");
    assert_eq!(answer.status, 200);
}

#[test]
fn a_client_that_sends_no_more_is_answered() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    http.send("POST /v1/check", b"{}");
    let write = std::net::Shutdown::Write;
    http.stream.get_ref().shutdown(write).unwrap();
    assert_eq!(http.answer(false).status, 200);
    assert!(http.is_closed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let fixture = Fixture::new(POLICY);
    let mut http = fixture.http();
    for _ in 0..50 {
        http.send("POST /v1/check", b"{}");
        http.send("GET /nothing", b"");
    }
    for _ in 0..50 {
        assert_eq!(http.answer(false).status, 200);
        assert_eq!(http.answer(false).status, 404);
    }
}

/// Takes as long as the bounds it shows: 10 s each, all at the same time.
#[test]
fn clients_that_are_too_slow_are_disconnected() {
    let fixture = Fixture::new(POLICY);
    let (mut silent, mut dripping, mut slow) = (fixture.http(), fixture.http(), fixture.http());
    assert_eq!(dripping.post("/v1/check", "{}").status, 200);
    dripping.stream.get_mut().write_all(b"GET /v1/au").unwrap();
    slow.send("POST /v1/check\ncontent-length: 2", b"{");
    assert!(silent.is_closed(), "the client never sent a request");
    assert!(dripping.is_closed(), "the head of the request never ended");
    let answer = slow.answer(false);
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (408, Some("RK0506"))
    );
}

#[test]
fn http2_works_without_tls() {
    use http_body_util::{BodyExt, Full};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let fixture = Fixture::new(POLICY);
    let address = fixture.service.address(Door::Http).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let talk = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let ask = |path: &str| {
            let mut sender = sender.clone();
            let request = hyper::Request::post(format!("http://ratekeeper{path}"));
            let request = request.body(Full::new(bytes::Bytes::from("{}"))).unwrap();
            tokio::spawn(async move {
                let answer = sender.send_request(request).await.unwrap();
                let status = answer.status().as_u16();
                let body = answer.into_body().collect().await.unwrap().to_bytes();
                (status, body)
            })
        };
        // More than may be in flight at once: the rest waits its turn.
        let asked: Vec<_> = (0..300).map(|_| ask("/v1/check")).collect();
        for asked in asked {
            assert_eq!(asked.await.unwrap().0, 200);
        }
        let (status, body) = ask("/v1/auth/login").await.unwrap();
        assert_eq!((status, body.len()), (200, 0));
        assert_eq!(ask("/nothing").await.unwrap().0, 404);
    };
    runtime.block_on(talk);
}
