//! Document: what `explain --json` prints.

use ratekeeper_policy::Policy;
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
    let rules = policy.rules.iter().zip(policy.rules.descriptions());
    let limits = rules.enumerate().map(|(index, (rule, description))| {
        let mut limit = description.clone();
        if let Some(active) = rule.active.as_deref() {
            let change = limits::next_change(active, wall);
            limit["now"] = json!({
                "active": active.is_active(wall),
                "changes_at": change.as_ref().map(words::clock_time),
            });
        }
        if let Some(answer) = answers.and_then(|answers| answers.get(index)) {
            limit["request"] = answer_document(answer);
            if let (Some(_), LimitAnswer::Applies(applied)) = (rule.percent, answer) {
                limit["request"]["mode"] = applied.mode.to_string().into();
            }
        }
        limit
    });
    let mut document = json!({
        "request": request.map(CliRequest::to_string),
        "sha": &*policy.sha,
        "limits": limits.collect::<Vec<_>>(),
    });
    if let Some(redis) = &policy.settings.redis {
        document["store"] = json!({ "deadline_ms": redis.deadline.as_millis_ceil() });
    }
    if let Some(geo) = &policy.geo {
        document["geo"] = place::document(geo, request.and_then(|it| Place::of(policy, it)));
    }
    document
}

fn answer_document(answer: &LimitAnswer) -> Value {
    match answer {
        LimitAnswer::Applies(applied) => {
            let mut document = json!({
                "applies": true,
                "key": applied.key,
                "cost": applied.cost.get(),
                "key_missing": applied.fallback,
                "window_ends": applied.window_ends.as_ref().map(words::clock_time),
            });
            if !applied.more.is_empty() {
                document["more_keys"] = json!(applied.more);
            }
            if let Some(numbers) = &applied.numbers {
                let other = numbers.rule.as_ref().map(|rule| rule.text.as_str());
                document["numbers"] = json!({ "by": numbers.by, "limit": other });
            }
            document
        }
        LimitAnswer::Refuses(why) => json!({ "applies": true, "refuses": true, "why": why }),
        LimitAnswer::Not(why) => json!({ "applies": false, "why": why }),
    }
}
