//! Reports: the results of reports, as labels.

use super::Metrics;

/// The result of a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReportResult {
    Corrected,
    Repeated,
    NotOpen,
    Error,
}

impl ReportResult {
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Corrected, "corrected"),
        (Self::Repeated, "repeated"),
        (Self::NotOpen, "not_open"),
        (Self::Error, "error"),
    ];
}

impl Metrics {
    pub(crate) fn report(&self, result: ReportResult) {
        self.reports[result as usize].add(1);
    }
}
