//! The admin door: metrics, health, the policy in force, keys, reload.
//!
//! On loopback it needs no token to read unless one is set; beyond loopback it does not open
//! without. Health needs none: probes have no secrets. See `doors/access.rs`.

mod bans;
mod dashboard;
mod grants;
mod keys;
mod limits;
mod metrics;
mod overrides;
mod query;
mod signals;
mod top;
mod whatif;

pub(crate) use self::dashboard::{Streams, publish};
pub(crate) use self::metrics::read as read_metrics;
pub(crate) use self::overrides::key_as_shown;

use std::sync::Arc;

use http::{Response, StatusCode};
use http_body_util::Either;
use ratekeeper_policy::envoy::EnvoyRateLimit;
use serde_json::{Value, json};

use self::dashboard::StateStream;
use self::query::decoded;
use crate::Trigger;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::body::MAX_CHECK_BYTES;
use crate::doors::problem::{Problem, ProblemKind, RELOAD_REFUSED};
use crate::doors::routes::{self, RouteCall, routes};
use crate::doors::{self, Right, text};
use crate::observe::alerts::AlertNotice;
use crate::observe::alerts::message::described;
use crate::readiness::Readiness;
use crate::serve::listener::{Asked, Handle, Reply};
use crate::source::reload::{Rejected, Reloaded};

/// Metrics, health, keys, reload.
#[derive(Debug)]
pub(crate) struct AdminDoor(pub(crate) Arc<ServiceContext>);

/// Maximum number of alerts listed.
const MAX_LISTED: usize = 1_000;

/// The body of an answer: complete, or a stream.
type AdminBody = Either<Reply, StateStream>;

impl Handle for AdminDoor {
    type Body = AdminBody;

    async fn handle(&self, asked: Asked<'_>) -> Response<AdminBody> {
        let answered = answer(&self.0, asked).await;
        answered.unwrap_or_else(|problem| problem.response().map(Either::Left))
    }
}

async fn answer(
    shared: &Arc<ServiceContext>,
    Asked { caller, head, body }: Asked<'_>,
) -> Result<Response<AdminBody>, Problem> {
    doors::one_host(head)?;
    let found = routes::find(ADMIN_ROUTES, "admin", head);
    let right = found
        .as_ref()
        .map_or_else(|no| no.right, |route| route.right);
    if right != Right::Probe {
        shared.note_wrong_token(caller.address, &head.headers);
        shared.access.admin(right, &head.headers)?;
    }
    let call = RouteCall {
        shared,
        caller,
        route: found.map_err(|no| no.problem)?,
        head,
        body,
    };
    routed(call).await
}

routes! {
    /// The routes of the admin listener. What the first row of a path needs, a wrong method needs.
    ADMIN_ROUTES, |call| -> AdminBody, |answer| answer.map(Either::Left);
    GET "/healthz" Probe => Ok(text(StatusCode::OK, "ok\n")),
    GET "/readyz" Probe => Ok(readiness(&call.shared.readiness)),
    GET "/" Probe => Ok(dashboard::lead_there()),
    GET "/favicon.ico" Probe => Ok(doors::empty(StatusCode::NO_CONTENT)),
    GET "/dashboard" Probe => Ok(dashboard::PAGE.response()),
    GET "/dashboard/style.css" Probe => Ok(dashboard::STYLE.response()),
    GET "/dashboard/script.js" Probe => Ok(dashboard::SCRIPT.response()),
    STREAM "/v1/dashboard/stream" Read => {
        let opened = dashboard::open(call.shared, call.caller, call.query()).await?;
        return Ok(opened.map(Either::Right));
    },
    GET "/v1/dashboard" Read => Ok(dashboard::snapshot(call.shared).await),
    GET "/v1/history" Read => dashboard::day(call.shared, call.query()),
    GET "/metrics" Read => Ok(metrics::metrics(call.shared, &call.head.headers).await),
    GET "/v1/policy" Read => Ok(policy(call.shared)),
    GET "/rlconfig" Read => Ok(envoy_rules(call.shared)),
    GET "/v1/alerts" Read => Ok(alerts(call.shared)),
    GET "/v1/limits" Read => Ok(limits::limits(call.shared)),
    GET "/v1/explain" Read => limits::explain(call.shared, call.query()),
    GET "/v1/top" Read => top::answer(call.shared, call.query()),
    GET "/v1/whatif" Read => whatif::answer(call.shared, call.query()).await,
    GET "/v1/keys" Read => keys::keys(call.shared, call.query()),
    GET "/v1/keys/*" Read => keys::key(call.shared, &decoded(call.rest())?, call.query()).await,
    DELETE "/v1/keys/*" Write =>
        keys::reset(call.shared, &decoded(call.rest())?, call.query()).await,
    POST "/v1/bans" Write => bans::add(call.shared, call.query()).await,
    DELETE "/v1/bans" Write => bans::lift(call.shared, call.query()).await,
    GET "/v1/bans" Read => bans::list(call.shared, call.query()).await,
    PUT "/v1/overrides" Write => overrides::set(call.shared, call.query()).await,
    DELETE "/v1/overrides" Write => overrides::remove(call.shared, call.query()).await,
    GET "/v1/overrides" Read => overrides::list(call.shared, call.query()).await,
    PUT "/v1/signals/*" Write => {
        let name = decoded(call.rest())?;
        signals::set(call.shared, &name, &call.body(MAX_CHECK_BYTES).await?)
    },
    POST "/v1/reload" Write => reload(call.shared).await,
    POST "/v1/reset" Write => doors::reset(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
    POST "/v1/refund" Write => doors::refund(call.shared, call.body(MAX_CHECK_BYTES).await?).await,
    POST "/v1/grant" Write => grants::grant(call.shared, &call.body(MAX_CHECK_BYTES).await?).await,
}

pub(crate) fn readiness(readiness: &Readiness) -> Response<Reply> {
    if readiness.is_ready() {
        text(StatusCode::OK, "ready\n")
    } else {
        text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

fn reply(value: &Value) -> Response<Reply> {
    doors::json(StatusCode::OK, value.to_string())
}

/// `GET /v1/alerts`: the active alerts of this process, the oldest first, with their keys.
fn alerts(shared: &ServiceContext) -> Response<Reply> {
    let active = shared.observers.alerts.active();
    let about = |notice: &AlertNotice| described(notice, shared.unix_millis(notice.since));
    let listed: Vec<Value> = active.iter().take(MAX_LISTED).map(about).collect();
    let more = active.len() - listed.len();
    reply(&json!({ "alerts": listed, "more": more }))
}

fn policy(shared: &ServiceContext) -> Response<Reply> {
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
        "limits": policy.rules.descriptions(),
    });
    if let Some(config) = shared.keeper.envoy() {
        document["envoy"] = json!({
            "sha": &**config.sha(),
            "domains": config.domain_count(),
            "rules": config.rules().len(),
        });
    }
    reply(&document)
}

/// `GET /rlconfig`: the rules of Envoy's rate limit service in force, one a line, in the form
/// that the Go service prints them.
fn envoy_rules(shared: &ServiceContext) -> Response<Reply> {
    let mut lines = String::new();
    if let Some(config) = shared.keeper.envoy() {
        for rule in config.rules() {
            let limit = match rule.limit {
                EnvoyRateLimit::Unlimited => "unlimited".to_owned(),
                EnvoyRateLimit::PerUnit {
                    requests_per_unit,
                    unit,
                } => {
                    let unit = unit.as_ref().to_uppercase();
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
async fn reload(shared: &Arc<ServiceContext>) -> CallResult {
    let reloaded = shared.apart(|shared| shared.reload(Trigger::Request));
    let failed = "reading the policy failed; the old one stays in force";
    let failed = || Problem::new(RELOAD_REFUSED, failed);
    match reloaded.await.ok_or_else(failed)? {
        Ok(Reloaded::Unchanged { version }) => {
            Ok(reply(&json!({ "reloaded": false, "version": version })))
        }
        Ok(Reloaded::Applied { from, to }) => Ok(reply(
            &json!({ "reloaded": true, "version": to, "from": from }),
        )),
        Err(rejected) => {
            let version = rejected.version;
            let first = rejected.findings.first();
            let why = first.map_or(&rejected.report, |first| &first.message);
            let detail = format!("{why}; version {version} stays in force");
            Err(refused(RELOAD_REFUSED, detail, &rejected))
        }
    }
}

/// Returns the problem of a policy that was refused, with its findings.
fn refused(kind: ProblemKind, detail: String, why: &Rejected) -> Problem {
    let (version, findings) = (why.version, json!(why.findings));
    let members = format!(r#","version":{version},"findings":{findings}"#);
    Problem {
        members,
        ..Problem::new(kind, detail)
    }
}
