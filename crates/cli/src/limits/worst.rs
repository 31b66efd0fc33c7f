//! Worst: the maximum that a limit ever admits of one key, in numbers.

use ratekeeper_core::{Algorithm as _, Nanos, Permits};
use ratekeeper_policy::Rule;

use super::span;

/// Maximum that one key is ever admitted.
pub(crate) struct Worst {
    /// Permits in any `span`, including those that wait.
    pub(crate) within: u64,
    pub(crate) span: Nanos,
    /// Permits in one instant, except those that wait.
    pub(crate) at_once: u64,
    /// Maximum number that may wait at once, and for how long.
    pub(crate) waiting: Option<(Permits, Nanos)>,
}

impl Worst {
    pub(crate) fn of(rule: &Rule) -> Self {
        Self::in_any(span(rule), rule)
    }

    /// Returns the maximum in any `span`, which may be longer than the limit's own.
    pub(crate) fn in_any(span: Nanos, rule: &Rule) -> Self {
        let algorithm = &rule.limit.algorithm;
        // A report may owe more than the limit holds, but no request is admitted meanwhile.
        let estimated = rule.correction.as_deref().is_some_and(|it| it.is_estimate);
        let plain = estimated.then(|| algorithm.clone().with_patience(Nanos::ZERO));
        let algorithm = plain.as_ref().unwrap_or(algorithm);
        let waiting = algorithm.queue();
        let places = waiting.map_or(0, |(places, _)| places.get());
        Self {
            within: algorithm.bound(span),
            span,
            at_once: algorithm.bound(Nanos::from_nanos(1)) - places, // they are part of it
            waiting,
        }
    }
}
