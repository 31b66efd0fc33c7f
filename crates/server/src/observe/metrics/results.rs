//! Results: those of reports, and of grants, as labels.

use super::{Metrics, Process};

/// The result of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReportResult {
    Corrected,
    Repeated,
    NotOpen,
    Error,
    /// The response had no amount where `settle` says.
    Unsettled,
}

impl ReportResult {
    pub(super) const NAMES: [&str; 5] = ["corrected", "repeated", "not_open", "error", "unsettled"];
}

/// The result of a grant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum GrantResult {
    Added,
    Repeated,
    Error,
}

impl GrantResult {
    pub(super) const NAMES: [&str; 3] = ["added", "repeated", "error"];
}

impl Metrics {
    pub(crate) fn report(&self, result: ReportResult) {
        self.process.reports[result as usize].add(1);
    }

    pub(crate) fn grant(&self, result: GrantResult) {
        self.grants[result as usize].add(1);
    }
}

impl Process {
    /// Notes the number of charges that a response of the upstream left at their estimate.
    pub(crate) fn unsettled(&self, charges: usize) {
        if charges > 0 {
            self.reports[ReportResult::Unsettled as usize].add(charges as u64);
        }
    }
}
