//! Lines: a limit in words, as `explain` lists it and `top` shows it of a running service.

use ratekeeper_core::{Algorithm as _, LimitScope};
use ratekeeper_policy::{Allowance, MissingKey, Policy, Role, Rule, RuleMode, WallTime};

use crate::{limits, words};

/// Returns a limit in words, each line with its name in front: its requests, its key, its numbers
/// and what they admit.
pub(crate) fn about(policy: &Policy, rule: &Rule, wall: WallTime) -> Vec<String> {
    let fields = limits::fields(&rule.matcher);
    let requests = match fields.join(", ") {
        fields if fields.is_empty() => limits::requests(rule),
        fields if rule.is_for_descriptors() => {
            format!("{} where {fields}", limits::requests(rule))
        }
        fields => fields,
    };
    let mut lines = vec![
        format!("    for       {requests}"),
        format!("    counts by {}{}", limits::key(rule), missing(rule)),
    ];
    let exempt = |exemption| format!("    exempt    {}", limits::exemption(exemption));
    lines.extend(rule.exemptions.iter().map(|it| exempt(it)));
    lines.extend(numbers(policy, rule, wall));
    others(policy, rule, &mut lines);
    lines
}

fn missing(rule: &Rule) -> String {
    if rule.key.is_empty() || limits::key(rule) == "all" {
        return String::new();
    }
    match &rule.missing_key {
        MissingKey::Skip => ", skips requests without it".into(),
        MissingKey::Deny => ", refuses requests without it".into(),
        MissingKey::Shared => ", requests without it together".into(),
        MissingKey::Use(part) if rule.key.contains(part) => String::new(),
        MissingKey::Use(part) => format!(", requests without it by {part}"),
    }
}

/// Returns the numbers of a limit, and their bounds.
pub(super) fn numbers(policy: &Policy, rule: &Rule, wall: WallTime) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(times) = limits::active(rule, wall) {
        lines.push(format!("    active    {times}"));
    }
    lines.push(format!(
        "    limit     {}: {}",
        rule.text,
        rule.limit.algorithm.name()
    ));
    if let Some(attribute) = rule.variants.day_attribute() {
        lines.push(format!(
            "    months    begin on the day of the key in attr:{attribute}, on day 1 without one"
        ));
    }
    lines.push(format!("    at worst  {}", limits::worst_case(rule)));
    lines.push(format!("    at least  {}", limits::at_least(rule)));
    if let Some(alert) = limits::alert(rule) {
        lines.push(format!("    alert     {alert}"));
    }
    if let Some(ban) = limits::ban(rule) {
        lines.push(format!("    ban       {ban}"));
    }
    if let Some(field) = rule.body_fields().next() {
        lines.push(format!(
            "    body      read by the proxy listener and the tower layer; other callers send \
             `{field}` as an attribute"
        ));
    }
    for correction in limits::corrections(rule) {
        lines.push(format!("    results   {correction}"));
    }
    for returned in limits::returned(rule) {
        lines.push(format!("    back      {}", returned.text));
    }
    if let Some(value) = limits::distinct(policy, rule) {
        lines.push(format!(
            "    values    different values of {value} are counted, each once in a window"
        ));
    }
    if let Some(priority) = limits::priority(rule) {
        lines.push(format!("    priority  {priority}"));
    }
    alternatives(policy, rule, &mut lines);
    trials(policy, rule, &mut lines);
    if rule.limit.algorithm.concurrency().is_some() {
        lines.push(
            "    taken by  POST /v1/acquire or the gateway; a check tests if one is free"
                .to_owned(),
        );
    }
    if let Some(redis) = &policy.settings.redis {
        lines.push(format!(
            "    store     deadline {}, then on_store_error = \"{}\"; late charges are kept",
            words::span(redis.deadline),
            limits::on_store_error(rule)
        ));
    }
    lines
}

/// Adds the alternatives of a limit, which are asked when it denies.
fn alternatives(policy: &Policy, rule: &Rule, lines: &mut Vec<String>) {
    let mut names = Vec::new();
    for other in limits::alternatives(policy, rule) {
        let (text, worst) = (&other.text, limits::worst_case(other));
        let line = match &other.role {
            Role::Soft => format!("soft      {text} more, with a warning"),
            Role::Elastic(gate) => {
                let (signal, below) = (gate.signal().name(), gate.below());
                format!("elastic   {text} more while `{signal}` is below {below}")
            }
            Role::Limit | Role::Allowance | Role::Candidate | Role::Seen => {
                names.push(&*other.limit.name);
                continue;
            }
        };
        lines.push(format!("    {line}; at worst {worst}"));
    }
    if !names.is_empty() {
        lines.push(format!("    otherwise {}", names.join(", ")));
    }
    let together = limits::together(policy, rule);
    lines.extend(together.map(|most| format!("    together  {most}")));
}

/// Adds how a limit is tried before it is enforced, and the limits that it replaces.
fn trials(policy: &Policy, rule: &Rule, lines: &mut Vec<String>) {
    let names = limits::replaced(policy, rule).join(", ");
    if !names.is_empty() {
        let not_yet = match rule.mode {
            RuleMode::Enforce => "",
            RuleMode::Shadow | RuleMode::Off => " once it is enforced",
        };
        lines.push(format!(
            "    replaces  {names}{not_yet}: not asked where this limit applies"
        ));
    }
    if let Some(route) = &rule.on_limit {
        lines.push(format!(
            "    on limit  the gateway sends the request to the route `{route}`"
        ));
    }
    if let Some(share) = rule.percent {
        lines.push(format!(
            "    percent   enforced for {share} of its keys, in shadow mode for the others"
        ));
    }
    if let Some(candidate) = limits::candidate(policy, rule) {
        lines.push(format!(
            "    candidate {}, tried on the requests that pass, refuses none; at worst {}",
            candidate.text,
            limits::worst_case(candidate)
        ));
    }
    if rule.limit.scope == LimitScope::Node {
        lines.push(
            "    scope     each process counts by itself, in a shared store as well".to_owned(),
        );
    }
}

/// Adds the numbers of a limit for plans, and how many keys have numbers of their own.
fn others(policy: &Policy, rule: &Rule, lines: &mut Vec<String>) {
    let plans = policy.plans.iter().flat_map(|plans| rule.plans(plans));
    let plans: Vec<_> = plans
        .map(|(name, allowance)| match allowance {
            Allowance::Own => format!("{name} {}", rule.text),
            Allowance::Unlimited => format!("{name} unlimited"),
            Allowance::Blocked => format!("{name} blocked"),
            Allowance::Variant(index) => {
                let variant = rule.variants.numbers().get(index as usize);
                let text = variant.map_or("", |variant| variant.text.as_str());
                format!("{name} {text}")
            }
        })
        .collect();
    if !plans.is_empty() {
        lines.push(format!("    plans     {}", plans.join(", ")));
    }
    let overrides = rule.variants.overrides().len();
    if overrides > 0 {
        lines.push(format!(
            "    overrides {}",
            words::counted(overrides, "key")
        ));
    }
}
