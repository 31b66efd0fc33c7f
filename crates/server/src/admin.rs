//! The admin door: metrics, health, the policy in force, keys, reload.
//!
//! On loopback it needs no token to read unless one is set; beyond loopback it does not open
//! without. Health needs none: probes have no secrets. See `doors/access.rs`.

mod alerts;
mod bans;
mod countries;
mod dashboard;
mod grants;
mod keys;
mod limits;
mod metrics;
mod overrides;
mod signals;
mod top;
mod whatif;

pub(crate) use self::dashboard::{Snapshot, Streams, publish};
pub(crate) use self::metrics::read as read_metrics;
pub(crate) use self::overrides::key_as_shown;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use ratekeeper::Clock;
use ratekeeper_policy::envoy::EnvoyRateLimit;
use serde_json::{Value, json};

use self::dashboard::StateStream;
use crate::Trigger;
use crate::changes;
use crate::context::ServiceContext;
use crate::doors::body::{self, MAX_CHECK_BYTES};
use crate::doors::problem::{Problem, RELOAD_REFUSED, UNKNOWN_PATH, shown};
use crate::doors::{self, AccessAct, WriteCall};
use crate::listener::{Caller, Handle, Reply};
use crate::reload::Reloaded;

/// Where levels of signals are set: the name stands behind it.
const SIGNALS: &str = "/v1/signals/";
/// Where a key is shown and reset: the name of its limit stands behind it.
const KEYS: &str = "/v1/keys/";

/// Metrics, health, keys, reload.
#[derive(Debug)]
pub(crate) struct AdminDoor<C>(pub(crate) Arc<ServiceContext<C>>);

/// The body of an answer: complete, or a stream.
type AdminBody = Either<Reply, StateStream>;

impl<C: Clock + 'static> Handle for AdminDoor<C> {
    type Body = AdminBody;

    async fn handle(&self, caller: Caller<'_>, request: Request<Incoming>) -> Response<AdminBody> {
        let answered = answer(&self.0, caller, request).await;
        answered.unwrap_or_else(|problem| problem.response().map(Either::Left))
    }
}

async fn answer<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
    caller: Caller<'_>,
    request: Request<Incoming>,
) -> Result<Response<AdminBody>, Problem> {
    doors::one_host(&request)?;
    let path = request.uri().path();
    if let Some(file) = dashboard::file(path) {
        return get(&request).map(|()| file.map(Either::Left));
    }
    let act = act(&request);
    if !matches!(path, "/healthz" | "/readyz") {
        doors::note_wrong_token(shared, caller, request.headers());
        shared.access.admin(act, request.headers())?;
    }
    if path == "/v1/dashboard/stream" {
        let opened = dashboard::open(shared, caller, &request).await?;
        return Ok(opened.map(Either::Right));
    }
    let call = (act == AccessAct::Write).then(|| WriteCall::new(caller, &request));
    let answered = match &call {
        Some(_) => changes::by(caller.address, routed(shared, request)).await,
        None => routed(shared, request).await,
    };
    if let Some(call) = call {
        call.log(&answered);
    }
    answered.map(|answer| answer.map(Either::Left))
}

/// Answers a call that was let in.
async fn routed<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Problem> {
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    match path {
        "/healthz" => get(&request).map(|()| text(StatusCode::OK, "ok\n")),
        "/readyz" => get(&request).map(|()| readiness(shared.ready())),
        "/metrics" => {
            get(&request)?;
            Ok(metrics::metrics(shared, request.headers()).await)
        }
        "/v1/policy" => get(&request).map(|()| policy(shared)),
        "/rlconfig" => get(&request).map(|()| envoy_rules(shared)),
        "/v1/alerts" => get(&request).map(|()| alerts::alerts(shared)),
        "/v1/limits" => get(&request).map(|()| limits::limits(shared)),
        "/v1/keys" => get(&request).and_then(|()| keys::keys(shared, query)),
        "/v1/dashboard" => {
            get(&request)?;
            Ok(dashboard::snapshot(shared).await)
        }
        "/v1/history" => get(&request).and_then(|()| dashboard::day(shared, query)),
        "/v1/top" => get(&request).and_then(|()| top::answer(shared, query)),
        "/v1/whatif" => {
            get(&request)?;
            whatif::answer(shared, query).await
        }
        "/v1/bans" => match *request.method() {
            Method::GET | Method::HEAD => bans::list(shared, query).await,
            Method::POST => bans::add(shared, query).await,
            Method::DELETE => bans::lift(shared, query).await,
            _ => Err(Problem::wrong_method("GET, HEAD, POST, DELETE")),
        },
        "/v1/overrides" => match *request.method() {
            Method::GET | Method::HEAD => overrides::list(shared, query).await,
            Method::PUT => overrides::set(shared, query).await,
            Method::DELETE => overrides::remove(shared, query).await,
            _ => Err(Problem::wrong_method("GET, HEAD, PUT, DELETE")),
        },
        "/v1/reload" => {
            post(&request)?;
            reload(shared).await
        }
        "/v1/reset" => {
            post(&request)?;
            doors::reset(
                shared,
                body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?,
            )
            .await
        }
        "/v1/refund" => {
            post(&request)?;
            doors::refund(
                shared,
                body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?,
            )
            .await
        }
        "/v1/grant" => {
            post(&request)?;
            let body = body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?;
            grants::grant(shared, &body).await
        }
        "/v1/explain" => get(&request).and_then(|()| limits::explain(shared, query)),
        _ if path.starts_with(SIGNALS) => {
            if request.method() != Method::PUT {
                return Err(Problem::wrong_method("PUT"));
            }
            let name = keys::decoded(&path[SIGNALS.len()..])?;
            let body = body::read(request, MAX_CHECK_BYTES, &shared.bodies).await?;
            signals::set(shared, &name, &body)
        }
        _ => {
            let Some(limit) = path.strip_prefix(KEYS) else {
                let detail = format!("`{}` is not a path of the admin listener", shown(path));
                return Err(Problem::new(UNKNOWN_PATH, detail));
            };
            let limit = keys::decoded(limit)?;
            match *request.method() {
                Method::GET | Method::HEAD => keys::key(shared, &limit, query).await,
                Method::DELETE => keys::reset(shared, &limit, query).await,
                _ => Err(Problem::wrong_method("GET, HEAD, DELETE")),
            }
        }
    }
}

/// Returns the effect of a request, which decides the rights that it needs.
fn act(request: &Request<Incoming>) -> AccessAct {
    let path = request.uri().path();
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let writes = matches!(
        path,
        "/v1/reload" | "/v1/reset" | "/v1/refund" | "/v1/grant"
    ) || path.starts_with(SIGNALS)
        || matches!(path, "/v1/bans" | "/v1/overrides") && !reads
        || path.starts_with(KEYS) && request.method() == Method::DELETE;
    if writes {
        AccessAct::Write
    } else {
        AccessAct::Read
    }
}

fn get(request: &Request<Incoming>) -> Result<(), Problem> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Problem::wrong_method("GET, HEAD"))
}

fn post(request: &Request<Incoming>) -> Result<(), Problem> {
    if request.method() == Method::POST {
        return Ok(());
    }
    Err(Problem::wrong_method("POST"))
}

fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Reply> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    response
}

fn readiness(ready: bool) -> Response<Reply> {
    if ready {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

fn reply(value: &Value) -> Response<Reply> {
    doors::json(StatusCode::OK, value.to_string())
}

fn policy<C: Clock>(shared: &ServiceContext<C>) -> Response<Reply> {
    let policy = shared.keeper.policy();
    let client_ip = &policy.client_ip;
    let proxies = client_ip.trusted_proxies.iter();
    let proxies: Vec<String> = proxies.map(ToString::to_string).collect();
    let mut document = json!({
        "version": policy.version,
        "sha": &*policy.sha,
        "client_ip": {
            "trusted_proxies": proxies,
            "header": client_ip.header,
            "ipv6_prefix": client_ip.ipv6_prefix,
        },
        "limits": policy.rules.iter().map(|rule| limits::about(&policy, rule)).collect::<Vec<_>>(),
    });
    if let Some(config) = shared.keeper.envoy() {
        document["envoy"] = json!({
            "sha": &**config.sha(),
            "domains": config.domain_count(),
            "rules": config.rule_count(),
        });
    }
    reply(&document)
}

/// `GET /rlconfig`: the rules of Envoy's rate limit service in force, one a line, in the form
/// that the Go service prints them.
fn envoy_rules<C: Clock>(shared: &ServiceContext<C>) -> Response<Reply> {
    let mut lines = String::new();
    if let Some(config) = shared.keeper.envoy() {
        for rule in config.rules() {
            let limit = match rule.limit {
                EnvoyRateLimit::Unlimited => "unlimited".to_owned(),
                EnvoyRateLimit::PerUnit {
                    requests_per_unit,
                    unit,
                } => {
                    let unit = unit.name().to_uppercase();
                    format!("unit={unit} requests_per_unit={requests_per_unit}")
                }
            };
            let (path, shadow, quota) = (&rule.path, rule.shadow, rule.quota);
            let line = format!("{path}: {limit}, shadow_mode: {shadow}, quota_mode: {quota}\n");
            lines.push_str(&line);
        }
    }
    text(StatusCode::OK, lines)
}

/// `POST /v1/reload`: returns the new version, or all errors of the file.
async fn reload<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
) -> Result<Response<Reply>, Problem> {
    let shared_too = Arc::clone(shared);
    let work = changes::by_the_same(move || shared_too.reload(Trigger::Request));
    let outcome = tokio::task::spawn_blocking(work).await;
    let outcome = outcome.map_err(|_| {
        Problem::new(
            RELOAD_REFUSED,
            "reading the policy failed; the old one stays in force",
        )
    })?;
    match outcome {
        Ok(Reloaded::Unchanged { version }) => {
            Ok(reply(&json!({ "reloaded": false, "version": version })))
        }
        Ok(Reloaded::Applied { from, to }) => Ok(reply(
            &json!({ "reloaded": true, "version": to, "from": from }),
        )),
        Err(rejected) => {
            let version = rejected.version;
            let first = rejected.findings.first();
            let why = first.map_or(rejected.report, |first| first.message.clone());
            let detail = format!("{why}; version {version} stays in force");
            let mut problem = Problem::new(RELOAD_REFUSED, detail);
            let findings = json!(rejected.findings);
            problem.members = format!(r#","version":{version},"findings":{findings}"#);
            Err(problem)
        }
    }
}
