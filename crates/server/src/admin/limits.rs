//! Limits: the limits of the policy, each with the number of its keys and their memory.

use http::Response;
use ratekeeper_policy::{Rule, WallTime};
use serde_json::{Value, json};

use super::query::Query;
use super::reply;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::problem::{Problem, UNKNOWN_PATH};
use crate::observe::key_usage::{usage_of, with_variants};
use crate::serve::listener::Reply;

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
    let usage = with_variants(
        &shared.keeper.owners(),
        shared.keeper.store().local().usage(),
    );
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
