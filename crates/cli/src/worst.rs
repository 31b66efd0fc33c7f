//! Worst: the maximum that a limit ever admits, as numbers and in words.

use ratekeeper_core::{Algorithm as _, AnyAlgorithm, Nanos, Permits, Quota};
use ratekeeper_policy::Rule;

use crate::words;

/// Returns the maximum that one key is ever admitted, in words: `at most 39 in any 1 s; 20 at
/// once`, or for a queue `at most 9 in any 500 ms; 2 at once, 3 more wait up to 300 ms`.
pub(crate) fn worst_case(rule: &Rule) -> String {
    match &rule.active {
        Some(_) => format!("{}, while it is active", admitted(rule)),
        None => admitted(rule),
    }
}

fn admitted(rule: &Rule) -> String {
    if let Some(limit) = rule.limit.algorithm.concurrency() {
        let at_once = limit.capacity().get();
        return format!(
            "at most {} in flight at once; the permits of a crashed holder return after {}",
            words::count(at_once),
            words::span(limit.lease())
        );
    }
    let Worst {
        within,
        span,
        at_once,
        waiting,
    } = Worst::of(rule);
    if is_prepaid(rule) {
        return format!(
            "at most {} at once, and what is granted",
            words::count(at_once)
        );
    }
    let within_span = format!(
        "at most {} in any {}",
        words::count(within),
        words::span(span)
    );
    match waiting {
        Some((places, longest)) => format!(
            "{within_span}; {} at once, {} more wait up to {}",
            words::count(at_once),
            words::count(places.get()),
            words::span(longest)
        ),
        None if at_once == within => within_span,
        None => format!("{within_span}; {} at once", words::count(at_once)),
    }
}

/// Returns true if the limit spends credits: grants add to its maximum.
pub(crate) fn is_prepaid(rule: &Rule) -> bool {
    matches!(rule.limit.algorithm, AnyAlgorithm::Balance(_))
}

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

/// Returns the span of the worst case: the limit's own, or 31 days for months and years.
pub(crate) fn span(rule: &Rule) -> Nanos {
    let span = rule.keeps_to.map(Quota::per).or(rule.window);
    span.unwrap_or(Nanos::from_secs(31 * 86_400))
}
