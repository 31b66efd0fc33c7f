//! Limits: the limits of the policy, each with the number of its keys and their memory.

use std::collections::{BTreeMap, HashMap};

use http::Response;
use ratekeeper::Clock;
use ratekeeper_core::{LimitId, LimitScope, Nanos};
use ratekeeper_policy::{Policy, Rule, WallTime};
use ratekeeper_store::{LimitUsage, Usage};
use serde_json::{Value, json};

use super::keys::{find, parameters, unknown};
use super::reply;
use crate::context::ServiceContext;
use crate::doors::answer::mode;
use crate::doors::problem::{Problem, UNKNOWN_PATH, WRONG_QUERY};
use crate::listener::Reply;

/// Returns a limit as the policy states it.
pub(super) fn about(policy: &Policy, rule: &Rule) -> Value {
    let mut limit = json!({
        "name": &*rule.limit.name,
        "mode": mode(rule.mode),
        "limit": rule.text,
        "quota": rule.quota.get(),
        "window_ms": rule.window.map(Nanos::as_millis_ceil),
        "key": rule.key.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "status": rule.refusal.status,
        "line": rule.line,
    });
    if let Some(alert) = rule.alert {
        limit["alert"] = json!(alert.to_string());
    }
    if let Some(active) = rule.active.as_deref() {
        limit["active"] = json!(active.to_string());
    }
    if !rule.otherwise.is_empty() {
        let others = rule.otherwise.iter();
        let others = others.filter_map(|index| policy.rules.get(*index as usize));
        let names = others.map(|other| &*other.limit.name);
        limit["otherwise"] = json!(names.collect::<Vec<_>>());
    }
    if !rule.replaces.is_empty() {
        let others = rule.replaces.iter();
        let others = others.filter_map(|index| policy.rules.get(*index as usize));
        let names = others.map(|other| &*other.limit.name);
        limit["replaces"] = json!(names.collect::<Vec<_>>());
    }
    if let Some(share) = rule.percent {
        limit["percent"] = json!(share.percent());
    }
    if let Some(candidate) = rule.candidate {
        let candidate = policy.rules.get(candidate as usize);
        limit["candidate"] = json!(candidate.map(|rule| &*rule.limit.name));
    }
    if rule.limit.scope == LimitScope::Node {
        limit["scope"] = json!("node");
    }
    if let Some(priority) = rule.priority.as_deref() {
        limit["priority"] = json!(format!("{}%", priority.last_percent));
    }
    if let Some(route) = rule.on_limit.as_deref() {
        limit["on_limit"] = json!(format!("route:{route}"));
    }
    // The helper limit has the key of this one, and then the value that is counted.
    let seen = rule.distinct.and_then(|at| policy.rules.get(at as usize));
    if let Some(value) = seen.and_then(|seen| seen.key.last()) {
        limit["distinct"] = json!(value.to_string());
    }
    // Only a limit that is made for another has this sign in its name.
    if let Some((owner, _)) = rule.limit.name.split_once('+') {
        limit["part_of"] = json!(owner);
    }
    limit
}

/// Adds the keys with other numbers of a limit to its own: no variant is shown by itself. The
/// result is in the order of the ids.
pub(super) fn with_variants(policy: &Policy, mut usage: Usage) -> Usage {
    let variants = policy.rules.iter().flat_map(|rule| {
        let others = rule.variants.numbers().iter();
        others.map(|variant| (variant.limit.id, rule.limit.id))
    });
    let owners: HashMap<LimitId, LimitId> = variants.collect();
    let mut merged: BTreeMap<LimitId, LimitUsage> = BTreeMap::new();
    for one in usage.limits {
        let id = owners.get(&one.id).copied().unwrap_or(one.id);
        let all = merged.entry(id).or_default();
        all.id = id;
        all.keys += one.keys;
        all.bytes += one.bytes;
        all.evicted.idle += one.evicted.idle;
        all.evicted.budget += one.evicted.budget;
    }
    usage.limits = merged.into_values().collect();
    usage
}

/// Returns the usage of a limit from the list that [`with_variants`] makes.
pub(super) fn usage_of(usage: &Usage, id: LimitId) -> LimitUsage {
    let at = usage.limits.binary_search_by_key(&id, |used| used.id);
    at.map_or_else(|_| LimitUsage::default(), |at| usage.limits[at])
}

/// `GET /v1/explain?limit=NAME`: a limit in words, as `ratekeeper explain` lists it.
pub(super) fn explain<C: Clock>(
    shared: &ServiceContext<C>,
    query: &str,
) -> Result<Response<Reply>, Problem> {
    let Some(words) = shared.explain else {
        let detail = "this process explains no limits; use `ratekeeper explain`";
        return Err(Problem::new(UNKNOWN_PATH, detail));
    };
    let mut name = None;
    for (parameter, value) in parameters(query)? {
        match parameter {
            "limit" => name = Some(value),
            other => return Err(unknown(other, "`limit`")),
        }
    }
    let missing = "the limit is missing; add `?limit=NAME`";
    let name = name.ok_or_else(|| Problem::new(WRONG_QUERY, missing))?;
    let policy = shared.keeper.policy();
    let rule = find(&policy, &name)?;
    let now = shared.keeper.clock().now();
    let lines = words(&policy, rule, WallTime::new(shared.origin(), now));
    Ok(reply(
        &json!({ "limit": &*rule.limit.name, "lines": lines }),
    ))
}

/// `GET /v1/limits`: the limits with their usage.
pub(super) fn limits<C: Clock>(shared: &ServiceContext<C>) -> Response<Reply> {
    let policy = shared.keeper.policy();
    let usage = with_variants(&policy, shared.keeper.store().local().usage());
    let with_usage = |rule: &Rule| {
        let mut limit = about(&policy, rule);
        let used = usage_of(&usage, rule.limit.id);
        limit["keys"] = json!(used.keys);
        limit["bytes"] = json!(used.bytes);
        limit
    };
    let limits: Vec<Value> = policy.rules.iter().map(with_usage).collect();
    reply(&json!({ "limits": limits }))
}
