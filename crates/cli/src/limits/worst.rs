//! Worst: the maximum that a limit ever admits of one key, in numbers.

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Call, Nanos, Permits};
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

/// Permits that come back and add to the worst case.
pub(crate) struct Returned {
    /// The word in `explain --json`.
    pub(crate) code: &'static str,
    pub(crate) text: &'static str,
}

/// Returns the permits that add to the worst case of a limit because they come back.
pub(crate) fn returned(rule: &Rule) -> impl Iterator<Item = Returned> {
    let algorithm = &rule.limit.algorithm;
    let corrected = rule.correction.is_some().then_some(match algorithm {
        AnyAlgorithm::Gcra(_) | AnyAlgorithm::Interval(_) | AnyAlgorithm::Hybrid(_) => Returned {
            code: "of_earlier_charges",
            text: "a span also admits the permits that come back in it of earlier charges, each once",
        },
        _ => Returned {
            code: "once_after_a_reset",
            text: "after a reset or a change of numbers, permits charged before can come back once",
        },
    });
    // Envoy gives permits back without naming their charge.
    let takes_back = algorithm.supports(Call::Refund).is_ok() && algorithm.concurrency().is_none();
    let by_envoy = (rule.is_for_descriptors() && takes_back).then_some(Returned {
        code: "by_negative_hits",
        text: "by Envoy's negative hits: as many more can pass in a span as come back in it",
    });
    corrected.into_iter().chain(by_envoy)
}
