//! Both sides: a client that keeps a pace and heeds refusals, against a server that limits.
//!
//! ```text
//!   Resilient < RateLimited < hyper's client >> -- loopback --> RateLimited < axum >
//!   retries     the client's pace, each attempt                 refuses: Retry-After
//! ```

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratekeeper::Limiter;
use ratekeeper::core::Nanos;
use ratekeeper::tower::RateLimitLayer;
use ratekeeper_resilience::tower::ResilienceLayer;
use tokio::net::TcpListener;
use tower_layer::Layer;
use tower_service::Service;

#[tokio::test]
async fn a_paced_client_that_is_refused_retries_after_the_stated_wait() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let limited = RateLimitLayer::new(Limiter::per("1/800ms").unwrap());
    let router = Router::new().route("/", get(async || "hello"));
    let router = router.layer(limited.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });

    let pace = RateLimitLayer::new(Limiter::per("1/20ms").unwrap()).queue(Nanos::SECOND);
    let http = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let mut client = ResilienceLayer::default().layer(pace.layer(http));
    for _ in 0..2 {
        let request = Request::get(&url).body(Full::default()).unwrap();
        let answer = client.call(request).await.unwrap();
        assert_eq!(answer.status(), 200);
        let body = answer.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "hello");
    }
    let (server, attempts) = (limited.counts(), pace.counts());
    assert_eq!((server.passed, server.refused), (2, 1));
    assert_eq!((attempts.passed, attempts.refused), (3, 0));
}
