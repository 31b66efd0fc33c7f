//! Addresses: where the servers leave them, and what happens if a server leaves none.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use ratekeeper::KeyedLimiter;
use ratekeeper::tower::{ByAddress, Gate, Keyed, RateLimitLayer, by_address, by_address_from};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;
use tonic::transport::server::TcpConnectInfo;
use tonic_health::pb::HealthCheckRequest;
use tower_layer::Layer;

use super::axum_server::serve;
use super::client::Client;
use super::grpc;
use super::hyper_server::{Connected, Hello};

const POLICY: &str = "version = 1\n[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\n\
                      bucket = { size = 2, refill = \"2/24h\" }\n";

type PerAddress = RateLimitLayer<Keyed<ByAddress>>;

fn keyed(source: ByAddress) -> PerAddress {
    RateLimitLayer::keyed(KeyedLimiter::per("2/24h").unwrap(), source).named("per-ip")
}

/// An axum server whose author forgot `into_make_service_with_connect_info`.
async fn serve_without_addresses(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

#[tokio::test]
async fn a_router_without_addresses_refuses_all_requests_and_says_why() {
    async fn check<G: Gate>(layer: RateLimitLayer<G>) {
        let router = || Router::new().route("/", get(async || "hello"));
        let limited = router().layer(layer.clone());
        let mut client = Client::connect(serve_without_addresses(limited).await).await;
        for _ in 0..3 {
            let answer = client.get("/").await;
            assert_eq!(answer.status, 500);
            assert_eq!(answer.header("content-type"), "application/problem+json");
            assert_eq!(answer.header("retry-after"), "");
            let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(problem["status"], 500);
            let detail = problem["detail"].as_str().unwrap();
            let edit = "`into_make_service_with_connect_info::<SocketAddr>()`";
            for part in ["Limit per-ip ", "ConnectInfo<", edit] {
                assert!(detail.contains(part), "{part}: {detail}");
            }
        }
        assert_eq!(layer.counts().refused, 3);
        let mut client = Client::connect(serve(router().layer(layer)).await).await;
        for expected in [200, 200, 429] {
            assert_eq!(
                client.get("/").await.status,
                expected,
                "no request was charged"
            );
        }
    }
    check(keyed(by_address::<ConnectInfo<SocketAddr>>())).await;
    let policy = RateLimitLayer::policy_text(POLICY).unwrap();
    check(policy.peer_in::<ConnectInfo<SocketAddr>>()).await;
}

#[tokio::test]
async fn tonic_finds_addresses_by_its_own_type() {
    async fn check<G: Gate>(layer: RateLimitLayer<G>, expected: [Code; 3]) {
        let mut client = grpc::client(grpc::serve(layer).await).await;
        for expected in expected {
            let answer = client.check(HealthCheckRequest::default()).await;
            assert_eq!(
                answer.map_or_else(|status| status.code(), |_| Code::Ok),
                expected
            );
        }
    }
    let limited = [Code::Ok, Code::Ok, Code::ResourceExhausted];
    check(keyed(by_address_from(TcpConnectInfo::remote_addr)), limited).await;
    let policy = || RateLimitLayer::policy_text(POLICY).unwrap();
    check(policy().peer_from(TcpConnectInfo::remote_addr), limited).await;
    check(policy(), [Code::Internal; 3]).await; // tonic adds no `Peer`
}

async fn connect<G: Gate>(layer: &RateLimitLayer<G>) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = Client::connect(listener.local_addr().unwrap()).await;
    let (stream, peer): (TcpStream, _) = listener.accept().await.unwrap();
    let service = TowerToHyperService::new(Connected {
        peer,
        inner: layer.layer(Hello),
    });
    tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    client
}

#[tokio::test]
async fn hyper_may_leave_a_plain_address() {
    async fn check<G: Gate>(layer: RateLimitLayer<G>) {
        for expected in [200, 200, 429] {
            let mut client = connect(&layer).await;
            assert_eq!(client.get("/").await.status, expected);
        }
    }
    check(keyed(by_address_from(|peer: &SocketAddr| Some(*peer)))).await;
    check(RateLimitLayer::policy_text(POLICY).unwrap()).await;
}
