//! Limits: the limits of the policy, each with the number of its keys and their memory.

use std::collections::{BTreeMap, HashMap};

use http::Response;
use ratekeeper_core::LimitId;
use ratekeeper_policy::{Policy, Rule, WallTime};
use ratekeeper_store::{LimitUsage, Usage};
use serde_json::{Value, json};

use super::query::Query;
use super::reply;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::problem::{Problem, UNKNOWN_PATH};
use crate::serve::listener::Reply;

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
pub(super) fn explain(shared: &ServiceContext, query: &str) -> CallResult {
    let Some(words) = shared.explain else {
        let detail = "this process explains no limits; use `ratekeeper explain`";
        return Err(Problem::new(UNKNOWN_PATH, detail));
    };
    let policy = shared.keeper.policy();
    let rule = Query::read(query, &["limit"])?.rule(&policy)?;
    let now = shared.now();
    let lines = words(&policy, rule, WallTime::new(shared.origin(), now));
    Ok(reply(
        &json!({ "limit": &*rule.limit.name, "lines": lines }),
    ))
}

/// `GET /v1/limits`: the limits with their usage.
pub(super) fn limits(shared: &ServiceContext) -> Response<Reply> {
    let policy = shared.keeper.policy();
    let usage = with_variants(&policy, shared.keeper.store().local().usage());
    let rules = policy.rules.iter().zip(policy.rules.descriptions());
    let with_usage = |(rule, description): (&Rule, &Value)| {
        let used = usage_of(&usage, rule.limit.id);
        let mut limit = description.clone();
        limit["keys"] = json!(used.keys);
        limit["bytes"] = json!(used.bytes);
        limit
    };
    let limits: Vec<Value> = rules.map(with_usage).collect();
    reply(&json!({ "limits": limits }))
}
