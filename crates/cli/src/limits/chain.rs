//! Chain: the most that a limit and its alternatives let pass together.

use ratekeeper_core::Nanos;
use ratekeeper_policy::{Policy, Rule, RuleMode};

use super::{Worst, alternatives, amount, is_balance, span};
use crate::words;

/// The worst case of a chain: each limit of it is spent, one after the other.
pub(crate) struct Together<'a> {
    /// The longest of the spans of its limits, except balances.
    pub(crate) span: Nanos,
    /// Each limit, and the most that it lets pass in the span.
    pub(crate) parts: Vec<(&'a Rule, u64)>,
}

impl<'a> Together<'a> {
    /// Returns `None` for a limit that asks no other.
    pub(crate) fn of(policy: &'a Policy, rule: &'a Rule) -> Option<Self> {
        let asked = alternatives(policy, rule).filter(|other| other.mode != RuleMode::Off);
        let asked: Vec<_> = std::iter::once(rule).chain(asked).collect();
        let refilled = asked.iter().filter(|rule| !is_balance(rule));
        let span = refilled.map(|rule| span(rule)).max()?;
        let parts = asked
            .iter()
            .map(|rule| (*rule, Worst::in_any(span, rule).within));
        (asked.len() > 1).then(|| Self {
            span,
            parts: parts.collect(),
        })
    }

    /// Returns the sum.
    pub(crate) fn within(&self) -> u64 {
        let add = |sum: u64, (_, most): &(_, u64)| sum.saturating_add(*most);
        self.parts.iter().fold(0, add)
    }
}

/// Returns the worst case in words: `at most 1,700 in any 30 d: 1,000 by api, 700 by team, which all
/// requests with the same attr:team share`.
pub(crate) fn together(policy: &Policy, rule: &Rule) -> Option<String> {
    let chain = Together::of(policy, rule)?;
    let part = |(other, most): &(&Rule, u64)| {
        let (most, name) = (amount(other, *most), &other.limit.name);
        let key: Vec<_> = other.key.iter().map(ToString::to_string).collect();
        let shared = if other.key == rule.key {
            String::new()
        } else if key.is_empty() {
            ", which all requests share".into()
        } else {
            format!(", which requests with the same {} share", key.join(" and "))
        };
        let granted = if is_balance(other) {
            " and what is granted to it"
        } else {
            ""
        };
        format!("{most} by {name}{granted}{shared}")
    };
    let parts: Vec<_> = chain.parts.iter().map(part).collect();
    Some(format!(
        "at most {} in any {}: {}",
        amount(rule, chain.within()),
        words::span(chain.span),
        parts.join("; ")
    ))
}
