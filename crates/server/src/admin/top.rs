//! Top: the busiest and the most refused keys of a limit, and the limits that refuse most.

use ratekeeper_core::{Key, LimitId, Nanos, Time};
use ratekeeper_policy::{Policy, Rule, RuleMode};
use ratekeeper_store::Fallback;
use serde_json::{Value, json};

use super::dashboard::store;
use super::query::Query;
use super::reply;
use crate::context::ServiceContext;
use crate::doors::CallResult;
use crate::doors::problem::Problem;
use crate::observe::alerts::message::rfc3339;
use crate::observe::changes::{ChangeKind, NOT_SAVED};
use crate::observe::country_hours::HOURS;
use crate::observe::top_keys::{ERROR_PERCENT, TopKeysFound, TopOrder, TopWindow};
use crate::store::by_hand;

/// Maximum number of countries that are listed.
const MAX_COUNTRIES: usize = 20;
const HOUR_MILLIS: u64 = 3_600_000;
/// Maximum number of warnings in the notes.
const MAX_CHANGES: usize = 5;
/// Time for which a warning is in the notes.
const NOTED: Nanos = Nanos::from_secs(15 * 60);

/// The order, the window and the length of a list: `by=denied&window=1m&count=20`.
#[derive(Default)]
struct TopQuery {
    by: TopOrder,
    window: TopWindow,
    count: usize,
}

impl TopQuery {
    fn read(query: &Query<'_>) -> Result<Self, Problem> {
        let by = query.parsed("by", "`denied` or `requests`", |text| text.parse().ok())?;
        let window = query.parsed("window", "`1m` or `1h`", |text| match text {
            "1m" => Some(TopWindow::Minute),
            "1h" => Some(TopWindow::Hour),
            _ => None,
        })?;
        Ok(Self {
            by: by.unwrap_or_default(),
            window: window.unwrap_or_default(),
            count: query.top("count")?,
        })
    }
}

/// `GET /v1/top?limit=NAME&by=denied&window=1m&count=20`: the keys of a limit; without `limit`, the
/// limits.
pub(super) fn answer(shared: &ServiceContext, query: &str) -> CallResult {
    let query = Query::read(query, &["limit", "by", "window", "count"])?;
    let listed = TopQuery::read(&query)?;
    let policy = shared.keeper.policy();
    let answer = if query.text("limit").is_some() {
        let rule = query.rule(&policy)?;
        keys(shared, rule, &listed)
    } else {
        limits(shared, &policy, &listed)
    };
    Ok(reply(&answer))
}

/// Returns the keys of a limit that were refused most in this minute and the one before it.
pub(super) fn most_refused(shared: &ServiceContext, rule: &Rule, count: usize) -> Value {
    let query = TopQuery {
        count,
        ..TopQuery::default()
    };
    keys(shared, rule, &query)
}

/// Returns the number of keys that asked a limit in this hour and the one before it, of those that
/// it refused, and of those that it did not refuse in the one before.
pub(super) fn keys_of_the_hour(shared: &ServiceContext, limit: LimitId, now: Time) -> Value {
    let top_keys = &shared.observers.watchers.top_keys;
    let found = top_keys.top(limit, TopOrder::Denied, TopWindow::Hour, 0, now);
    json!({ "asked": found.distinct, "keys": found.distinct_denied, "first": found.first_denied })
}

fn keys(shared: &ServiceContext, rule: &Rule, query: &TopQuery) -> Value {
    let how = shared.keeper.policy().settings.reveal_keys;
    let now = shared.now();
    let reveal = shared.key_reveal(how);
    let top_keys = &shared.observers.watchers.top_keys;
    let found = top_keys.top(rule.limit.id, query.by, query.window, query.count, now);
    let keys = found.keys.iter().map(|key| {
        let free_in_ms = |at| match at {
            Time::MAX => Value::Null,
            at => json!(at.since(now).as_millis_ceil()),
        };
        let refused = key.denied_since.map(|since| {
            json!({
                "since": rfc3339(shared.unix_millis(since)),
                "next_free_in_ms": key.free_at.map_or(Value::Null, free_in_ms),
            })
        });
        json!({
            "key": reveal.key(rule, Key::from_bytes(&key.key)),
            "requests": key.requests,
            "denied": key.denied,
            "refused": refused,
        })
    });
    let keys: Vec<Value> = keys.collect();
    let mut answer = about(shared, rule, &found, now);
    answer["reveal_keys"] = json!(how.as_ref());
    answer["unlisted_at_most"] = json!(found.unlisted_at_most);
    answer["keys"] = json!(keys);
    answer
}

/// Returns the limits in the order of their counts, refusals in shadow mode after all others, and
/// those with equal counts in the order of the policy.
fn limits(shared: &ServiceContext, policy: &Policy, query: &TopQuery) -> Value {
    let now = shared.now();
    let top_keys = &shared.observers.watchers.top_keys;
    let top = |rule: &Rule| top_keys.top(rule.limit.id, query.by, query.window, 1, now);
    let each = policy.rules.iter().map(|rule| (rule, top(rule)));
    let mut each: Vec<_> = each.collect();
    each.sort_by_key(|(rule, found)| {
        let refused = if rule.mode == RuleMode::Enforce {
            found.denied
        } else {
            0
        };
        std::cmp::Reverse(match query.by {
            TopOrder::Denied => (refused, found.denied, found.requests),
            TopOrder::Requests => (found.requests, refused, found.denied),
        })
    });
    let more = each.len().saturating_sub(query.count);
    each.truncate(query.count);
    let about = |(rule, found): &(&Rule, TopKeysFound)| {
        let mut about = about(shared, rule, found, now);
        about["busiest"] = json!(found.keys.first().map(|key| match query.by {
            TopOrder::Denied => key.denied,
            TopOrder::Requests => key.requests,
        }));
        let metrics = &shared.observers.metrics;
        about["near"] = json!(metrics.near(rule.limit.id));
        about["highest_percent"] = json!(shared.observers.history.highest(rule.limit.id));
        about["decisions"] = metrics.decisions(rule.limit.id).into_iter().collect();
        about
    };
    let limits: Vec<Value> = each.iter().map(about).collect();
    json!({
        "version": policy.version,
        "sha": &*policy.sha,
        "at": rfc3339(shared.unix_millis(now)),
        "store": store(shared),
        "upstreams": shared.observers.metrics.process.upstreams.describe(),
        "limits": limits,
        "more": more,
        "countries": countries(shared, policy),
        "notes": notes(shared, now),
    })
}

/// Returns the countries with the most requests of 24 hours, and each hour of them; `null` if the
/// policy knows no countries.
pub(super) fn countries(shared: &ServiceContext, policy: &Policy) -> Value {
    let found = shared.observers.countries.busiest(MAX_COUNTRIES);
    let Some((hour, days)) = found.filter(|_| policy.geo.is_some()) else {
        return Value::Null;
    };
    let first = (hour + 1).saturating_sub(HOURS as u64);
    json!({
        "since": rfc3339(first * HOUR_MILLIS),
        "countries": days,
    })
}

/// Returns the faults of the service, and the last warnings of [`NOTED`]: those of the dashboard.
fn notes(shared: &ServiceContext, now: Time) -> Vec<String> {
    let mut notes = Vec::new();
    let store = shared.keeper.store().shared();
    if store.is_some_and(Fallback::is_down) {
        notes.push("the store does not answer: limits follow their `on_store_error`".to_owned());
    }
    if shared.observers.metrics.is_rejected() {
        notes.push("the files of the policy are refused: the old policy stays in force".to_owned());
    }
    let state = shared.state.as_ref();
    if state.is_some_and(|folder| folder.levels.lock().is_failing) {
        notes.push(NOT_SAVED.to_owned());
    }
    notes.extend(shared.observers.metrics.process.upstreams.faults());
    let changes = shared.observers.changes.latest().into_iter();
    let changes = changes.filter(|it| it.kind != ChangeKind::Change);
    let changes = changes.filter(|it| now.since(it.at) <= NOTED);
    notes.extend(changes.take(MAX_CHANGES).map(|change| {
        let line = change.text.lines().next().unwrap_or_default();
        format!("{} {line}", rfc3339(change.unix_millis))
    }));
    notes
}

fn about(shared: &ServiceContext, rule: &Rule, found: &TopKeysFound, now: Time) -> Value {
    json!({
        "limit": &*rule.limit.name,
        "mode": rule.mode.as_ref(),
        "since": rfc3339(shared.unix_millis(found.since)),
        "covers_ms": now.since(found.since).as_millis_ceil(),
        "requests": found.requests,
        "denied": found.denied,
        "distinct_denied": found.distinct_denied,
        "distinct_error_percent": ERROR_PERCENT,
        "banned": found.banned,
        "key_missing": found.no_key[0],
        "blocked": found.no_key[1],
        "cause": found.cause(),
        "bans": by_hand::banned_keys(shared, rule),
        "uncounted": shared.observers.watchers.top_keys.uncounted(rule.limit.id),
    })
}
