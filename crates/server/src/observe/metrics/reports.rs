//! Reports: the results of reports, as labels.

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
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Corrected, "corrected"),
        (Self::Repeated, "repeated"),
        (Self::NotOpen, "not_open"),
        (Self::Error, "error"),
        (Self::Unsettled, "unsettled"),
    ];
}

impl Metrics {
    pub(crate) fn report(&self, result: ReportResult) {
        self.process.reports[result as usize].add(1);
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
