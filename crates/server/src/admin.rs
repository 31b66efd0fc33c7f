//! The admin door: metrics, health, the policy in force, keys, reload.
//!
//! On loopback it needs no token to read unless one is set; beyond loopback it does not open
//! without. Health needs none: probes have no secrets. See `doors/access.rs`.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use ratekeeper::Clock;
use ratekeeper_core::{Charge, Decision, Key, Limit, Mode, Nanos, Permits, Time};
use ratekeeper_policy::envoy::RateLimit;
use ratekeeper_policy::{KeyBytes, Rule};
use ratekeeper_store::{AnyStore, Store};
use serde_json::{Value, json};

use crate::Trigger;
use crate::doors::answer::{key_parts, mode};
use crate::doors::body::{self, MAX_CHECK_BYTES};
use crate::doors::problem::{
    NO_SUCH_KEY, NO_SUCH_LIMIT, NOT_LISTED, Problem, RELOAD_REFUSED, UNKNOWN_PATH, WRONG_QUERY,
    near_spelling, shown,
};
use crate::doors::{self, Act};
use crate::listener::{Caller, Handle, Reply};
use crate::metrics::{Format, SharedStore};
use crate::reload::Reloaded;
use crate::shared::Shared;

/// Keys listed unless told otherwise.
const DEFAULT_TOP: usize = 20;
/// Keys listed at most.
const MAX_TOP: usize = 1000;

/// Metrics, health, keys, reload.
#[derive(Debug)]
pub(crate) struct AdminDoor<C>(pub(crate) Arc<Shared<C>>);

impl<C: Clock + 'static> Handle for AdminDoor<C> {
    async fn handle(&self, _caller: Caller<'_>, request: Request<Incoming>) -> Response<Reply> {
        let answered = answer(&self.0, request).await;
        answered.unwrap_or_else(|problem| problem.response())
    }
}

async fn answer<C: Clock + 'static>(
    shared: &Arc<Shared<C>>,
    request: Request<Incoming>,
) -> Result<Response<Reply>, Problem> {
    doors::one_host(&request)?;
    let path = request.uri().path();
    if !matches!(path, "/healthz" | "/readyz") {
        let writes = matches!(path, "/v1/reload" | "/v1/reset" | "/v1/refund");
        let act = if writes { Act::Write } else { Act::Read };
        shared.access.admin(act, request.headers())?;
    }
    match path {
        "/healthz" => get(&request).map(|()| text(StatusCode::OK, "ok\n")),
        "/readyz" => get(&request).map(|()| readiness(shared.ready())),
        "/metrics" => get(&request).map(|()| metrics(shared, Format::accepted(request.headers()))),
        "/v1/policy" => get(&request).map(|()| policy(shared)),
        "/rlconfig" => get(&request).map(|()| envoy_rules(shared)),
        "/v1/limits" => get(&request).map(|()| limits(shared)),
        "/v1/keys" => {
            get(&request)?;
            keys(shared, request.uri().query().unwrap_or_default())
        }
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
        _ => {
            let Some(limit) = path.strip_prefix("/v1/keys/") else {
                let detail = format!("`{}` is no path of the admin door", shown(path));
                return Err(Problem::new(UNKNOWN_PATH, detail));
            };
            get(&request)?;
            key(shared, limit, request.uri().query().unwrap_or_default()).await
        }
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

fn metrics<C: Clock>(shared: &Shared<C>, format: Format) -> Response<Reply> {
    let (any, now) = (shared.keeper.store(), shared.keeper.clock().now());
    let store = any.local();
    let policy = shared.keeper.policy();
    let lenders = policy.rules.iter().map(|rule| &rule.limit);
    // What a shared store has on loan is not known here.
    let lends = |limit: &&Limit| limit.algorithm.concurrency().is_some();
    let lenders = lenders.filter(|limit| any.shared().is_none() && lends(limit));
    let loans = lenders.map(|limit| (Arc::clone(&limit.name), store.loans(limit, now)));
    let clock_offset_nanos = shared.metrics.clock_offset.load();
    let of_shared = any.shared().map(|shared| SharedStore {
        health: shared.health(),
        times: shared.main().call_times(),
        servers: shared.main().server_health(),
        clock_offset_nanos,
    });
    let usage = store.usage();
    let scraped = shared
        .metrics
        .scrape(usage, loans.collect(), shared.hold.standing(), of_shared);
    let mut response = Response::new(Full::from(format.written(scraped)));
    let content_type = HeaderValue::from_static(format.content_type());
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, content_type);
    response
}

fn reply(value: &Value) -> Response<Reply> {
    doors::json(StatusCode::OK, value.to_string())
}

fn policy<C: Clock>(shared: &Shared<C>) -> Response<Reply> {
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
        "limits": policy.rules.iter().map(about).collect::<Vec<_>>(),
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
fn envoy_rules<C: Clock>(shared: &Shared<C>) -> Response<Reply> {
    let mut lines = String::new();
    if let Some(config) = shared.keeper.envoy() {
        for rule in config.rules() {
            let limit = match rule.limit {
                RateLimit::Unlimited => "unlimited".to_owned(),
                RateLimit::PerUnit {
                    requests_per_unit,
                    unit,
                } => {
                    let unit = unit.name().to_uppercase();
                    format!("unit={unit} requests_per_unit={requests_per_unit}")
                }
            };
            let (path, shadow, quota) = (&rule.path, rule.shadow, rule.quota);
            lines += &format!("{path}: {limit}, shadow_mode: {shadow}, quota_mode: {quota}\n");
        }
    }
    text(StatusCode::OK, lines)
}

/// A limit as the policy says it.
fn about(rule: &Rule) -> Value {
    json!({
        "name": &*rule.limit.name,
        "mode": mode(rule.mode),
        "limit": rule.text,
        "quota": rule.quota.get(),
        "window_ms": rule.window.map(Nanos::as_millis_ceil),
        "key": rule.key.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "status": rule.refusal.status,
        "line": rule.line,
    })
}

fn limits<C: Clock>(shared: &Shared<C>) -> Response<Reply> {
    let policy = shared.keeper.policy();
    let usage = shared.keeper.store().local().usage();
    let with_usage = |rule: &Rule| {
        let mut limit = about(rule);
        let mut usages = usage.limits.iter();
        let used = usages.find(|used| used.id == rule.limit.id).copied();
        let used = used.unwrap_or_default();
        limit["keys"] = json!(used.keys);
        limit["bytes"] = json!(used.bytes);
        limit
    };
    let limits: Vec<Value> = policy.rules.iter().map(with_usage).collect();
    reply(&json!({ "limits": limits }))
}

/// `GET /v1/keys?limit=NAME&top=20`: the keys with the least remaining.
fn keys<C: Clock>(shared: &Shared<C>, query: &str) -> Result<Response<Reply>, Problem> {
    let (mut name, mut top) = (None, DEFAULT_TOP);
    for (parameter, value) in parameters(query)? {
        match parameter {
            "limit" => name = Some(value),
            "top" => {
                let number = value.parse().ok();
                top = number
                    .filter(|top| (1..=MAX_TOP).contains(top))
                    .ok_or_else(|| {
                        let value = shown(&value);
                        let detail = format!("`top={value}` must be a number from 1 to {MAX_TOP}");
                        Problem::new(WRONG_QUERY, detail)
                    })?;
            }
            other => return Err(unknown_parameter(other, "`limit` and `top`")),
        }
    }
    let name =
        name.ok_or_else(|| Problem::new(WRONG_QUERY, "say of which limit: `?limit=NAME`"))?;
    let policy = shared.keeper.policy();
    let rule = find(&policy, &name)?;
    let now = shared.keeper.clock().now();
    if shared.keeper.store().shared().is_some() {
        let detail = "ask for one: /v1/keys/LIMIT?key=VALUE";
        return Err(Problem::new(NOT_LISTED, detail));
    }
    let entries = shared.keeper.store().local().keys(&rule.limit, top, now);
    let keys: Vec<Value> = entries
        .iter()
        .map(|entry| state(rule, Key::from_bytes(&entry.key), entry.decision))
        .collect();
    Ok(reply(&json!({ "limit": &*rule.limit.name, "keys": keys })))
}

/// `GET /v1/keys/LIMIT?key=VALUE`: one key, `key` once for each part, each as a request brings
/// it or as the list of keys shows it.
async fn key<C: Clock>(
    shared: &Shared<C>,
    name: &str,
    query: &str,
) -> Result<Response<Reply>, Problem> {
    let policy = shared.keeper.policy();
    let rule = find(&policy, name)?;
    let mut bytes = KeyBytes::default();
    let mut parts = key_parts(rule);
    for (parameter, value) in parameters(query)? {
        match (parameter, parts.next()) {
            ("key", Some(part)) => {
                part.write_plain(&value, policy.client_ip.ipv6_prefix, &mut bytes);
            }
            ("key", None) => {
                let most = key_parts(rule).count();
                let detail = format!("the key of `{}` has {most} parts", rule.limit.name);
                return Err(Problem::new(WRONG_QUERY, detail));
            }
            (other, _) => return Err(unknown_parameter(other, "`key`")),
        }
    }
    let key = Key::from_bytes(&bytes);
    let now = shared.keeper.clock().now();
    let store = shared.keeper.store();
    let found = if store.shared().is_some() {
        shared_key(store, &rule.limit, key, now).await?
    } else {
        store.local().key(&rule.limit, key, now)
    };
    let decision = found.ok_or_else(|| {
        let parts: Vec<String> = key_parts(rule).map(ToString::to_string).collect();
        let parts = if parts.is_empty() {
            "none".into()
        } else {
            parts.join(", ")
        };
        let detail = format!("its balance is full, or the parts differ (key: {parts})");
        Problem::new(NO_SUCH_KEY, detail)
    })?;
    Ok(reply(&state(rule, key, decision)))
}

/// The state of a key in a shared store, if it owes anything.
async fn shared_key(
    store: &AnyStore,
    limit: &Limit,
    key: Key<'_>,
    now: Time,
) -> Result<Option<Decision>, Problem> {
    let charge = Charge {
        limit,
        key,
        cost: Permits::ZERO,
        mode: Mode::Enforce,
    };
    let looked = store.look(&[charge], now).await;
    let decisions = looked.map_err(|error| doors::store_down(&error))?;
    let owes = |decision: &Decision| decision.reset_after > Nanos::ZERO;
    Ok(decisions.each.first().copied().filter(owes))
}

fn state(rule: &Rule, key: Key<'_>, decision: Decision) -> Value {
    let mut names = key_parts(rule);
    let part = |value| match names.next() {
        Some(name) => format!("{name}={value}"),
        None => String::from(value),
    };
    let parts: Vec<String> = key.display_parts().map(part).collect();
    json!({
        "key": parts,
        "quota": rule.quota.get(),
        "remaining": decision.remaining.get(),
        "reset_after_ms": decision.reset_after.as_millis_ceil(),
    })
}

fn find<'a>(policy: &'a ratekeeper_policy::Policy, name: &str) -> Result<&'a Rule, Problem> {
    policy.rule(name).ok_or_else(|| {
        let names = policy.rules.iter().map(|rule| &*rule.limit.name);
        let near = near_spelling(name, names);
        Problem::new(
            NO_SUCH_LIMIT,
            format!("`{}` is not in the policy{near}", shown(name)),
        )
    })
}

fn unknown_parameter(name: &str, known: &str) -> Problem {
    let name = shown(name);
    Problem::new(
        WRONG_QUERY,
        format!("`{name}` is not understood; {known} are"),
    )
}

/// The parameters of a query, their values decoded.
fn parameters(query: &str) -> Result<Vec<(&str, String)>, Problem> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = decode(value).ok_or_else(|| {
                let value = shown(value);
                Problem::new(
                    WRONG_QUERY,
                    format!("`{value}` is not percent-encoded text"),
                )
            })?;
            Ok((name, decoded))
        })
        .collect()
}

/// Decodes `%41` and `+`.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        match first {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, tail) = tail.split_first_chunk::<2>()?;
                let digits = std::str::from_utf8(digits).ok()?;
                if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                    return None;
                }
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
                rest = tail;
            }
            plain => bytes.push(*plain),
        }
    }
    String::from_utf8(bytes).ok()
}

/// `POST /v1/reload`: the new version, or everything that is wrong with the file.
async fn reload<C: Clock + 'static>(shared: &Arc<Shared<C>>) -> Result<Response<Reply>, Problem> {
    let shared_too = Arc::clone(shared);
    let outcome = tokio::task::spawn_blocking(move || shared_too.reload(Trigger::Request)).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding() {
        for (text, expected) in [
            ("a%20b+c", Some("a b c")),
            ("%c3%A9", Some("\u{e9}")),
            ("", Some("")),
            ("%", None),
            ("%4", None),
            ("%zz", None),
            ("%+1", None),
            ("%ff", None),
        ] {
            assert_eq!(decode(text).as_deref(), expected, "{text}");
        }
    }
}
