//! Clients that speak HTTP/2 without TLS.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Frame};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::upstream::Upstream;
use super::{OPEN, Proxy, REFUSES};

#[test]
fn requests_of_http2_pass_side_by_side() {
    let upstream = Upstream::with(
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: grpc-status\r\nconnection: keep-alive\r\n\r\n\
         5\r\nhello\r\n0\r\ngrpc-status: 0\r\n\r\n",
    );
    let limit = format!("{OPEN}[[limit]]\nname = \"few\"\nkey = [\"all\"]\nlimit = \"20/1h\"\n");
    let proxy = Proxy::start(&[upstream.address], "", &limit);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address())
            .await
            .unwrap();
        let handshake =
            http2::handshake::<_, _, Frames>(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        tokio::spawn(connection);
        let asked = (0..20).map(|number| {
            let mut sender = sender.clone();
            tokio::spawn(async move {
                let body = Frames(["ab", "cd"].map(Bytes::from).into());
                let request = Request::post(format!("http://shop.example/{number}"))
                    .header("cookie", "a=1")
                    .header("cookie", "b=2")
                    .header("te", "trailers")
                    .body(body)
                    .unwrap();
                let response = sender.send_request(request).await.unwrap();
                assert_eq!(response.status(), 200);
                assert!(response.headers().contains_key("ratelimit"));
                assert!(!response.headers().contains_key("connection"));
                let body = response.into_body().collect().await.unwrap();
                assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
                assert_eq!(body.to_bytes(), "hello");
            })
        });
        for asked in asked.collect::<Vec<_>>() {
            asked.await.unwrap();
        }
        let mut sender = sender.clone();
        let grpc = Request::post("http://shop.example/pkg.Service/Call")
            .header("content-type", "application/grpc")
            .body(Frames(VecDeque::new()))
            .unwrap();
        let refused = sender.send_request(grpc).await.unwrap();
        assert_eq!(
            (
                refused.status().as_u16(),
                &refused.headers()["grpc-status"].to_str().unwrap()
            ),
            (200, &"8")
        );
        let host = Request::get("http://shop.example/").header("host", "other.example");
        let host = sender
            .send_request(host.body(Frames(VecDeque::new())).unwrap())
            .await
            .unwrap();
        assert_eq!(host.status(), 400);
    });
    for _ in 0..20 {
        let seen = upstream.seen();
        assert_eq!(
            (&seen.body[..], seen.one("cookie")),
            (&b"abcd"[..], Some("a=1; b=2"))
        );
        assert_eq!(
            (seen.one("host"), seen.one("via")),
            (Some("shop.example"), Some("2.0 ratekeeper"))
        );
    }
    assert!(upstream.saw_nothing());
}

#[test]
fn a_response_of_status_204_has_no_length() {
    let upstream = Upstream::with("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n");
    let proxy = Proxy::start(&[upstream.address], "", OPEN);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(proxy.address()).await;
        let (mut client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get("http://a/").body(()).unwrap();
        let (response, _) = client.send_request(request, true).unwrap();
        let response = response.await.unwrap();
        let length = response.headers().get("content-length");
        assert_eq!((response.status().as_u16(), length), (204, None));
    });
}

#[test]
fn a_refusal_and_an_error_have_no_content_for_head() {
    let policy = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"1/1h\"\n";
    let upstream = Upstream::with("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (address, expected) in [(upstream.address, [200, 429]), (REFUSES, [502, 502])] {
        let proxy = Proxy::start(&[address], "", policy);
        runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(proxy.address()).await;
            let (mut client, connection) = h2::client::handshake(stream.unwrap()).await.unwrap();
            tokio::spawn(connection);
            for status in expected {
                let request = Request::head("http://a/").body(()).unwrap();
                let (response, _) = client.send_request(request, true).unwrap();
                let mut response = response.await.unwrap();
                assert_eq!(response.status(), status);
                let length = response.headers()["content-length"].to_str().unwrap();
                assert!(length.parse::<u32>().unwrap() > 0, "that of a GET");
                assert!(response.body_mut().data().await.is_none());
            }
        });
    }
}

/// A body of these frames.
struct Frames(VecDeque<Bytes>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}
