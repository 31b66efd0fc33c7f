//! State: the numbers of the service that the dashboard shows, the same for all viewers.

use std::collections::BTreeMap;

use ratekeeper_policy::{Policy, Role, Rule, WallTime};
use ratekeeper_store::BreakerState;
use serde_json::{Value, json};

use crate::admin::top;
use crate::context::ServiceContext;
use crate::observe::alerts::message::rfc3339;
use crate::observe::history::{Cell, MAX_LIMITS, Recent};
use crate::observe::metrics::DurationsSnapshot;
use crate::store::by_hand;

/// Maximum number of limits in the state: those with a history that refuse most.
const MAX_SHOWN: usize = 100;
/// Maximum number of servers of a store that are named.
const MAX_DOWN: usize = 8;
/// Maximum number of spans of a chart.
pub(super) const CHART_SPANS: usize = 144;
/// Maximum number of spans of the trend of a limit.
const TREND_SPANS: usize = 12;

pub(super) fn state(shared: &ServiceContext) -> Value {
    let now = shared.now();
    let policy = shared.keeper.policy();
    let changes = shared.observers.changes.latest();
    let changes = changes.iter().map(|change| {
        json!({
            "at": rfc3339(change.unix_millis),
            "kind": change.kind.as_ref(),
            "text": &*change.text,
            "by": change.by.map(|by| by.to_string()),
        })
    });
    let changes: Vec<Value> = changes.collect();
    let limits = limits(shared, &policy);
    let alerts = shared.observers.alerts.counts();
    json!({
        "at": rfc3339(shared.unix_millis(now)),
        "ready": shared.readiness.is_ready(),
        "version": policy.version,
        "sha": &*policy.sha,
        "applied_at": rfc3339(shared.observers.metrics.applied_at_seconds() * 1_000),
        "reveal_keys": policy.settings.reveal_keys.as_ref(),
        "writes": shared.access.lets_operators_write(),
        "rejected": shared.observers.metrics.is_rejected(),
        "counts": shared.observers.history.total().ranges(CHART_SPANS),
        "store": store(shared),
        "upstreams": shared.observers.metrics.process.upstreams.describe(),
        "held": shared.hold.standing().now,
        "streams": shared.streams.count(),
        "times": times(shared),
        "memory": memory(shared),
        "signals": signals(shared, &policy),
        "elastic": elastic(shared, &policy),
        "countries": top::countries(shared, &policy),
        "reports": shared.observers.metrics.reports().collect::<BTreeMap<_, _>>(),
        "alerts": alerts.iter().map(|counts| counts.active).sum::<u64>(),
        "more": policy.rules.len() - limits.len(),
        "limits": limits,
        "changes": changes,
    })
}

/// A limit with a history.
pub(super) struct Busy<'p> {
    index: usize,
    pub(super) rule: &'p Rule,
    recent: Recent,
}

/// Returns the limits with a history: first those with most refusals in the last minute, among
/// equals those with most in the last day. Refusals in shadow mode come after all others.
pub(super) fn by_refusals<'p>(shared: &ServiceContext, policy: &'p Policy) -> Vec<Busy<'p>> {
    let rules = policy.rules.iter().take(MAX_LIMITS).enumerate();
    let limits = rules.filter_map(|(index, rule)| {
        let recent = shared.observers.history.recent(rule.limit.id)?;
        Some(Busy {
            index,
            rule,
            recent,
        })
    });
    let mut limits: Vec<_> = limits.collect();
    let refused = |recent: &Recent, index: usize| {
        let sum = |cells: &[Cell]| cells.iter().map(|cell| u64::from(cell[index])).sum::<u64>();
        (sum(&recent.seconds), sum(&recent.minutes))
    };
    limits.sort_by_cached_key(|Busy { recent, .. }| {
        std::cmp::Reverse((refused(recent, 1), refused(recent, 2)))
    });
    limits
}

/// Returns the limits that refuse most, with their numbers.
fn limits(shared: &ServiceContext, policy: &Policy) -> Vec<Value> {
    let descriptions = policy.rules.descriptions();
    let limits = by_refusals(shared, policy).into_iter().take(MAX_SHOWN);
    let limits = limits.map(|busy| {
        let mut limit = descriptions[busy.index].clone();
        limit["counts"] = busy.recent.ranges(TREND_SPANS);
        add_counts(&mut limit, shared, busy.rule);
        limit
    });
    limits.collect()
}

/// Adds the counts of a limit to its description.
fn add_counts(about: &mut Value, shared: &ServiceContext, rule: &Rule) {
    let now = shared.now();
    let top_keys = &shared.observers.watchers.top_keys;
    let found = top_keys.most_denied(rule.limit.id, now);
    about["near"] = json!(shared.observers.metrics.near(rule.limit.id));
    about["highest_percent"] = json!(shared.observers.history.highest(rule.limit.id));
    about["denied"] = json!(found.denied);
    about["distinct"] = json!(found.distinct);
    about["distinct_denied"] = json!(found.distinct_denied);
    about["banned"] = json!(found.banned);
    about["cause"] = json!(found.cause());
    about["bans"] = json!(by_hand::banned_keys(shared, rule));
    about["busiest"] = json!(found.most_denied);
    about["hour"] = top::keys_of_the_hour(shared, rule.limit.id, now);
    let (shed, plans) = shared.observers.metrics.denials(rule.limit.id);
    about["plans"] = plans
        .iter()
        .map(|(name, denied)| json!([&**name, denied]))
        .collect();
    if rule.priority.is_some() {
        about["shed"] = json!(shed);
    }
    let store = shared.keeper.store();
    if store.shared().is_none() && rule.limit.algorithm.concurrency().is_some() {
        let loans = store.local().loans(&rule.limit, now);
        about["in_use"] = json!(loans.in_use);
        about["expired"] = json!(loans.lapsed);
    }
}

/// Returns times since the start by bucket: the upper bound in seconds, `null` for the last, and
/// the count.
fn times(shared: &ServiceContext) -> Value {
    let store = shared.keeper.store().shared();
    let store = store.and_then(|store| {
        let each = store.main().call_times().into_iter();
        let each = each.map(|(_, times)| DurationsSnapshot::from(times.ok));
        each.reduce(|mut all, one| {
            all.add(&one);
            all
        })
    });
    json!({
        "decision": shared.observers.metrics.decision_times().buckets,
        "queue": shared.observers.metrics.queue_waits().buckets,
        "store": store.map(|all| all.buckets),
    })
}

/// Returns the levels of the signals of elastic limits in words; `null` if none is known.
fn signals(shared: &ServiceContext, policy: &Policy) -> Value {
    let now = shared.now();
    let now = WallTime::new(shared.keeper.wall_origin(), now);
    let levels = policy
        .signals()
        .map(|signal| (signal.name().to_owned(), json!(signal.words(now))));
    levels.collect::<serde_json::Map<_, _>>().into()
}

/// Returns the elastic limits: how much of their own number they allow now, and the requests that
/// passed above it.
fn elastic(shared: &ServiceContext, policy: &Policy) -> Vec<Value> {
    let now = shared.now();
    let wall = WallTime::new(shared.keeper.wall_origin(), now);
    let rules = (0..).zip(&policy.rules).take(MAX_LIMITS);
    let elastic = rules.filter_map(|(index, rule)| {
        let Role::Elastic(gate) = &rule.role else {
            return None;
        };
        let owner = policy.rules.owner(index)?;
        let own = owner.quota.get();
        let most = own + rule.quota.get();
        let open = gate.is_open(wall);
        // Rounded down.
        let percent = (most * 100).checked_div(own).unwrap_or_default();
        let [(_, allowed), ..] = shared.observers.metrics.decisions(rule.limit.id);
        Some(json!({
            "limit": &*owner.limit.name,
            "signal": gate.signal().name(),
            "below": gate.below(),
            "open": open,
            "percent": if open { percent } else { 100 },
            "passed": allowed,
        }))
    });
    elastic.collect()
}

fn memory(shared: &ServiceContext) -> Value {
    let usage = shared.keeper.store().local().usage();
    json!({
        "bytes": usage.bytes,
        "budget_bytes": usage.budget_bytes,
        "keys": usage.limits.iter().map(|limit| limit.keys).sum::<usize>(),
        "evicted": usage.limits.iter().map(|limit| limit.evicted.budget).sum::<u64>(),
    })
}

/// Returns the kind and the state of the store.
pub(in crate::admin) fn store(shared: &ServiceContext) -> Value {
    let any = shared.keeper.store();
    let Some(remote) = any.shared() else {
        return json!({ "kind": "memory", "state": "up" });
    };
    let health = remote.health();
    let state = match health.state {
        BreakerState::Closed if !health.is_down => "up",
        BreakerState::HalfOpen => "probing",
        BreakerState::Closed | BreakerState::Open { .. } => "down",
    };
    let servers = remote.main().server_health();
    let down = servers.iter().filter(|server| server.trouble.is_some());
    let down: Vec<&str> = down.map(|server| &*server.address).take(MAX_DOWN).collect();
    let offset = *shared.observers.metrics.clock_offset.lock();
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
