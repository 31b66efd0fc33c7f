//! Grants: the results of grants, as labels.

use super::Metrics;

/// The result of a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GrantResult {
    Added,
    Repeated,
    Error,
}

impl GrantResult {
    pub(super) const ALL: [(Self, &'static str); 3] = [
        (Self::Added, "added"),
        (Self::Repeated, "repeated"),
        (Self::Error, "error"),
    ];
}

impl Metrics {
    pub(crate) fn grant(&self, result: GrantResult) {
        self.grants[result as usize].add(1);
    }
}
