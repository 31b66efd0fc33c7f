//! The grpc door: Envoy's rate limit service, health, reflection.
//!
//! ```text
//!   /envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit --> envoy --> Keeper
//!   /grpc.health.v1.Health/Check, List, Watch                    --> ready?
//!   /grpc.reflection.v1.ServerReflection/ServerReflectionInfo    --> descriptors
//! ```
//!
//! With `[envoy.tls]` the same over TLS, and certificates are read again when they change.
//! HTTP/2 and the frames of gRPC are in `crate::serve::grpc`.

pub(super) mod envoy;
mod health;
mod reflection;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use prost_reflect::DescriptorPool;
use ratekeeper_policy::Policy;
use ratekeeper_store::StoreError;
use ratekeeper_wire::{DESCRIPTORS, MAX_REQUEST_BYTES, WireRefusal};
use tokio::sync::watch;
use tokio_util::either::Either;

use crate::byte_budget::ByteBudget;
use crate::context::ServiceContext;
use crate::observe::metrics::{Protocol, RequestResult};
use crate::serve::grpc;
use crate::serve::grpc::{Code, GrpcCall, GrpcStatus};
use crate::serve::listener;
use crate::serve::listener::Visit;
use crate::serve::tls::ListenerTls;
use crate::serve::watched::Watched;
use crate::{Config, Door, StartError};

/// The protos of the services, for reflection and for calls in JSON.
static PROTOS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(DESCRIPTORS).expect("they are compiled from the protos")
});

/// The services of the grpc door.
#[derive(Debug)]
pub(crate) struct GrpcDoor {
    pub(crate) shared: Arc<ServiceContext>,
    pub(crate) tls: Option<Arc<ListenerTls>>,
}

/// Reads the certificates of the door, if it has any; paths are relative to the policy file.
pub(crate) fn certificates(
    config: &Config,
    policy: &Policy,
) -> Result<Option<Arc<ListenerTls>>, StartError> {
    let Some(tls) = &policy.settings.envoy.tls else {
        return Ok(None);
    };
    let tls = ListenerTls::read(Door::Grpc, &[tls.at_home(config.home())], &[b"h2"]);
    Ok(Some(Arc::new(tls.map_err(StartError::Certificates)?)))
}

impl listener::ServeConnection for GrpcDoor {
    async fn serve(self: Arc<Self>, visit: Visit) {
        let Visit {
            pulse, spans, stop, ..
        } = visit;
        let server = Arc::new(ConnectionContext {
            shared: Arc::clone(&self.shared),
            closing: stop.clone(),
            linger: spans.linger,
        });
        let stream = Watched::new(Either::Left(visit.stream), Arc::clone(&pulse));
        match &self.tls {
            None => grpc::serve(stream, pulse, server, spans, stop).await,
            Some(tls) => {
                if let Some(stream) = tls.accept(stream, &pulse).await {
                    grpc::serve(stream, pulse, server, spans, stop).await;
                }
            }
        }
    }
}

/// What the calls of one connection share.
#[derive(Debug)]
struct ConnectionContext {
    shared: Arc<ServiceContext>,
    closing: watch::Receiver<bool>,
    /// How long the door stays open after the stop.
    linger: Duration,
}

impl grpc::ServeCalls for ConnectionContext {
    const MAX_MESSAGE_BYTES: usize = MAX_REQUEST_BYTES;

    fn bodies(&self) -> &Arc<ByteBudget> {
        &self.shared.bodies
    }

    async fn serve(self: Arc<Self>, call: GrpcCall) {
        let shared = &*self.shared;
        let readiness = &shared.readiness;
        match call.path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                let serve = |message| envoy::should_rate_limit(shared, message);
                if call.unary(serve).await != Code::Ok {
                    shared.count_request(Protocol::Rls, RequestResult::Error);
                }
            }
            "/grpc.health.v1.Health/Check" => health::check(readiness, call).await,
            "/grpc.health.v1.Health/List" => health::list(readiness, call).await,
            "/grpc.health.v1.Health/Watch" => {
                health::watch(readiness, self.closing.clone(), self.linger, call).await;
            }
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                reflection::serve(call).await;
            }
            _ => call.fail(&GrpcStatus::new(Code::Unimplemented, "no such method")),
        }
    }
}

/// Shows no internal details, which are in the log. Envoy's `failure_mode_deny` decides.
fn store_down(shared: &ServiceContext) -> impl FnOnce(StoreError) -> GrpcStatus {
    |error| match error {
        StoreError::Unsupported(why) => wrong(why),
        StoreError::Foreign(why) => GrpcStatus::new(Code::FailedPrecondition, why),
        error => {
            shared.store_failed(&error);
            GrpcStatus::new(Code::Unavailable, "the store cannot answer")
        }
    }
}

/// Returns the status of a request that is not valid.
fn wrong(message: impl Into<String>) -> GrpcStatus {
    GrpcStatus::new(Code::InvalidArgument, message)
}

/// Returns the status of a message that is not read.
fn unread(refusal: &WireRefusal) -> GrpcStatus {
    let code = match refusal {
        WireRefusal::TooLarge { .. } => Code::ResourceExhausted,
        _ => Code::InvalidArgument,
    };
    GrpcStatus::new(code, refusal.to_string())
}
