//! tonic: the layer on a gRPC server, and what tonic's own client makes of its refusals.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::core::Permits;
use ratekeeper::tower::{Gate, RateLimitLayer};
use ratekeeper::{Clock, Limiter};
use tokio::net::TcpListener;
use tonic::Code;
use tonic::transport::server::{TcpConnectInfo, TcpIncoming};
use tonic::transport::{Channel, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use super::client::until;

pub(crate) async fn serve<G: Gate>(layer: RateLimitLayer<G>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder().layer(layer).add_service(health);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
    address
}

pub(crate) async fn client(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(endpoint.connect().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exactly_the_bound_is_admitted_and_the_rest_receive_a_wait() {
    let text = "version = 1\n[[limit]]\nname = \"per-ip\"\nkey = [\"ip\"]\nlimit = \"100/24h\"\n\
                algorithm = \"token-bucket\"\nmissing_key = \"deny\"\n";
    let layer = RateLimitLayer::policy_text(text)
        .unwrap()
        .peer_from(TcpConnectInfo::remote_addr);
    let address = serve(layer).await;
    let tasks: Vec<_> = (0..40)
        .map(|_| {
            tokio::spawn(async move {
                let mut client = client(address).await;
                let mut answers = Vec::new();
                for _ in 0..10 {
                    answers.push(client.check(HealthCheckRequest::default()).await);
                }
                answers
            })
        })
        .collect();
    let mut passed = 0;
    for task in tasks {
        for answer in task.await.unwrap() {
            let Err(status) = answer else {
                passed += 1;
                let passing = answer.unwrap();
                let policy = passing.metadata().get("ratelimit-policy").unwrap();
                assert_eq!(policy, "\"per-ip\";q=100;w=86400");
                continue;
            };
            assert_eq!(status.code(), Code::ResourceExhausted);
            let message = status.message();
            let expected = "Limit per-ip allows 100/24h. Try again in ";
            assert!(message.starts_with(expected), "{message}");
            let wait = status
                .get_details_retry_info()
                .unwrap()
                .retry_delay
                .unwrap();
            let least = Duration::from_secs(800); // 864 s between two permits
            assert!(
                (least..Duration::from_secs(865)).contains(&wait),
                "{wait:?}"
            );
            let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0); // rounded up
            let header = status.metadata().get("retry-after").unwrap();
            assert_eq!(header.to_str().unwrap(), whole.to_string());
            let left = status.metadata().get("ratelimit").unwrap();
            assert_eq!(left.to_str().unwrap(), format!("\"per-ip\";r=0;t={whole}"));
        }
    }
    assert_eq!(passed, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_hold_permits_until_they_end_or_their_client_disconnects() {
    let policy = "version = 1\n[[limit]]\nname = \"streams\"\nkey = [\"all\"]\n\
                  concurrency = { max = 5, lease = \"1h\" }\n";
    let policy = RateLimitLayer::policy_text(policy).unwrap();
    let keeper = Arc::clone(policy.keeper());
    let lent = move || {
        let limit = &keeper.policy().rules[0].limit;
        keeper.store().loans(limit, keeper.clock().now()).in_use
    };
    let count = RateLimitLayer::in_flight(Permits::new(5));
    let counted = count.clone();
    let counted = move || counted.at_work();
    hold(serve(policy).await, lent).await;
    hold(serve(count).await, counted).await;
}

async fn hold(address: SocketAddr, at_work: impl Fn() -> u64) {
    let request = HealthCheckRequest::default;
    for whole_connection in [false, true] {
        let mut client = client(address).await;
        let mut streams = Vec::new();
        for _ in 0..5 {
            let mut stream = client.watch(request()).await.unwrap().into_inner();
            assert!(stream.message().await.unwrap().is_some());
            streams.push(stream);
        }
        assert_eq!(at_work(), 5);
        let refused = client.watch(request()).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let details = refused.get_details_retry_info();
        assert!(details.is_some(), "{refused:?}");
        if whole_connection {
            drop(client);
        } else {
            drop(streams.pop()); // RST_STREAM
            until("the permit of the stream is returned", || at_work() == 4).await;
            let again = client.check(request()).await.unwrap();
            drop(again);
        }
        drop(streams);
        until("the permits are returned", || at_work() == 0).await;
    }
}

#[tokio::test]
async fn calls_may_wait_in_the_queue() {
    let limiter = Limiter::per("1/20ms").unwrap();
    let layer = RateLimitLayer::new(limiter).queue(ratekeeper::core::Nanos::SECOND);
    let mut client = client(serve(layer).await).await;
    for _ in 0..5 {
        client.check(HealthCheckRequest::default()).await.unwrap();
    }
}
