//! Reports: the results of reports, as labels.

use super::Metrics;

/// The result of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReportResult {
    Corrected,
    Repeated,
    NotOpen,
    Error,
    /// The response had no amount in the field that `settle` names.
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
    /// Notes the number of charges that a response of the upstream left at their estimate.
    pub(crate) fn unsettled(&self, charges: usize) {
        if charges > 0 {
            self.reports[ReportResult::Unsettled as usize].add(charges as u64);
        }
    }

    pub(crate) fn report(&self, result: ReportResult) {
        self.reports[result as usize].add(1);
    }
}
