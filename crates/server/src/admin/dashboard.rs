//! Dashboard: a page for operators, and the state that it shows.
//!
//! ```text
//!   GET /dashboard       the page: three files of this binary, without secrets
//!   GET /v1/dashboard    the state, made once a second at most, for all viewers
//!   GET /v1/history      a day of one limit, by minute
//! ```
//!
//! The page asks for the state each second, with the token if there is one. It needs no access of
//! its own, because it holds nothing; every number comes from a call that needs it
//! ([ADR 0041](../../../../docs/adr/0041-the-dashboard-asks.md)).

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use parking_lot::Mutex;
use ratekeeper::Clock;
use ratekeeper_policy::{Policy, Rule, WallTime};
use ratekeeper_store::BreakerState;
use serde_json::{Value, json};

use super::keys::{find, parameters, unknown};
use super::{reply, text, top};
use crate::alerts::message::rfc3339;
use crate::context::ServiceContext;
use crate::doors;
use crate::doors::answer::{key_parts, mode};
use crate::doors::problem::{Problem, WRONG_QUERY};
use crate::history::{Cell, MAX_LIMITS};
use crate::listener::Reply;
use crate::metrics::DurationsSnapshot;

/// Maximum number of limits in the state: those with a history that refuse most.
const MAX_SHOWN: usize = 100;
/// Maximum number of servers of a store that are named.
const MAX_DOWN: usize = 8;
/// Seconds of one cell of the trend of a limit.
const TREND_STEP: usize = 5;
/// Headers of the files of the page. A browser runs no script but ours, sends nothing elsewhere,
/// and shows the page in no frame.
const HEADERS: [(&str, &str); 6] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'",
    ),
    ("x-frame-options", "DENY"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cache-control", "no-cache"),
];

/// The last state, and the second in which it was made.
#[derive(Debug, Default)]
pub(crate) struct Snapshot(Mutex<Option<(u64, Bytes)>>);

/// Returns a file of the page; `None` for other paths.
pub(super) fn file(path: &str) -> Option<Response<Reply>> {
    let (kind, text) = match path {
        "/dashboard" => (
            "text/html; charset=utf-8",
            include_str!("dashboard/page.html"),
        ),
        "/dashboard/style.css" => (
            "text/css; charset=utf-8",
            include_str!("dashboard/style.css"),
        ),
        "/dashboard/script.js" => (
            "text/javascript; charset=utf-8",
            include_str!("dashboard/script.js"),
        ),
        _ => return None,
    };
    let mut response = Response::new(Full::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Some(response)
}

/// `GET /v1/dashboard`: the state of the service.
pub(super) async fn snapshot<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
) -> Response<Reply> {
    let shared = Arc::clone(shared);
    // On a thread of its own, so that no decision waits while the state is made.
    let made = tokio::task::spawn_blocking(move || last_state(&shared)).await;
    let Ok(body) = made else {
        let words = "making the state of the dashboard failed\n";
        return text(StatusCode::INTERNAL_SERVER_ERROR, words);
    };
    let mut response = doors::json(StatusCode::OK, body);
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

/// Returns the state of this second, which the first viewer of the second makes.
fn last_state<C: Clock>(shared: &ServiceContext<C>) -> Bytes {
    let second = shared.keeper.clock().now().as_nanos() / 1_000_000_000;
    let mut last = shared.snapshot.0.lock();
    match &*last {
        Some((made, body)) if *made == second => body.clone(),
        _ => {
            let body = Bytes::from(state(shared).to_string());
            *last = Some((second, body.clone()));
            body
        }
    }
}

/// `GET /v1/history?limit=NAME`: the minutes of a day, the newest last.
pub(super) fn day<C: Clock>(
    shared: &ServiceContext<C>,
    query: &str,
) -> Result<Response<Reply>, Problem> {
    let mut name = None;
    for (parameter, value) in parameters(query)? {
        match parameter {
            "limit" => name = Some(value),
            other => return Err(unknown(other, "`limit`")),
        }
    }
    let name =
        name.ok_or_else(|| Problem::new(WRONG_QUERY, "the limit is missing; add `?limit=NAME`"))?;
    let policy = shared.keeper.policy();
    let rule = find(&policy, &name)?;
    let minutes = shared.history.minutes(rule.limit.id);
    Ok(reply(
        &json!({ "limit": &*rule.limit.name, "minutes": minutes }),
    ))
}

fn state<C: Clock>(shared: &ServiceContext<C>) -> Value {
    let now = shared.keeper.clock().now();
    let policy = shared.keeper.policy();
    let changes = shared.changes.latest();
    let changes = changes.iter().map(|change| {
        json!({
            "at": rfc3339(change.unix_millis),
            "kind": change.kind.name(),
            "text": &*change.text,
        })
    });
    let changes: Vec<Value> = changes.collect();
    let limits = limits(shared, &policy);
    let alerts = shared.alerts.counts();
    json!({
        "at": rfc3339(shared.unix_millis(now)),
        "ready": shared.ready(),
        "version": policy.version,
        "sha": &*policy.sha,
        "applied_at": rfc3339(shared.metrics.applied_at_seconds() * 1_000),
        "reveal_keys": policy.settings.reveal_keys.word(),
        "seconds": shared.history.total_seconds(),
        "store": store(shared),
        "held": shared.hold.standing().now,
        "times": times(shared),
        "memory": memory(shared),
        "signals": signals(shared, &policy),
        "reports": shared.metrics.reports().collect::<BTreeMap<_, _>>(),
        "alerts": alerts.iter().map(|counts| counts.active).sum::<u64>(),
        "more": policy.rules.len() - limits.len(),
        "limits": limits,
        "changes": changes,
    })
}

/// Returns the limits with most refusals in the last minute, in the order of the policy.
fn limits<C: Clock>(shared: &ServiceContext<C>, policy: &Policy) -> Vec<Value> {
    let rules = policy.rules.iter().take(MAX_LIMITS);
    let mut all: Vec<(usize, &Rule, Vec<Cell>)> = rules
        .enumerate()
        .filter_map(|(index, rule)| Some((index, rule, shared.history.seconds(rule.limit.id)?)))
        .collect();
    all.sort_by_key(|(_, _, seconds)| {
        let refused = seconds.iter().map(|[_, denied, shadow]| denied + shadow);
        std::cmp::Reverse(refused.map(u64::from).sum::<u64>())
    });
    all.truncate(MAX_SHOWN);
    all.sort_by_key(|(index, ..)| *index);
    all.iter()
        .map(|(_, rule, seconds)| about(shared, rule, seconds))
        .collect()
}

fn about<C: Clock>(shared: &ServiceContext<C>, rule: &Rule, seconds: &[Cell]) -> Value {
    let now = shared.keeper.clock().now();
    let found = top::most_denied(shared, rule.limit.id, now);
    let busiest = found.as_ref().and_then(|found| found.keys.first());
    let mut about = json!({
        "name": &*rule.limit.name,
        "mode": mode(rule.mode),
        "limit": rule.text,
        "key": key_parts(rule).map(ToString::to_string).collect::<Vec<_>>(),
        "bans": rule.limit.algorithm.bans().is_some(),
        "trend": trend(seconds),
        "near": shared.metrics.near(rule.limit.id),
        "denied": found.as_ref().map_or(0, |found| found.denied),
        "distinct_denied": found.as_ref().map_or(0, |found| found.distinct_denied),
        "busiest": busiest.map_or(0, |key| key.denied.count),
    });
    let store = shared.keeper.store();
    if store.shared().is_none() && rule.limit.algorithm.concurrency().is_some() {
        let loans = store.local().loans(&rule.limit, now);
        about["in_use"] = json!(loans.in_use);
        about["expired"] = json!(loans.lapsed);
    }
    about
}

/// Returns times since the start by bucket: the upper bound in seconds, `null` for the last, and the
/// count.
fn times<C: Clock>(shared: &ServiceContext<C>) -> Value {
    let store = shared.keeper.store().shared();
    let store = store.map(|store| DurationsSnapshot::from(store.main().call_times().ok).buckets);
    json!({
        "decision": shared.metrics.decision_times().buckets,
        "queue": shared.metrics.queue_waits().buckets,
        "store": store,
    })
}

/// Returns the levels of the signals of elastic limits, in percent; `null` if none is known.
fn signals<C: Clock>(shared: &ServiceContext<C>, policy: &Policy) -> Value {
    let now = shared.keeper.clock().now();
    let now = WallTime::new(shared.keeper.wall_origin(), now);
    let levels = policy.signals().map(|signal| {
        let percent = signal.level(now).map(|ppm| f64::from(ppm) / 10_000.0);
        (signal.name().to_owned(), json!(percent))
    });
    levels.collect::<serde_json::Map<_, _>>().into()
}

fn memory<C: Clock>(shared: &ServiceContext<C>) -> Value {
    let usage = shared.keeper.store().local().usage();
    json!({
        "bytes": usage.bytes,
        "budget_bytes": usage.budget_bytes,
        "keys": usage.limits.iter().map(|limit| limit.keys).sum::<usize>(),
        "evicted": usage.limits.iter().map(|limit| limit.evicted.budget).sum::<u64>(),
    })
}

/// Returns the sums of spans of five seconds, the newest last.
fn trend(seconds: &[Cell]) -> Vec<[u64; 3]> {
    let spans = seconds.rchunks(TREND_STEP).map(|span| {
        let sum = |index: usize| span.iter().map(|cell| u64::from(cell[index])).sum();
        std::array::from_fn(sum)
    });
    let mut spans: Vec<[u64; 3]> = spans.collect();
    spans.reverse();
    spans
}

/// Returns the kind and the state of the store.
pub(super) fn store<C: Clock>(shared: &ServiceContext<C>) -> Value {
    let any = shared.keeper.store();
    let Some(remote) = any.shared() else {
        return json!({ "kind": "memory", "state": "up" });
    };
    let health = remote.health();
    let state = match health.state {
        BreakerState::Closed => "up",
        BreakerState::HalfOpen => "probing",
        BreakerState::Open { .. } => "down",
    };
    let servers = remote.main().server_health();
    let down = servers.iter().filter(|server| server.trouble.is_some());
    let down: Vec<&str> = down.map(|server| &*server.address).take(MAX_DOWN).collect();
    let offset = shared.metrics.clock_offset.load();
    json!({
        "kind": "redis",
        "state": state,
        "servers_down": down,
        "clock_offset_ms": offset.map(|nanos| nanos / 1_000_000),
        "answered": health.answered,
        "failed": health.failed,
        "fallback": health.fallback.local + health.fallback.allow + health.fallback.deny,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_has_whole_spans_at_its_end() {
        let seconds = [[1, 0, 2]; 7];
        assert_eq!(trend(&seconds), [[2, 0, 4], [5, 0, 10]]);
        assert_eq!(trend(&[]), Vec::<[u64; 3]>::new());
    }

    #[test]
    fn the_page_runs_no_script_of_others_and_writes_no_markup() {
        let page = file("/dashboard").unwrap();
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(!policy.contains("unsafe") && policy.contains("default-src 'none'"));
        let script = include_str!("dashboard/script.js");
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "eval("] {
            assert!(!script.contains(word), "{word}");
        }
        let html = include_str!("dashboard/page.html");
        assert!(!html.contains("style=") && !html.contains("//"));
    }
}
