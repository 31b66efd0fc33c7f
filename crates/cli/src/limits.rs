//! Limits in words: which one is meant, how it decides, what it admits at worst.

use ratekeeper_core::{AnyAlgorithm, Nanos};
use ratekeeper_policy::{KeyPart, Policy, Rule, RuleMode};

use crate::{Failure, words};

/// The limit named `name`.
///
/// # Errors
/// There is none; the near spelling is shown, or all names.
pub(crate) fn named<'a>(policy: &'a Policy, name: &str) -> Result<&'a Rule, Failure> {
    policy.rule(name).ok_or_else(|| {
        let names = || policy.rules.iter().map(|rule| &*rule.limit.name);
        let failure = Failure::new(format!("there is no limit `{name}` in the policy"));
        match words::near(name, names()) {
            Some(near) => failure.hint(format!("did you mean `{near}`?")),
            None => failure.hint(format!("it has {}", names().collect::<Vec<_>>().join(", "))),
        }
    })
}

/// The word of the policy for a mode.
pub(crate) fn mode(rule: &Rule) -> &'static str {
    match rule.mode {
        RuleMode::Enforce => "enforce",
        RuleMode::Shadow => "shadow",
        RuleMode::Off => "off",
    }
}

/// Whom a limit counts: `ip`, `header:x-user + ip`, `all`.
pub(crate) fn key(rule: &Rule) -> String {
    let parts: Vec<String> = rule.key.iter().map(KeyPart::to_string).collect();
    if parts.is_empty() {
        "all".into()
    } else {
        parts.join(" + ")
    }
}

/// The span that the worst case is told for: the limit's own, or 31 days for months and
/// years.
pub(crate) fn span(rule: &Rule) -> Nanos {
    rule.window.unwrap_or(Nanos::from_secs(31 * 86_400))
}

/// The most that one key is ever admitted: `at most 39 in any 1 s; 20 at once`.
pub(crate) fn worst_case(rule: &Rule) -> String {
    let algorithm: &AnyAlgorithm = &rule.limit.algorithm;
    let span = span(rule);
    let (within, at_once) = (algorithm.bound(span), u64::from(algorithm.capacity().get()));
    let within_span = format!(
        "at most {} in any {}",
        words::count(within),
        words::span(span)
    );
    if at_once == within {
        return within_span;
    }
    format!("{within_span}; {} at once", words::count(at_once))
}
