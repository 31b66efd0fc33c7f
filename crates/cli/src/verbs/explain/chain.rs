//! Chain: a limit and the limits that are asked when it denies, with the maximum of all together.

use ratekeeper_core::Nanos;
use ratekeeper_policy::{Policy, Role, Rule};

use crate::worst::Worst;
use crate::{Failure, Output, limits, words, worst};

/// Writes the alternatives of a limit, and the maximum that it and they admit together.
pub(super) fn write(policy: &Policy, rule: &Rule, output: &mut Output) -> Result<(), Failure> {
    let mut names = Vec::new();
    for other in limits::alternatives(policy, rule) {
        let (text, worst) = (&other.text, worst::worst_case(other));
        match &other.role {
            Role::Soft => output.line(format!(
                "    soft      {text} more, with a warning; at worst {worst}"
            ))?,
            Role::Elastic(gate) => output.line(format!(
                "    elastic   {text} more while `{}` is below {}%; at worst {worst}",
                gate.signal().name(),
                gate.below_percent()
            ))?,
            Role::Limit | Role::Allowance | Role::Candidate | Role::Seen => {
                names.push(&*other.limit.name);
            }
        }
    }
    if !names.is_empty() {
        output.line(format!("    otherwise {}", names.join(", ")))?;
    }
    if let Some(Together { permits, span }) = Together::of(policy, rule) {
        let mut chain = std::iter::once(rule).chain(limits::alternatives(policy, rule));
        let granted = if chain.any(worst::is_prepaid) {
            ", and what is granted"
        } else {
            ""
        };
        output.line(format!(
            "    together  at most {} in any {}{granted}",
            words::count(permits),
            words::span(span)
        ))?;
    }
    Ok(())
}

/// Maximum that one key of a limit is ever admitted by it and its alternatives.
///
/// A request is charged to one limit of the chain, so the maxima of the limits add up; over the
/// longest of their spans, because each of them has a maximum in every span. Credits have none.
pub(super) struct Together {
    pub(super) permits: u64,
    pub(super) span: Nanos,
}

impl Together {
    /// Returns the maximum of a chain; `None` for a limit that stands alone.
    pub(super) fn of(policy: &Policy, rule: &Rule) -> Option<Self> {
        let chain = || std::iter::once(rule).chain(limits::alternatives(policy, rule));
        if rule.otherwise.is_empty() {
            return None;
        }
        let refilled = chain().filter(|rule| !worst::is_prepaid(rule));
        let span = refilled.map(worst::span).max()?;
        let permits = chain()
            .map(|rule| Worst::in_any(span, rule).within)
            .fold(0, u64::saturating_add);
        Some(Self { permits, span })
    }
}
