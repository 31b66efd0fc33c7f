//! Beside: the rules that belong to a limit, in words.

use ratekeeper_core::Algorithm as _;
use ratekeeper_policy::{Policy, Rule};

use super::{amount, fields};

/// Returns the rule with another number that is tried beside a limit.
pub(crate) fn candidate<'a>(policy: &'a Policy, rule: &Rule) -> Option<&'a Rule> {
    policy.rules.get(rule.candidate? as usize)
}

/// Returns the names of the limits that are not asked where a limit applies.
pub(crate) fn replaced<'a>(policy: &'a Policy, rule: &Rule) -> Vec<&'a str> {
    let named = |index: &u32| {
        policy
            .rules
            .get(*index as usize)
            .map(|rule| &*rule.limit.name)
    };
    rule.replaces.iter().filter_map(named).collect()
}

/// Returns the key part of which a limit counts different values; `None` if it counts requests.
pub(crate) fn distinct(policy: &Policy, rule: &Rule) -> Option<String> {
    let seen = policy.rules.get(rule.distinct? as usize);
    seen?.key.last().map(ToString::to_string)
}

/// Returns the part of a limit that is kept: `the last 20 of 100 are for path /health`.
pub(crate) fn priority(rule: &Rule) -> Option<String> {
    let priority = rule.priority.as_deref()?;
    let capacity = rule.limit.algorithm.capacity();
    let (last, of) = (priority.headroom(capacity), fields(&priority.matcher));
    Some(format!(
        "the last {} of {} are for {}",
        amount(rule, last.get()),
        amount(rule, capacity.get()),
        of.join(", ")
    ))
}
