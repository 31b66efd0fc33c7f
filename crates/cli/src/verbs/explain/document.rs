//! Document: what `explain --json` prints.

use ratekeeper_core::{Algorithm as _, LimitScope};
use ratekeeper_policy::{Field, Patterns, Policy, ResultSet, Role, Rule, WallTime};
use serde_json::{Value, json};

use super::wall;
use crate::answers::LimitAnswer;
use crate::place::{self, Place};
use crate::request::CliRequest;
use crate::{limits, words};

/// Returns the limits of a policy, and their answers to a request.
pub(super) fn document(
    policy: &Policy,
    request: Option<&CliRequest>,
    answers: Option<&[LimitAnswer]>,
) -> Value {
    let wall = wall(policy);
    let limits = policy.rules.iter().enumerate().map(|(index, rule)| {
        let mut limit = limit_document(policy, rule, wall);
        if let Some(answer) = answers.and_then(|answers| answers.get(index)) {
            limit["request"] = answer_document(answer);
            if let (Some(_), LimitAnswer::Applies { mode, .. }) = (rule.percent, answer) {
                limit["request"]["mode"] = mode.to_string().into();
            }
        }
        limit
    });
    let mut document = json!({
        "request": request.map(CliRequest::to_string),
        "sha": &*policy.sha,
        "limits": limits.collect::<Vec<_>>(),
    });
    if let Some(geo) = &policy.geo {
        document["geo"] = place::document(geo, request.and_then(|it| Place::of(policy, it)));
    }
    document
}

/// Returns the part about one limit that does not depend on the request.
fn limit_document(policy: &Policy, rule: &Rule, wall: WallTime) -> Value {
    let worst = limits::Worst::of(rule);
    let (waiting, longest) = worst.waiting.unwrap_or_default();
    let mut limit = json!({
        "name": &*rule.limit.name,
        "line": rule.line,
        "mode": limits::mode(rule),
        "limit": rule.text,
        "key": rule.key.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "match": rule.matcher.fields.iter().map(field_document).collect::<Vec<_>>(),
        "algorithm": rule.limit.algorithm.name(),
        "worst_case": {
            "permits": worst.within,
            "span_ms": worst.span.as_millis_ceil(),
            "at_once": worst.at_once,
            "waiting": waiting.get(),
            "longest_wait_ms": longest.as_millis_ceil(),
        },
    });
    match &rule.role {
        Role::Limit => {}
        Role::Soft => limit["role"] = json!("soft"),
        Role::Seen => limit["role"] = json!("seen"),
        Role::Allowance => limit["role"] = json!("allowance"),
        Role::Candidate => limit["role"] = json!("candidate"),
        Role::Elastic(gate) => {
            limit["role"] = json!("elastic");
            limit["while"] = json!({
                "signal": gate.signal().name(),
                "below": gate.below(),
            });
        }
    }
    add_counting(&mut limit, policy, rule);
    add_chain(policy, rule, &mut limit);
    add_trials(policy, rule, &mut limit);
    if let Some(concurrency) = rule.limit.algorithm.concurrency() {
        limit["worst_case"] = json!({
            "at_once": worst.at_once,
            "lease_ms": concurrency.lease().as_millis_ceil(),
        });
    }
    let returned: Vec<_> = limits::returned(rule).map(|it| it.code).collect();
    if !returned.is_empty() {
        limit["worst_case"]["returned"] = json!(returned);
    }
    let (share, kept) = (rule.least_served(), rule.keeps_to);
    limit["at_least"] = json!({
        "served": share.served(),
        "of": share.of(),
        "permits": kept.map(|quota| quota.permits().get()),
        "span_ms": kept.map(|quota| quota.per().as_millis_ceil()),
    });
    if let Some(redis) = &policy.settings.redis {
        limit["store"] = json!({
            "deadline_ms": redis.deadline.as_millis_ceil(),
            "on_store_error": limits::on_store_error(rule),
        });
    }
    if let Some(alert) = rule.alert {
        limit["alert"] = json!({
            "above_percent": alert.above_percent,
            "above": alert.level(rule.quota).get(),
            "for_ms": alert.hold.as_millis_ceil(),
        });
    }
    if let Some(terms) = rule.limit.algorithm.bans() {
        limit["ban"] = json!({
            "after": terms.strikes.permits().get(),
            "within_ms": terms.strikes.per().as_millis_ceil(),
            "for_ms": terms.first.as_millis_ceil(),
            "grow": f64::from(terms.growth_thousandths) / 1_000.0,
            "max_ms": terms.longest.as_millis_ceil(),
        });
    }
    if let Some(attribute) = rule.variants.day_attribute() {
        limit["day_attribute"] = attribute.into();
    }
    if let Some(correction) = rule.correction.as_deref() {
        limit["results"] = json!({
            "count": correction.count.as_ref().map(result_document),
            "reset_on": correction.reset_on.as_ref().map(result_document),
            "cost_is_estimate": correction.is_estimate,
            "settle": correction.settle.as_ref().map(ToString::to_string),
            "report_within_ms": correction.within.as_millis_ceil(),
        });
    }
    if let Some(active) = rule.active.as_deref() {
        let change = limits::next_change(active, wall);
        limit["active"] = json!({
            "times": active.to_string(),
            "now": active.is_active(wall),
            "changes_at": change.as_ref().map(words::clock_time),
        });
    }
    limit
}

/// Adds the limits that are asked when it denies, and the bound of all of them together.
fn add_chain(policy: &Policy, rule: &Rule, limit: &mut Value) {
    if !rule.otherwise.is_empty() {
        let names = limits::alternatives(policy, rule);
        let names = names.map(|other| &*other.limit.name);
        limit["otherwise"] = json!(names.collect::<Vec<_>>());
    }
    if let Some(chain) = limits::Together::of(policy, rule) {
        limit["together"] = json!({
            "within": chain.within(),
            "span_ms": chain.span.as_millis_ceil(),
        });
    }
}

/// Adds how a limit is tried, the limits that it replaces, and its scope.
fn add_trials(policy: &Policy, rule: &Rule, limit: &mut Value) {
    if !rule.replaces.is_empty() {
        limit["replaces"] = json!(limits::replaced(policy, rule));
    }
    if let Some(route) = &rule.on_limit {
        limit["on_limit"] = json!(format!("route:{route}"));
    }
    if let Some(share) = rule.percent {
        limit["percent"] = json!(share.percent());
    }
    if let Some(candidate) = limits::candidate(policy, rule) {
        limit["candidate"] = json!(&*candidate.limit.name);
    }
    if rule.limit.scope == LimitScope::Node {
        limit["scope"] = json!("node");
    }
}

/// Adds the values that a limit counts, and the part of it that is kept for some requests.
fn add_counting(limit: &mut Value, policy: &Policy, rule: &Rule) {
    if let Some(value) = limits::distinct(policy, rule) {
        limit["distinct"] = json!(value);
    }
    if let Some(priority) = rule.priority.as_deref() {
        limit["priority"] = json!({
            "last_percent": priority.last_percent,
            "last": priority.headroom(rule.limit.algorithm.capacity()).get(),
            "match": priority.matcher.fields.iter().map(field_document).collect::<Vec<_>>(),
        });
    }
}

fn field_document((field, patterns): &(Field, Patterns)) -> Value {
    json!({
        "field": field.to_string(),
        "values": patterns.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn result_document(set: &ResultSet) -> Value {
    let ranges = set.statuses.iter();
    let ranges = ranges.map(|(first, last)| json!({ "from": first, "to": last }));
    json!({ "status": ranges.collect::<Vec<_>>(), "outcome": set.outcomes })
}

fn answer_document(answer: &LimitAnswer) -> Value {
    match answer {
        LimitAnswer::Applies {
            key,
            cost,
            fallback,
            window_ends,
            numbers,
            ..
        } => {
            let mut document = json!({
                "applies": true,
                "key": key,
                "cost": cost.get(),
                "key_missing": fallback,
                "window_ends": window_ends.as_ref().map(words::clock_time),
            });
            if let Some(numbers) = numbers {
                let other = numbers.rule.as_ref().map(|rule| rule.text.as_str());
                document["numbers"] = json!({ "by": numbers.by, "limit": other });
            }
            document
        }
        LimitAnswer::Refuses(why) => json!({ "applies": true, "refuses": true, "why": why }),
        LimitAnswer::Not(why) => json!({ "applies": false, "why": why }),
    }
}
