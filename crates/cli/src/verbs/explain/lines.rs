//! Lines: a limit in words, as `explain` lists it and the admin listener answers it.

use std::fmt::Display;

use ratekeeper_core::{Algorithm as _, LimitScope};
use ratekeeper_policy::{
    Allowance, Description, MissingKey, Policy, Returned, Role, Rule, RuleMode, WallTime,
};

use crate::{limits, words};

/// Lines, each with a label in front.
#[derive(Default)]
pub(crate) struct Lines(pub(crate) Vec<(&'static str, String)>);

impl Lines {
    fn add<T: Display>(&mut self, label: &'static str, texts: impl IntoIterator<Item = T>) {
        let texts = texts.into_iter();
        self.0.extend(texts.map(|text| (label, text.to_string())));
    }

    fn shown(self) -> Vec<String> {
        let lines = self.0.into_iter();
        lines
            .map(|(label, text)| format!("    {label:<9} {text}"))
            .collect()
    }
}

/// Returns a limit in words, as lines to show.
pub(crate) fn about(policy: &Policy, rule: &Rule, wall: WallTime) -> Vec<String> {
    parts(policy, rule, wall).shown()
}

/// Returns a limit in words: its requests, its key, its numbers and what they admit.
pub(crate) fn parts(policy: &Policy, rule: &Rule, wall: WallTime) -> Lines {
    let mut lines = Lines::default();
    let requests = [match limits::fields(&rule.matcher) {
        fields if fields.is_empty() => limits::requests(rule),
        fields if rule.is_for_descriptors() => {
            format!("{} where {fields}", limits::requests(rule))
        }
        fields => fields,
    }];
    lines.add("for", requests);
    lines.add("counts by", [limits::key(rule) + &missing(rule)]);
    let exempt = rule.exemptions.iter().map(|it| limits::exemption(it));
    lines.add("exempt", exempt);
    lines.0.extend(number_lines(policy, rule, wall).0);
    let plans = policy.plans.iter().flat_map(|plans| rule.plans(plans));
    let plans = joined(plans.map(|(name, allowed)| format!("{name} {}", allowance(rule, allowed))));
    lines.add("plans", plans);
    let overrides = rule.variants.overrides().len();
    let overrides = (overrides > 0).then(|| words::counted(overrides, "key"));
    lines.add("overrides", overrides);
    lines
}

/// Returns an allowance in the words of the policy.
pub(crate) fn allowance(rule: &Rule, allowance: Allowance) -> &str {
    match allowance {
        Allowance::Own => &rule.text,
        Allowance::Unlimited => "unlimited",
        Allowance::Blocked => "blocked",
        Allowance::Variant(index) => {
            let variant = rule.variants.numbers().get(index as usize);
            variant.map_or("", |variant| &*variant.text)
        }
    }
}

/// Returns texts as a list; `None` without a text.
fn joined(texts: impl Iterator<Item = String>) -> Option<String> {
    let texts: Vec<_> = texts.collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

fn missing(rule: &Rule) -> String {
    if rule.key_parts().next().is_none() {
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
    number_lines(policy, rule, wall).shown()
}

fn number_lines(policy: &Policy, rule: &Rule, wall: WallTime) -> Lines {
    let mut lines = Lines::default();
    let told = Description::of(&policy.rules, rule);
    lines.add("active", limits::active(rule, wall));
    let limit = [format!("{}: {}", rule.text, rule.limit.algorithm.name())];
    lines.add("limit", limit);
    let months = rule.variants.day_attribute().map(|attribute| {
        format!("begin on the day of the key in attr:{attribute}, on day 1 without one")
    });
    lines.add("months", months);
    lines.add("cost", limits::cost(rule));
    lines.add("at worst", [limits::worst_case(rule)]);
    lines.add("at least", [limits::at_least(rule)]);
    lines.add("alert", limits::alert(rule));
    lines.add("ban", limits::ban(rule));
    lines.add("body", rule.body_fields().next().map(|field| {
        format!(
            "read by the proxy listener and the tower layer; other callers send `{field}` as an \
             attribute"
        )
    }));
    lines.add("results", limits::corrections(rule));
    lines.add("back", told.worst_case.returned.iter().map(|returned| match returned {
        Returned::OfEarlierCharges => {
            "a span also admits the permits that come back in it of earlier charges, each once"
        }
        Returned::OnceAfterAReset => {
            "after a reset or a change of numbers, permits charged before can come back once"
        }
        Returned::ByNegativeHits => {
            "by Envoy's negative hits: as many more can pass in a span as come back in it"
        }
    }));
    let distinct = told.distinct.iter();
    let value = |it| format!("different values of {it} are counted, each once in a window");
    lines.add("values", distinct.map(value));
    lines.add("priority", limits::priority(rule));
    add_beside(&mut lines, policy, rule, &told);
    let lent = rule.limit.algorithm.concurrency();
    let taken_by = lent.map(|_| "POST /v1/acquire or the gateway; a check tests if one is free");
    lines.add("taken by", taken_by);
    let store = policy.settings.redis.as_ref().map(|redis| {
        let (deadline, then) = (words::span(redis.deadline), told.on_store_error);
        format!("deadline {deadline}, then on_store_error = \"{then}\"; late charges are kept")
    });
    lines.add("store", store);
    lines
}

/// Adds the rules beside a limit: its alternatives, those that it replaces, and its trials.
fn add_beside(lines: &mut Lines, policy: &Policy, rule: &Rule, told: &Description) {
    let beside = |index: &u32| policy.rules.get(*index as usize);
    let alternatives = || rule.otherwise.iter().filter_map(beside);
    for other in alternatives() {
        let (text, worst) = (&other.text, limits::worst_case(other));
        match &other.role {
            Role::Soft => lines.add(
                "soft",
                [format!("{text} more, with a warning; at worst {worst}")],
            ),
            Role::Elastic(gate) => {
                let (signal, below) = (gate.signal().name(), gate.below());
                let line =
                    format!("{text} more while `{signal}` is below {below}; at worst {worst}");
                lines.add("elastic", [line]);
            }
            Role::Limit | Role::Allowance | Role::Candidate | Role::Seen => {}
        }
    }
    let named = alternatives().filter(|other| !other.is_extra());
    let otherwise = joined(named.map(|other| other.limit.name.to_string()));
    lines.add("otherwise", otherwise);
    let together = told.together.iter();
    let each = together.map(|it| limits::together(policy, rule, it));
    lines.add("together", each);
    let not_yet = match rule.mode {
        RuleMode::Enforce => "",
        RuleMode::Shadow | RuleMode::Off => " once it is enforced",
    };
    let listed = joined(told.replaces.iter().cloned());
    let replaces =
        listed.map(|names| format!("{names}{not_yet}: not asked where this limit applies"));
    lines.add("replaces", replaces);
    let routes = rule.on_limit.iter();
    let sends = |route| format!("the gateway sends the request to the route `{route}`");
    lines.add("on limit", routes.map(sends));
    let percent = rule
        .percent
        .map(|share| format!("enforced for {share} of its keys, in shadow mode for the others"));
    lines.add("percent", percent);
    let candidate = rule.candidate.as_ref().and_then(beside).map(|other| {
        let (text, worst) = (&other.text, limits::worst_case(other));
        format!("{text}, tried on the requests that pass, refuses none; at worst {worst}")
    });
    lines.add("candidate", candidate);
    let is_of_node = rule.limit.scope == LimitScope::Node;
    let of_node = "each process counts by itself, in a shared store as well";
    lines.add("scope", is_of_node.then_some(of_node));
}
