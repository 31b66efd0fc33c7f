//! By limit: the values that an observer has for each limit of the policy in force.
//!
//! Ids count from zero, so that a decision finds the value of its limit without a hash; a reload
//! replaces the whole list.

use std::sync::Arc;

use ratekeeper_core::LimitId;
use ratekeeper_policy::Rule;

/// Values by [`LimitId`]; `None` for limits without one, and those that the policy has lost.
pub(super) type LimitValues<T> = Vec<Option<Arc<T>>>;

/// Returns the value of a limit.
pub(super) fn of<T>(values: &LimitValues<T>, limit: LimitId) -> Option<&Arc<T>> {
    values.get(limit.index())?.as_ref()
}

/// Returns the values of these rules, each as `value` makes it of the one in `old`.
pub(super) fn renewed<'r, T>(
    old: &LimitValues<T>,
    rules: impl IntoIterator<Item = &'r Rule>,
    value: impl Fn(&'r Rule, Option<&Arc<T>>) -> Option<Arc<T>>,
) -> LimitValues<T> {
    let mut values = LimitValues::new();
    for rule in rules {
        let id = rule.limit.id;
        if let Some(value) = value(rule, of(old, id)) {
            values.resize(values.len().max(id.index() + 1), None);
            values[id.index()] = Some(value);
        }
    }
    values
}
