//! Proxy: limits the requests of clients, and forwards those that pass.
//!
//! ```text
//!   request --> well-formed? --> body, if a limit counts by it: at most 64 KiB are read
//!                                  |
//!                                limits --refused--> problem, HTML, text or gRPC
//!                                  |
//!                                  '--> held back by a queue --> upstream of its route
//!                                                                   | head: reported, RateLimit
//!   permits come back <-- end of the body, however it ends <--------'  body: costs that it states
//! ```
//!
//! A preflight of a browser (CORS) from an origin in `cors` has a limit of its own
//! (`preflight.rs`).

mod access_log;
mod body;
mod errors;
mod inspect;
mod kept;
mod listener;
mod preflight;
mod refusal;
mod upstreams;

use std::sync::Arc;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::Either;
use ratekeeper::tower::{ByPolicy, Decided, MAX_INSPECTED_BODY, RequestGuard};
use ratekeeper::{Answer, KeyedLimiter, Report};
use ratekeeper_gateway::{
    ClientScheme, ForwardRequest, Forwarded, GatewayClient, RequestIds, Trust, Tunnel,
    X_REQUEST_ID, examine,
};
use ratekeeper_policy::{ProxySettings, Settings};
use ratekeeper_store::AnyStore;

use self::access_log::{AccessLine, AccessLog};
use self::body::{ForwardedBody, ProxyBody, logged};
use self::kept::Forwarding;
pub(crate) use self::listener::ProxyListener;
use self::listener::ProxyPlace;
use self::upstreams::Upstreams;
use super::hold;
use super::{put_fields, put_shadow};
use crate::StartError;
use crate::admin::readiness;
use crate::capacity::Capacity;
use crate::clock::ServiceClock;
use crate::context::{CLIENT_FIELDS, ServiceContext, is_private};
use crate::observe::denial_log::{LoggedRequest, REQUEST_ID};
use crate::observe::metrics::Protocol;
use crate::serve::connection_state::HeadBounds;
use crate::serve::listener::{Asked, Caller, Reply};
use crate::serve::pulse::InFlight;

/// The usual field of the client's address, which the gateway knows.
static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const READY_PATH: &str = "/.well-known/ratekeeper/ready"; // for balancers; meets no limit

/// The decision about a request, and what it holds; nothing for a preflight.
type Admitted = (Option<Box<Answer>>, Option<RequestGuard>);

/// The proxy listener with the settings of a policy.
#[derive(Debug)]
pub(crate) struct ProxyDoor {
    shared: Arc<ServiceContext>,
    settings: ProxySettings,
    limits: ByPolicy<AnyStore, ServiceClock>,
    upstreams: Upstreams,
    ids: Arc<RequestIds>,
    scheme: ClientScheme,
    /// Preflights by address.
    preflights: Arc<KeyedLimiter>,
    max_inspected_body: usize,
    access: Option<Arc<AccessLog>>,
}

impl ProxyDoor {
    /// Creates the listener; it connects when the first request comes. It keeps the counts of the
    /// one `before`, and its upstreams with the same settings.
    fn of(
        shared: &Arc<ServiceContext>,
        settings: ProxySettings,
        policy: &Settings,
        place: &ProxyPlace,
        before: Option<&Self>,
    ) -> Result<Self, StartError> {
        let (clock, home) = (shared.keeper.clock(), &place.home);
        let max_connections = Capacity::of(policy, settings.addresses().count()).to_each;
        let kept = before.map(|before| &before.upstreams);
        let upstreams = Upstreams::of(&settings, max_connections, home, kept, clock)?;
        let kept = before.and_then(|before| before.access.as_ref());
        let dropped = &shared.observers.metrics.process.access_lines_dropped;
        let access = AccessLog::of(&settings, home, kept, dropped)?;
        let same = |before: &&Self| before.settings.preflight_limit == settings.preflight_limit;
        let preflights = match before.filter(same) {
            Some(same) => Arc::clone(&same.preflights),
            None => Arc::new(preflight::limiter(settings.preflight_limit)),
        };
        let limits = match before {
            Some(before) => before.limits.clone(),
            None => ByPolicy::new(Arc::clone(&shared.keeper)),
        };
        let max_inspected_body = settings.max_inspected_body.unwrap_or(MAX_INSPECTED_BODY);
        let limits = limits.with_routes(upstreams.names());
        let scheme = match (before, &*settings.tls) {
            (Some(before), _) => before.scheme,
            (None, []) => ClientScheme::Http,
            (None, _) => ClientScheme::Https,
        };
        Ok(Self {
            shared: Arc::clone(shared),
            limits: limits.with_max_inspected_response(max_inspected_body),
            upstreams,
            ids: before
                .map(|before| Arc::clone(&before.ids))
                .unwrap_or_default(),
            scheme,
            preflights,
            max_inspected_body,
            access,
            settings,
        })
    }

    /// Shows its upstreams to operators; called when its requests begin.
    fn show(&self) {
        self.upstreams.take_place();
        let process = &self.shared.observers.metrics.process;
        process.upstreams.install(self.upstreams.named());
        let access = self.access.as_ref();
        *process.access_log.lock() = access.map(|log| log.writer.clone());
    }

    async fn handle(&self, asked: Asked<'_>) -> Response<ProxyBody> {
        if asked.head.uri.path() == READY_PATH {
            return readiness(&self.shared.readiness).map(Either::Left);
        }
        let mut line = self.line(asked.caller, asked.head);
        let response = self.serve(asked, &mut line).await;
        match line {
            Some(line) => logged(response, line),
            None => response,
        }
    }

    async fn serve(
        &self,
        asked: Asked<'_>,
        line: &mut Option<Box<AccessLine>>,
    ) -> Response<ProxyBody> {
        let (caller, parts) = (asked.caller, asked.head);
        let in_flight = InFlight::begin(caller.pulse);
        if let Err(malformed) = examine(parts) {
            let id = self.ids.next();
            if let Some(line) = line {
                line.id(&id);
            }
            return self.closing(&malformed, parts, id);
        }
        self.remove_lookalikes(&mut parts.headers);
        let client = self.client(caller, &parts.headers);
        let id = client.request_id(&parts.headers);
        let id = id.unwrap_or_else(|| self.ids.next());
        if let Some(line) = line {
            line.id(&id);
        }
        let body = match self.inspect(caller, parts, asked.body).await {
            Ok(body) => body,
            Err(problem) => return self.problem(*problem, &parts.headers, id),
        };
        let admitted = if body.is_none() && self.is_preflight(parts) {
            Box::pin(self.admit_preflight(caller, parts, &id)).await
        } else {
            self.admit(caller, parts, &id, line.as_mut()).await
        };
        let (answer, guard) = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => return *refusal,
        };
        if guard.as_ref().is_some_and(RequestGuard::reads_response) {
            let plain = HeaderValue::from_static("identity");
            parts.headers.insert(header::ACCEPT_ENCODING, plain);
        }
        let kept = refusal::kept_fields(&parts.headers);
        let upstream = self.upstreams.of_request(parts, answer.as_deref());
        let left_percent =
            upstream.left_percent(|first| self.limits.has_priority(first, &*parts, caller.address));
        let mut request = ForwardRequest::new(parts, client, id.clone());
        request.body = body;
        request.left_percent = left_percent;
        if let Some(line) = line {
            line.sends(&upstream.gateway, &request.progress);
        }
        let forwarding = Forwarding {
            gateway: Arc::clone(&upstream.gateway),
            version: parts.version,
            request,
            answer: answer.as_deref(),
            guard,
        };
        let (forwarded, guard) = forwarding.send(caller, &self.shared).await;
        if let Some(line) = line {
            line.upstream();
        }
        let reported = |guard: Option<RequestGuard>, (status, fields): (StatusCode, &HeaderMap)| {
            guard.map(|mut guard| {
                let report = Report::default().status(status.as_u16());
                let unsettled = guard.report_response(report, fields);
                self.shared.observers.metrics.process.unsettled(unsettled);
                guard
            })
        };
        match forwarded {
            Ok(Forwarded::Response(response)) => {
                let guard = reported(guard, (response.status(), response.headers()));
                let process = Arc::clone(&self.shared.observers.metrics.process);
                let held = self.shared.responses.hold();
                let mut response = response.map(|body| {
                    let guard = guard.map(|guard| (guard, held));
                    let body = ForwardedBody::new(body, guard, in_flight, process);
                    Either::Right(Box::new(body))
                });
                if let Some(answer) = answer {
                    put_fields(response.headers_mut(), &answer);
                    put_shadow(response.headers_mut(), &answer);
                }
                response
            }
            Ok(Forwarded::Upgraded(response, tunnel)) => {
                let mut line = line.take();
                if let Some(line) = &mut line {
                    line.status(response.status());
                }
                let mut guard = reported(guard, (response.status(), response.headers()));
                if let Some(guard) = &mut guard {
                    let process = &self.shared.observers.metrics.process;
                    process.unsettled(guard.give_up_response()); // there is no body
                }
                set_tunnel(caller, tunnel, guard, in_flight, line);
                response.map(|()| Either::Left(Reply::default()))
            }
            Err(error) => {
                drop(guard); // of a request that was sent, the charges stay
                self.failed(&error, &kept.into_iter().collect(), id)
            }
        }
    }

    /// Removes fields that the application may take for those that limits read.
    fn remove_lookalikes(&self, headers: &mut HeaderMap) {
        let policy = self.shared.keeper.look_at_policy();
        let names = headers
            .keys()
            .filter(|name| policy.has_lookalike(name.as_str()));
        let names: Vec<HeaderName> = names.cloned().collect(); // hardly any request has one
        for name in names {
            headers.remove(name);
        }
    }

    /// Asks the limits about a request, and waits in their queues. A refusal is an error.
    async fn admit(
        &self,
        caller: Caller<'_>,
        parts: &Parts,
        id: &HeaderValue,
        line: Option<&mut Box<AccessLine>>,
    ) -> Result<Admitted, Box<Response<ProxyBody>>> {
        let Decided { mut answer, guard } = self.limits.decide(parts, caller.address).await;
        let headers = [(REQUEST_ID, id.as_bytes())];
        let request = LoggedRequest {
            method: parts.method.as_str(),
            path: parts.uri.path(),
            headers: &headers,
        };
        hold::hold_back(&self.shared, caller, Protocol::Proxy, request, &mut answer).await;
        if answer.allowed() {
            return Ok((Some(answer), Some(guard)));
        }
        self.shared
            .refused_unnamed(caller.address.ip(), &parts.headers);
        if let Some(line) = line {
            let how = answer.policy().settings.reveal_keys;
            line.refused(&answer, self.shared.key_reveal(how));
        }
        Err(Box::new(self.refusal(&answer, parts, id)))
    }

    fn client(&self, caller: Caller<'_>, headers: &HeaderMap) -> GatewayClient {
        let peer = caller.address.ip().to_canonical();
        let policy = self.shared.keeper.look_at_policy();
        let trusts = policy.client_ip.trusts(peer);
        let trust = if trusts { Trust::Proxy } else { Trust::Nothing };
        let field = &*policy.client_ip.header;
        let may_be_proxy = !trusts && is_private(peer);
        // Names are compared, because each look-up of one would be hashed.
        let mut named = [field].into_iter().chain(CLIENT_FIELDS);
        let is_sent = |name: &&str| headers.keys().any(|sent| sent.as_str() == *name);
        let sent = may_be_proxy.then(|| named.find(is_sent)).flatten();
        if let Some(sent) = sent {
            self.shared.notice_of_proxy(policy.version, peer, || {
                let read = if sent == field {
                    String::new()
                } else {
                    format!(", and write header = \"{sent}\"")
                };
                format!(
                    "sends `{sent}` and is not a trusted proxy, so all of its clients count as \
                     one; add it to `trusted_proxies` in [client_ip]{read}"
                )
            });
        }
        GatewayClient {
            peer,
            trust,
            address_field: (field != FORWARDED_FOR)
                .then(|| field.parse().ok())
                .flatten(),
            scheme: self.scheme,
        }
    }

    fn head_bounds(&self) -> HeadBounds {
        let usual = HeadBounds::default();
        HeadBounds {
            bytes: self.settings.max_head.unwrap_or(usual.bytes),
            fields: self.settings.max_head_fields.unwrap_or(usual.fields),
        }
    }

    /// Adds the fields of responses that are not the upstream's.
    fn put_own(&self, origin: Option<&HeaderValue>, id: HeaderValue, headers: &mut HeaderMap) {
        headers.insert(X_REQUEST_ID, id);
        refusal::put_cors(&self.settings.cors, origin, headers);
    }
}

/// Joins the connection of the client with that of the upstream, after the response. The line ends
/// with them.
fn set_tunnel(
    caller: Caller<'_>,
    tunnel: Box<Tunnel>,
    guard: Option<RequestGuard>,
    in_flight: InFlight,
    mut line: Option<Box<AccessLine>>,
) {
    caller.upgrade.set(Box::new(move |stream| {
        Box::pin(async move {
            let bytes = tunnel.run(stream).await;
            if let Some(line) = &mut line {
                line.sent(bytes);
            }
            drop((guard, in_flight, line));
        })
    }));
}
