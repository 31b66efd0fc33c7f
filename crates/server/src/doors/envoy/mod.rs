//! The grpc door: Envoy's rate limit service, health, reflection.
//!
//! ```text
//!   /envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit --> rls --> Keeper
//!   /grpc.health.v1.Health/Check, List, Watch                    --> ready?
//!   /grpc.reflection.v1.ServerReflection/ServerReflectionInfo    --> descriptors
//! ```
//!
//! With `[envoy.tls]` the same over TLS, and certificates are read again when they change.

mod answer;
mod configured;
mod fields;
mod health;
pub(super) mod json;
mod reflection;
mod refusal;
mod rls;

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_policy::{Policy, Tls};
use ratekeeper_wire::MAX_REQUEST_BYTES;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::health::HealthService;
use crate::body_budget::BodyBudget;
use crate::context::ServiceContext;
use crate::grpc::tls::{Certificates, Refreshed};
use crate::grpc::{self, Code, GrpcCall, GrpcStatus};
use crate::listener::Visit;
use crate::metrics::{Protocol, RequestResult};
use crate::watched::Watched;
use crate::{Config, Event, StartError, listener};

/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the certificate files are checked.
const LOOK: Duration = Duration::from_secs(5);

/// Envoy's rate limit service.
#[derive(Debug)]
pub(crate) struct RateLimitService<C> {
    shared: Arc<ServiceContext<C>>,
    certificates: Option<Arc<Certificates>>,
}

/// Reads the certificates of the door, if it has any; paths are relative to the policy file.
pub(crate) fn certificates(
    config: &Config,
    policy: &Policy,
) -> Result<Option<Certificates>, StartError> {
    let Some(tls) = &policy.settings.envoy.tls else {
        return Ok(None);
    };
    let home = config.policy.as_deref().and_then(Path::parent);
    let home = home.unwrap_or(Path::new(""));
    let tls = Tls {
        certificate: home.join(&tls.certificate),
        key: home.join(&tls.key),
        client_ca: tls.client_ca.as_ref().map(|path| home.join(path)),
    };
    let certificates = Certificates::read(&tls).map_err(StartError::Certificates)?;
    Ok(Some(certificates))
}

impl<C: Clock + 'static> RateLimitService<C> {
    pub(crate) fn new(shared: Arc<ServiceContext<C>>, certificates: Option<Certificates>) -> Self {
        Self {
            shared,
            certificates: certificates.map(Arc::new),
        }
    }

    /// Reads the certificates again whenever they change, for ever.
    pub(crate) fn keep_fresh(&self) -> impl Future<Output = ()> + Send + use<C> {
        let (shared, certificates) = (Arc::clone(&self.shared), self.certificates.clone());
        async move {
            let Some(certificates) = certificates else {
                return;
            };
            let mut tick = interval(LOOK);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tick.tick().await;
                let certificates = Arc::clone(&certificates);
                let look = tokio::task::spawn_blocking(move || certificates.refresh());
                let notice = match look.await {
                    Ok(Refreshed::Replaced) => "the grpc listener has new certificates".to_owned(),
                    Ok(Refreshed::Refused(why)) => {
                        format!("the grpc listener keeps its certificates; invalid new ones: {why}")
                    }
                    Ok(Refreshed::Unchanged) | Err(_) => continue,
                };
                shared.sink.emit(&Event::Notice(notice));
            }
        }
    }
}

impl<C: Clock + 'static> listener::ServeConnection for RateLimitService<C> {
    async fn serve(self: Arc<Self>, visit: Visit) {
        let Visit {
            pulse, spans, stop, ..
        } = visit;
        let server = Arc::new(ConnectionContext {
            health: HealthService::new(self.shared.readiness(), stop.clone(), spans.linger),
            shared: Arc::clone(&self.shared),
        });
        let stream = Watched::new(visit.stream, Arc::clone(&pulse));
        match &self.certificates {
            None => grpc::serve(stream, pulse, server, spans, stop).await,
            Some(certificates) => {
                let handshake = timeout(HANDSHAKE, certificates.acceptor().accept(stream));
                // Errors are the caller's: no TLS, no certificate we know, or too slow.
                if let Ok(Ok(stream)) = handshake.await {
                    grpc::serve(stream, pulse, server, spans, stop).await;
                }
            }
        }
    }
}

/// What the calls of one connection share.
#[derive(Debug)]
struct ConnectionContext<C> {
    shared: Arc<ServiceContext<C>>,
    health: HealthService,
}

impl<C: Clock + 'static> grpc::ServeCalls for ConnectionContext<C> {
    const MAX_MESSAGE_BYTES: usize = MAX_REQUEST_BYTES;

    fn bodies(&self) -> &Arc<BodyBudget> {
        &self.shared.bodies
    }

    async fn serve(self: Arc<Self>, call: GrpcCall) {
        match call.path() {
            "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit" => {
                let shared = &*self.shared;
                let serve = |message| rls::should_rate_limit(shared, message);
                if call.unary(serve).await != Code::Ok {
                    shared.metrics.request(Protocol::Rls, RequestResult::Error);
                }
            }
            "/grpc.health.v1.Health/Check" => self.health.clone().check(call).await,
            "/grpc.health.v1.Health/List" => self.health.clone().list(call).await,
            "/grpc.health.v1.Health/Watch" => self.health.clone().watch(call).await,
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                reflection::serve(call).await;
            }
            _ => call.fail(&GrpcStatus::new(Code::Unimplemented, "no such method")),
        }
    }
}
