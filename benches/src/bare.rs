//! Bare: a minimal rate limit service on tonic, which decides nothing.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::net::TcpListener;
use std::pin::Pin;
use std::task::{Context, Poll};

use ratekeeper_wire::rate_limit_response::rate_limit::Unit;
use ratekeeper_wire::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use ratekeeper_wire::{RateLimitRequest, RateLimitResponse};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic_prost::ProstCodec;

#[derive(Clone)]
struct Bare;

impl NamedService for Bare {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<http::Request<Body>> for Bare {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(async move {
            let codec = ProstCodec::<RateLimitResponse, RateLimitRequest>::default();
            Ok(Grpc::new(codec).unary(Constant, request).await)
        })
    }
}

struct Constant;

impl UnaryService<RateLimitRequest> for Constant {
    type Response = RateLimitResponse;
    type Future = Ready<Result<tonic::Response<RateLimitResponse>, tonic::Status>>;

    fn call(&mut self, _: tonic::Request<RateLimitRequest>) -> Self::Future {
        ready(Ok(tonic::Response::new(RateLimitResponse {
            overall_code: Code::Ok.into(),
            statuses: vec![DescriptorStatus {
                code: Code::Ok.into(),
                current_limit: Some(RateLimit {
                    name: "per-user".into(),
                    requests_per_unit: 4_000_000_000,
                    unit: Unit::Second.into(),
                    unit_multiplier: None,
                }),
                limit_remaining: 3_999_999_999,
                duration_until_reset: Some(prost_types::Duration {
                    seconds: 1,
                    nanos: 0,
                }),
                quota: None,
            }],
            ..RateLimitResponse::default()
        })))
    }
}

/// Serves on a thread for each core; returns the port.
pub(crate) fn serve() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket of ours");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener);
            let incoming = TcpIncoming::from(listener.expect("a bound socket"));
            let incoming = incoming.with_nodelay(Some(true)); // as the service does
            let served = Server::builder()
                .add_service(Bare)
                .serve_with_incoming(incoming);
            let _ = served.await; // it ends with the process
        });
    });
    port
}
