//! actix-web: the layer as a middleware, in a server with two workers.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{ServerHandle, Service as _};
use actix_web::{App, HttpMessage as _, HttpResponse, HttpServer, web};
use bytes::Bytes;
use http::HeaderName;
use ratekeeper::policy::{ClientIp, network};
use ratekeeper::tower::{
    ForActix, Gate, KeySource, Peer, RateLimitLayer, by_address, by_extension, by_header, by_path,
};
use ratekeeper::{KeyedLimiter, Limiter};

use super::client::{Answer, Client, until};
use super::load::load;

/// A running server; stopped when dropped.
struct Actix {
    address: SocketAddr,
    server: ServerHandle,
}

impl Drop for Actix {
    fn drop(&mut self) {
        drop(self.server.stop(false));
    }
}

/// The user of a request, found by an outer middleware in place of a token.
#[derive(Clone)]
struct Claims {
    subject: String,
}

/// A body that begins at once, and never ends.
#[derive(Default)]
struct Endless {
    sent: bool,
}

impl MessageBody for Endless {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        if self.sent {
            return Poll::Pending;
        }
        self.sent = true;
        Poll::Ready(Some(Ok(Bytes::from_static(b"some"))))
    }
}

fn serve<G: Gate>(limit: ForActix<G>) -> Actix {
    let app = move || {
        App::new()
            .wrap(limit.clone())
            .wrap_fn(|request, service| {
                if let Some(token) = request.headers().get("x-token") {
                    let subject = token.to_str().unwrap().to_owned();
                    request.extensions_mut().insert(Claims { subject });
                }
                service.call(request)
            })
            .route("/", web::get().to(async || "hello"))
            .route(
                "/{name}",
                web::get().to(async |name: web::Path<String>| name.into_inner()),
            )
            .route("/status/401", web::get().to(HttpResponse::Unauthorized))
            .route(
                "/slow/stream",
                web::get().to(async || HttpResponse::Ok().body(Endless::default())),
            )
            .route(
                "/up/grade",
                web::get().to(async || {
                    let mut answer = HttpResponse::SwitchingProtocols();
                    answer.upgrade("websocket").body(Endless::default())
                }),
            )
    };
    let server = HttpServer::new(app).workers(2).disable_signals();
    let server = server.bind("127.0.0.1:0").unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    thread::spawn(|| actix_web::rt::System::new().block_on(server));
    let server = handle;
    Actix { address, server }
}

fn keyed<K: KeySource>(source: K) -> RateLimitLayer<ratekeeper::tower::Keyed<K>> {
    let limiter = KeyedLimiter::per("2/24h").unwrap();
    RateLimitLayer::keyed(limiter, source).named("api")
}

async fn ask(client: &mut Client, path: &str, more: &str) -> Answer {
    client.send(path, more).await;
    client.answer().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_have_the_fields_and_bodies_of_the_layer() {
    let server = serve(keyed(by_address::<Peer>()).for_actix());
    let mut client = Client::connect(server.address).await;
    for left in ["r=1", "r=0"] {
        let answer = client.get("/").await;
        assert_eq!((answer.status, &*answer.body), (200, "hello"));
        assert_eq!(answer.header("content-type"), "text/plain; charset=utf-8");
        assert_eq!(answer.header("ratelimit-policy"), "\"api\";q=2;w=86400");
        assert!(answer.header("ratelimit").contains(left));
    }
    let refused = client.get("/").await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("content-type"), "application/problem+json");
    assert_eq!(refused.header("retry-after"), "43200");
    let problem: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["violated-policies"][0], "api");
}

/// Address behind trusted proxies, header, claim and path: each finds the key that tells two
/// clients apart, and one client again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_ready_source_finds_its_key() {
    async fn check<K: KeySource>(source: K, ann: (&str, &str), bob: (&str, &str)) {
        let limit = keyed(source).for_actix().with_extension::<Claims>();
        let server = serve(limit);
        let mut client = Client::connect(server.address).await;
        for ((path, fields), expected) in [
            (ann, 200),
            (ann, 200),
            (ann, 429),
            (bob, 200),
            (bob, 200),
            (bob, 429),
        ] {
            let answer = ask(&mut client, path, fields).await;
            assert_eq!(answer.status, expected, "{path} {fields}");
        }
    }
    let behind = ClientIp {
        trusted_proxies: vec![network("127.0.0.0/8").unwrap()],
        ..ClientIp::default()
    };
    check(
        by_address::<Peer>().behind(behind),
        ("/", "x-forwarded-for: 203.0.113.9\r\n"),
        ("/", "x-forwarded-for: 203.0.113.10\r\n"),
    )
    .await;
    let header = by_header(HeaderName::from_static("x-api-key"));
    let (ann, bob) = ("x-api-key: ann\r\n", "x-api-key: bob\r\n");
    check(header, ("/", ann), ("/", bob)).await;
    let claim = by_extension(|claims: &Claims| &*claims.subject);
    check(claim, ("/", "x-token: ann\r\n"), ("/", "x-token: bob\r\n")).await;
    check(by_path(), ("/ann", ""), ("/bob?x=1", "")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_without_its_key_is_refused() {
    let header = by_header(HeaderName::from_static("x-api-key"));
    let claim = by_extension(|claims: &Claims| &*claims.subject);
    let (by_header, by_claim) = (keyed(header), keyed(claim));
    let servers = [
        (serve(by_header.for_actix()), 400),
        (serve(by_claim.for_actix()), 500), // the extension is there, but not shown to the limit
    ];
    for (server, expected) in servers {
        let mut client = Client::connect(server.address).await;
        let answer = ask(&mut client, "/", "x-token: ann\r\n").await;
        assert_eq!(answer.status, expected);
        let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(problem["status"], expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_held_until_the_body_ends_or_its_client_is_gone() {
    let layer = RateLimitLayer::in_flight(1);
    let server = serve(layer.for_actix());
    let mut first = Client::connect(server.address).await;
    first.send("/slow/stream", "").await;
    assert_eq!(first.head().await.status, 200);
    first.some().await;
    assert_eq!(layer.at_work(), 1);
    let mut second = Client::connect(server.address).await;
    assert_eq!(second.get("/").await.status, 429);
    first.reset();
    until("the place is free again", || layer.at_work() == 0).await;
    assert_eq!(second.get("/").await.status, 200);
    until("the place is free again", || layer.at_work() == 0).await;
}

/// In actix-web the body of the response is the connection from then on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_ends_its_request() {
    let layer = RateLimitLayer::in_flight(1);
    let server = serve(layer.for_actix());
    let mut socket = Client::connect(server.address).await;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\n";
    socket.send("/up/grade", upgrade).await;
    assert_eq!(socket.head().await.status, 101);
    assert_eq!(layer.at_work(), 0);
    let mut other = Client::connect(server.address).await;
    assert_eq!(other.get("/").await.status, 200);
    socket.some().await;
}

/// The workers share one limit, and a queue lets their requests wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_share_one_limit() {
    let layer = RateLimitLayer::new(Limiter::per("50/24h").unwrap());
    let server = serve(layer.for_actix());
    let answers = load(server.address, 8, 20).await;
    let passed = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((answers.len(), passed), (160, 50));
    let queue = RateLimitLayer::new(Limiter::per("1/50ms").unwrap());
    let queue = queue.queue(std::time::Duration::from_secs(10));
    let server = serve(queue.for_actix());
    let answers = load(server.address, 4, 2).await;
    assert!(answers.iter().all(|answer| answer.status == 200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_the_service_corrects_its_charge() {
    let policy = "version = 1\n[[limit]]\nname = \"failures\"\nkey = [\"ip\"]\n\
                  bucket = { size = 2, refill = \"2/24h\" }\ncount = { status = 401 }\n";
    let layer = RateLimitLayer::policy_text(policy).unwrap();
    let server = serve(layer.for_actix());
    let mut client = Client::connect(server.address).await;
    let paths = ["/", "/status/401", "/", "/", "/status/401", "/"];
    for (path, expected) in paths.into_iter().zip([200, 401, 200, 200, 401, 429]) {
        assert_eq!(client.get(path).await.status, expected, "{path}");
    }
}
