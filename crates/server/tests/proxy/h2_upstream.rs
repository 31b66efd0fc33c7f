//! Upstreams that speak HTTP/2, with TLS and without: streams both ways, and how they end.

use std::future::Future;
use std::io::Read as _;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{Reason, RecvStream};
use http::{HeaderMap, Request, Response};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;
use super::upstream::Upstream;
use super::{OPEN, Proxy, eventually};

pub(crate) type Served = Pin<Box<dyn Future<Output = ()> + Send>>;
pub(crate) type Serve =
    Arc<dyn Fn(Request<RecvStream>, SendResponse<Bytes>) -> Served + Send + Sync>;

/// A server on a free port.
pub(crate) struct Http2Upstream {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    _runtime: tokio::runtime::Runtime,
}

impl Http2Upstream {
    pub(crate) fn start(tls: Option<ServerConfig>, builder: Builder, serve: Serve) -> Self {
        Self::start_after(0, tls, builder, serve)
    }

    /// The first `goes_away` connections end by a GOAWAY that covers no stream.
    fn start_after(
        goes_away: usize,
        tls: Option<ServerConfig>,
        builder: Builder,
        serve: Serve,
    ) -> Self {
        let runtime = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        let acceptor = tls.map(|tls| TlsAcceptor::from(Arc::new(tls)));
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::SeqCst);
                let (builder, serve) = (builder.clone(), Arc::clone(&serve));
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    match acceptor {
                        _ if number < goes_away => go_away(stream).await,
                        None => serve_all(stream, builder, serve).await,
                        Some(acceptor) => {
                            if let Ok(stream) = acceptor.accept(stream).await {
                                serve_all(stream, builder, serve).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            address,
            connections,
            _runtime: runtime,
        }
    }

    pub(crate) fn url(&self, scheme: &str) -> String {
        format!("{scheme}://localhost:{}", self.address.port())
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

async fn serve_all(stream: impl AsyncRead + AsyncWrite + Unpin, builder: Builder, serve: Serve) {
    let Ok(mut connection) = builder.handshake::<_, Bytes>(stream).await else {
        return;
    };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(serve(request, respond));
    }
}

/// Reads a request, and closes the connection without having processed it.
async fn go_away(mut stream: TcpStream) {
    const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    stream.write_all(&SETTINGS).await.unwrap();
    let mut read = Vec::new();
    while !read
        .windows(9)
        .any(|frame| frame[3] == 1 && frame[5..] == [0, 0, 0, 1])
    {
        assert!(
            stream.read_buf(&mut read).await.unwrap() > 0,
            "no request came"
        );
    }
    stream.write_all(&GOAWAY).await.unwrap();
    while stream.read_buf(&mut read).await.unwrap_or(0) > 0 {}
}

pub(crate) fn serve<F>(
    by: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Send + Sync + 'static,
) -> Serve
where
    F: Future<Output = ()> + Send + 'static,
{
    Arc::new(move |request, respond| Box::pin(by(request, respond)))
}

/// Returns each part of the body as it comes, and a trailer that names the request.
async fn echo(request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
    let (parts, mut body) = request.into_parts();
    let response = Response::builder().header(
        "x-te",
        parts
            .headers
            .get("te")
            .cloned()
            .unwrap_or(http::HeaderValue::from_static("-")),
    );
    let mut send = respond
        .send_response(response.body(()).unwrap(), false)
        .unwrap();
    while let Some(Ok(data)) = body.data().await {
        let _ = body.flow_control().release_capacity(data.len());
        send.send_data(data, false).unwrap();
    }
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    let uri = format!("{} {}", parts.method, parts.uri);
    trailers.insert("x-uri", uri.parse().unwrap());
    send.send_trailers(trailers).unwrap();
}

/// A client of HTTP/2 at the proxy, on a connection of its own.
async fn client(proxy: &Proxy) -> h2::client::SendRequest<Bytes> {
    let stream = TcpStream::connect(proxy.address()).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::spawn(connection);
    client.ready().await.unwrap()
}

fn request(method: &str, path: &str) -> Request<()> {
    Request::builder()
        .method(method)
        .uri(format!("http://shop.example{path}"))
        .header("te", "trailers")
        .body(())
        .unwrap()
}

/// Sends a request without a body, and returns the status of its response.
async fn status(client: &h2::client::SendRequest<Bytes>, method: &str) -> u16 {
    let mut client = client.clone().ready().await.unwrap();
    let (response, _) = client.send_request(request(method, "/"), true).unwrap();
    response.await.unwrap().status().as_u16()
}

/// Asks and answers in turn on one stream, as a call of gRPC that streams both ways does.
async fn streams_both_ways(proxy: &Proxy, authority: &str) {
    let mut client = client(proxy).await;
    let (response, mut send) = client
        .send_request(request("POST", "/chat?a=1"), false)
        .unwrap();
    let response = response.await.unwrap();
    assert_eq!(
        (response.status().as_u16(), &response.headers()["x-te"]),
        (200, &"trailers".parse().unwrap())
    );
    let mut body = response.into_body();
    for word in ["one", "two", "three"] {
        send.send_data(Bytes::from(word), false).unwrap();
        let echoed = body.data().await.unwrap().unwrap();
        assert_eq!(echoed, word);
    }
    send.send_data(Bytes::new(), true).unwrap();
    assert!(body.data().await.is_none());
    let trailers = body.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["x-uri"], format!("POST {authority}/chat?a=1"));
}

#[test]
fn streams_and_trailers_pass_both_ways() {
    let upstream = Http2Upstream::start(None, Builder::new(), serve(echo));
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
    runtime().block_on(streams_both_ways(&proxy, "http://shop.example"));
    // A client of HTTP/1.1 has the same upstream.
    let response = proxy.client().ask(
        "POST /one HTTP/1.1\r\nhost: a.example\r\nte: trailers\r\ncontent-length: 3\r\n\r\nabc",
    );
    assert_eq!((response.status(), response.text()), (200, "abc"));
}

#[test]
fn a_trailer_settles_the_cost() {
    let answer = |_, mut respond: SendResponse<Bytes>| async move {
        let mut body = respond.send_response(Response::new(()), false).unwrap();
        body.send_data(Bytes::from("a message"), false).unwrap();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-tokens", "100".parse().unwrap());
        body.send_trailers(trailers).unwrap();
    };
    let upstream = Http2Upstream::start(None, Builder::new(), serve(answer));
    let limits = "[[limit]]\nname = \"tokens\"\nkey = [\"all\"]\n\
                  bucket = { size = 1000, refill = \"1/1h\" }\n\
                  cost = { reserve = 600, settle = \"response.trailer:x-tokens\" }\n";
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", limits);
    let passed = runtime().block_on(async {
        let client = client(&proxy).await;
        let mut passed = 0;
        for _ in 0..10 {
            let mut client = client.clone().ready().await.unwrap();
            let (response, _) = client.send_request(request("POST", "/"), true).unwrap();
            let response = response.await.unwrap();
            passed += usize::from(response.status() == 200);
            let mut body = response.into_body();
            while body.data().await.is_some() {}
            body.trailers().await.unwrap();
        }
        passed
    });
    assert_eq!(passed, 5, "100 stay charged of 600: 4 x 100 + 600");
}

#[test]
fn over_tls_the_upstream_chooses_the_protocol() {
    let authority = Authority::new();
    let both = authority.server(&["h2", "http/1.1"]);
    let upstream = Http2Upstream::start(Some(both), Builder::new(), serve(echo));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
    let trust = "upstream_tls = { ca = \"ca.pem\" }\n";
    let proxy = Proxy::start_in(directory, &[upstream.url("https")], trust, OPEN);
    runtime().block_on(streams_both_ways(&proxy, "https://shop.example"));
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_upstream_that_is_not_trusted_receives_nothing() {
    let (theirs, ours) = (Authority::new(), Authority::new());
    let server = theirs.server(&["h2"]);
    let upstream = Http2Upstream::start(Some(server), Builder::new(), serve(echo));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), ours.pem()).unwrap();
    let trust = "upstream_tls = { ca = \"ca.pem\" }\n";
    let proxy = Proxy::start_in(directory, &[upstream.url("https")], trust, OPEN);
    let response = proxy.client().get("/");
    assert_eq!(response.status(), 502);
    assert!(
        response
            .text()
            .contains("the upstream cannot be reached by TLS")
    );
    assert!(
        !response.text().contains("UnknownIssuer"),
        "{}",
        response.text()
    );
    assert_eq!(
        proxy.metric("ratekeeper_upstream_errors_total{route=\"\",kind=\"tls\"}"),
        1
    );
    std::fs::write(proxy.directory.path().join("ca.pem"), theirs.pem()).unwrap();
    proxy.reload();
    assert_eq!(proxy.client().get("/").status(), 200, "by its new content");

    // The authority is right, and the certificate is for another name.
    let server = ours.server(&["h2"]);
    let upstream = Http2Upstream::start(Some(server), Builder::new(), serve(echo));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), ours.pem()).unwrap();
    let url = format!("https://{}", upstream.address);
    let proxy = Proxy::start_in(directory, std::slice::from_ref(&url), trust, OPEN);
    assert_eq!(proxy.client().get("/").status(), 502);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), ours.pem()).unwrap();
    let trust = "upstream_tls = { ca = \"ca.pem\", server_name = \"localhost\" }\n";
    let proxy = Proxy::start_in(directory, &[url], trust, OPEN);
    assert_eq!(proxy.client().get("/").status(), 200);
}

/// Answers when the test says so, and notes the largest number of streams of a connection.
fn held(gate: &Arc<Semaphore>) -> Serve {
    let gate = Arc::clone(gate);
    serve(move |_, mut respond| {
        let gate = Arc::clone(&gate);
        async move {
            gate.acquire().await.unwrap().forget();
            let _ = respond.send_response(Response::new(()), true);
        }
    })
}

#[test]
fn requests_share_connections_up_to_the_streams_that_the_upstream_allows() {
    for (allowed, requests, connections) in [(100, 40, 1), (4, 12, 3)] {
        let gate = Arc::new(Semaphore::new(1));
        let mut builder = Builder::new();
        builder.max_concurrent_streams(allowed);
        let upstream = Http2Upstream::start(None, builder, held(&gate));
        let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
        runtime().block_on(async {
            let client = client(&proxy).await;
            assert_eq!(status(&client, "GET").await, 200); // the upstream's settings are known now
            let asked: Vec<_> = (0..requests)
                .map(|_| {
                    let client = client.clone();
                    tokio::spawn(async move { status(&client, "GET").await })
                })
                .collect();
            gate.add_permits(requests);
            for asked in asked {
                assert_eq!(asked.await.unwrap(), 200);
            }
        });
        assert!(
            (1..=connections).contains(&upstream.connections()),
            "{} of {connections} connections",
            upstream.connections()
        );
    }
}

#[test]
fn requests_that_were_not_processed_are_sent_again() {
    // By a GOAWAY that does not cover them, of so many connections in a row.
    for (goes_away, answer, connections) in [(1, 200, 2), (4, 200, 5), (9, 502, 5)] {
        let upstream = Http2Upstream::start_after(goes_away, None, Builder::new(), serve(echo));
        let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
        runtime().block_on(async {
            let client = client(&proxy).await;
            assert_eq!(status(&client, "POST").await, answer);
        });
        assert_eq!(upstream.connections(), connections, "{goes_away}");
    }

    // By a stream that is refused, once.
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let refuses = serve(move |_, mut respond| {
        let number = seen.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 0 {
                respond.send_reset(Reason::REFUSED_STREAM);
            } else {
                let _ = respond.send_response(Response::new(()), true);
            }
        }
    });
    let upstream = Http2Upstream::start(None, Builder::new(), refuses);
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
    runtime().block_on(async {
        let client = client(&proxy).await;
        assert_eq!(status(&client, "POST").await, 200);
    });
    assert_eq!(
        (upstream.connections(), count.load(Ordering::SeqCst)),
        (1, 2)
    );
}

#[test]
fn a_request_that_may_have_been_processed_is_not_sent_again() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&count);
    let breaks = serve(move |_, mut respond| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move { respond.send_reset(Reason::INTERNAL_ERROR) }
    });
    let upstream = Http2Upstream::start(None, Builder::new(), breaks);
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
    runtime().block_on(async {
        let client = client(&proxy).await;
        assert_eq!(status(&client, "POST").await, 502);
    });
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[test]
fn interim_responses_are_not_the_response() {
    let hints = serve(|_, mut respond: SendResponse<Bytes>| async move {
        for _ in 0..20 {
            let hint = Response::builder().status(103).header("link", "</a.css>");
            let hint = hint.body(()).unwrap();
            respond.send_informational(hint).unwrap();
        }
        let _ = respond.send_response(Response::new(()), true);
    });
    let upstream = Http2Upstream::start(None, Builder::new(), hints);
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
    runtime().block_on(async {
        let client = client(&proxy).await;
        for _ in 0..3 {
            assert_eq!(status(&client, "GET").await, 200);
        }
    });
    let response = proxy.client().get("/");
    assert_eq!((response.status(), response.one("link")), (200, None));
}

#[test]
fn a_reset_after_the_head_reaches_the_client() {
    let was_read = Arc::new(Semaphore::new(0));
    let gate = Arc::clone(&was_read);
    let breaks = serve(move |_, mut respond: SendResponse<Bytes>| {
        let gate = Arc::clone(&gate);
        async move {
            let mut send = respond.send_response(Response::new(()), false).unwrap();
            send.send_data(Bytes::from("part"), false).unwrap();
            gate.acquire().await.unwrap().forget();
            send.send_reset(Reason::INTERNAL_ERROR);
        }
    });
    let upstream = Http2Upstream::start(None, Builder::new(), breaks);
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
    runtime().block_on(async {
        let client = client(&proxy).await;
        for _ in 0..2 {
            let mut client = client.clone().ready().await.unwrap();
            let (response, _) = client.send_request(request("GET", "/"), true).unwrap();
            let mut body = response.await.unwrap().into_body();
            assert_eq!(body.data().await.unwrap().unwrap(), "part");
            was_read.add_permits(1);
            assert!(body.data().await.unwrap().is_err());
        }
    });
    let broken = "ratekeeper_upstream_errors_total{route=\"\",kind=\"body_broken\"}";
    eventually("the failures are counted", || proxy.metric(broken) == 2);
    // The connection has other streams, so it stays.
    assert_eq!(upstream.connections(), 1);
}

/// WebSocket needs HTTP/1.1, which this upstream does not speak; other requests pass all the same.
#[test]
fn an_upgrade_leaves_no_address_out() {
    let authority = Authority::new();
    let server = authority.server(&["h2"]);
    let upstream = Http2Upstream::start(Some(server), Builder::new(), serve(echo));
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("ca.pem"), authority.pem()).unwrap();
    let trust = "upstream_tls = { ca = \"ca.pem\" }\n";
    let proxy = Proxy::start_in(directory, &[upstream.url("https")], trust, OPEN);
    let upgrade = "GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    assert_eq!(proxy.client().ask(upgrade).status(), 502);
    assert_eq!(proxy.client().get("/").status(), 200);
    // Without TLS the upgrade is not offered.
    let upstream = Http2Upstream::start(None, Builder::new(), serve(echo));
    let proxy = Proxy::start_at(&[upstream.url("h2c")], "", OPEN);
    assert_eq!(proxy.client().ask(upgrade).status(), 200);
}

/// Sends a GET of HTTP/2 with these fields, which no client library would send. Returns the first byte
/// of the head of the response; `None` if the stream or the connection is reset.
fn first_byte_of_head(proxy: &Proxy, fields: &[(&str, &str)]) -> Option<u8> {
    let get = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", "/"),
        (":authority", "shop.example"),
    ];
    let mut block = Vec::new();
    for (name, value) in get.iter().chain(fields) {
        block.push(0); // a literal that is not indexed (RFC 7541, section 6.2.2)
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0".to_vec();
    bytes.push(u8::try_from(block.len()).unwrap());
    bytes.extend_from_slice(b"\x01\x05\0\0\0\x01"); // HEADERS, the end of the request
    bytes.extend_from_slice(&block);
    let mut client = proxy.client();
    client.send(bytes);
    loop {
        let mut head = [0; 9];
        client.stream.read_exact(&mut head).unwrap();
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        let mut payload = vec![0; length];
        client.stream.read_exact(&mut payload).unwrap();
        match head[3] {
            1 => return Some(payload[0]),
            3 | 7 => return None,
            _ => {}
        }
    }
}

#[test]
fn malformed_requests_of_http2_reach_no_upstream() {
    /// The indexed fields `:status: 200` and `:status: 400` (RFC 7541, appendix A).
    const OK: Option<u8> = Some(0x88);
    const BAD_REQUEST: Option<u8> = Some(0x8c);
    let upstream = Upstream::hello();
    let proxy = Proxy::in_front_of(&upstream);
    for fields in [&[("te", "trailers")], &[("host", "shop.example")]] {
        assert_eq!(first_byte_of_head(&proxy, fields), OK, "{fields:?}");
        assert!(upstream.seen_already().is_some());
    }
    for (name, value) in [
        ("transfer-encoding", "chunked"),
        ("connection", "close"),
        ("keep-alive", "timeout=5"),
        ("te", "gzip"),
        ("upgrade", "websocket"),
        ("host", "other.example"),
        ("X-Upper", "1"),
        ("x-line", "1\r\nx-other: 2"),
        (":path", "/twice"),
        (":status", "200"),
    ] {
        let head = first_byte_of_head(&proxy, &[(name, value)]);
        assert!([None, BAD_REQUEST].contains(&head), "{name}: {head:?}");
        assert!(upstream.seen_already().is_none(), "{name}: {value}");
    }
    runtime().block_on(async {
        // The length disagrees with the body.
        for (length, body) in [("3", "abcdef"), ("9", "abc")] {
            let mut client = client(&proxy).await;
            let request = Request::post("http://shop.example/")
                .header("content-length", length)
                .body(())
                .unwrap();
            let (response, mut send) = client.send_request(request, false).unwrap();
            let _ = send.send_data(Bytes::from(body), true); // reset already
            if let Ok(response) = response.await {
                assert_ne!(response.status(), 200, "{length}: {body}");
            }
        }
    });
    while let Some(seen) = upstream.seen_already() {
        assert!(seen.start.starts_with("POST") && !seen.is_whole, "{seen:?}");
    }
}

#[test]
fn an_upstream_that_is_killed_breaks_its_streams_and_no_others() {
    let hangs = serve(|_, mut respond: SendResponse<Bytes>| async move {
        let mut send = respond.send_response(Response::new(()), false).unwrap();
        send.send_data(Bytes::from("part"), false).unwrap();
        std::future::pending::<()>().await;
    });
    let killed = Http2Upstream::start(None, Builder::new(), hangs);
    let other = Http2Upstream::start(None, Builder::new(), serve(echo));
    let urls = [killed.url("h2c"), other.url("h2c")];
    let proxy = Proxy::start_at(&urls, "", OPEN);
    runtime().block_on(async {
        let client = client(&proxy).await;
        let mut asking = client.clone().ready().await.unwrap();
        let (response, _) = asking.send_request(request("GET", "/"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        assert_eq!(body.data().await.unwrap().unwrap(), "part");
        tokio::task::spawn_blocking(move || drop(killed))
            .await
            .unwrap();
        assert!(body.data().await.unwrap().is_err());
        for _ in 0..4 {
            assert_eq!(status(&client, "GET").await, 200);
        }
    });
    let broken = "ratekeeper_upstream_errors_total{route=\"\",kind=\"body_broken\"}";
    eventually("the failure is counted", || proxy.metric(broken) == 1);
}
