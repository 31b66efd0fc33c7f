//! What if: the last hour of a limit, decided again with other numbers.
//!
//! ```text
//!   record --sorted by key--> one key after the other, from a fresh state, in its own time
//! ```
//!
//! The algorithm is the limit's own, so a number decides here as it would have decided there, for
//! keys that were fresh at the start of the record and clients that would have asked the same.

use std::sync::Arc;

use ratekeeper_core::{Algorithm, AnyAlgorithm, AnyState, Origin, Permits, Quota, Time};
use ratekeeper_policy::{Role, Rule};
use serde_json::{Value, json};

use super::query::Query;
use super::reply;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::problem::{Problem, WRONG_QUERY, shown};
use crate::observe::recorder::{Recorded, RecordedRequest};

/// Maximum number of numbers of a call.
const MAX_NUMBERS: usize = 4;

/// The refusals of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Refusals {
    requests: u64,
    /// Number of keys with at least one.
    keys: u64,
}

/// `GET /v1/whatif?limit=NAME&number=80/1m`, with up to four numbers.
pub(super) async fn answer(shared: &Arc<ServiceContext>, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "number"])?;
    let texts = query.texts("number");
    let wrong = |detail: String| Problem::new(WRONG_QUERY, detail);
    if texts.is_empty() || texts.len() > MAX_NUMBERS {
        let detail = format!("expected `number` once, and {MAX_NUMBERS} times at most");
        return Err(wrong(detail));
    }
    let policy = shared.keeper.policy();
    let rule = query.rule(&policy)?;
    let name = &rule.limit.name;
    if let Some(why) = unsuitable(rule, shared.origin()) {
        let detail = format!("limit `{name}` cannot be decided again: {why}");
        return Err(wrong(detail));
    }
    let mut algorithms = vec![rule.limit.algorithm.clone()];
    for text in &texts {
        let quota = text.trim().parse::<Quota>();
        let other = quota.and_then(|quota| {
            let algorithm = &rule.limit.algorithm;
            let saves = quota.burst_size() == quota.permits() && is_leaky(rule);
            let quota = if saves { quota.burst(1) } else { quota };
            algorithm.with_quota(quota, shared.origin())
        });
        algorithms.push(other.map_err(|error| {
            let text = shown(text);
            wrong(format!(
                "`number={text}` is not a number of this limit ({error}); write for example \
                 `80/1m` or `50/1s burst 100`"
            ))
        })?);
    }
    let now = shared.now();
    let one = shared.whatif.lock().await;
    let id = rule.limit.id;
    let work = shared.apart(move |shared| {
        let recorded = shared.observers.watchers.recorder.recorded(id, now)?;
        Some(decided_again(recorded, &algorithms, now))
    });
    let decided = work.await;
    drop(one);
    let Some(Some((mut answer, refusals))) = decided else {
        return Err(wrong(format!("limit `{name}` has no record")));
    };
    let texts = std::iter::once(&*rule.text).chain(texts);
    let each = texts.zip(refusals).map(|(text, refusals)| {
        json!({
            "limit": text,
            "denied": refusals.requests,
            "distinct_denied": refusals.keys,
        })
    });
    let mut each: Vec<Value> = each.collect();
    answer["limit"] = json!(&*rule.limit.name);
    answer["present"] = each.remove(0);
    answer["numbers"] = json!(each);
    Ok(reply(&answer))
}

/// Returns why a limit depends on more than its requests; `None` if it does not.
fn unsuitable(rule: &Rule, origin: Origin) -> Option<&'static str> {
    let algorithm = &rule.limit.algorithm;
    let is_chained = !rule.otherwise.is_empty() || !matches!(rule.role, Role::Limit);
    let queues = algorithm
        .queue()
        .is_some_and(|(permits, _)| permits > Permits::ZERO);
    let balance = matches!(algorithm, AnyAlgorithm::Balance(_));
    if is_chained {
        Some("other limits act in its place, or it in theirs")
    } else if algorithm.concurrency().is_some() || balance {
        Some("it counts permits on loan or credits")
    } else if queues {
        Some("requests wait in its queue")
    } else if rule.correction.is_some() {
        Some("reports correct its charges")
    } else if rule.distinct.is_some() || rule.priority.is_some() {
        Some("it counts values, or keeps a part for some requests")
    } else if rule.unit.is_some() || rule.window.is_none() {
        Some("it has a unit, or windows of the calendar")
    } else if !rule.is_of_quota(origin) {
        Some("it has a gap, a warm-up or steps, which are more than a number")
    } else {
        None
    }
}

/// Returns true if it lets one request pass at a time, however many permits its number has.
fn is_leaky(rule: &Rule) -> bool {
    let kept = rule.keeps_to.map(Quota::permits);
    rule.quota == Permits::ONE && kept > Some(Permits::ONE)
}

/// Decides the requests of a record by each algorithm.
fn decided_again(
    Recorded {
        mut requests,
        since,
        halvings,
    }: Recorded,
    algorithms: &[AnyAlgorithm],
    now: Time,
) -> (Value, Vec<Refusals>) {
    requests.sort_by_key(|request| (request.key, request.at));
    let keys = || requests.chunk_by(|a, b| a.key == b.key);
    let refusals = algorithms.iter().map(|algorithm| {
        keys().fold(Refusals::default(), |all, one| {
            let denied = denied(algorithm, one);
            Refusals {
                requests: all.requests + denied,
                keys: all.keys + u64::from(denied > 0),
            }
        })
    });
    let sampled = 100.0 * 0.5_f64.powi(i32::try_from(halvings).unwrap_or(i32::MAX));
    let answer = json!({
        "covers_ms": now.since(since).as_millis_ceil(),
        "sampled_keys_percent": sampled,
        "requests": requests.len(),
        "keys": keys().count(),
    });
    (answer, refusals.collect())
}

/// Returns the number of refused requests of one key.
fn denied(algorithm: &AnyAlgorithm, requests: &[RecordedRequest]) -> u64 {
    let mut state = AnyState::default();
    let denies = |request: &&RecordedRequest| {
        let decision = algorithm.decide(&mut state, request.at, request.cost);
        !decision.verdict.allows()
    };
    requests.iter().filter(denies).count() as u64
}
