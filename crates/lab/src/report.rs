//! Report: the result of a workload.

use ratekeeper_core::{Nanos, Permits, Time};

use crate::arrivals::Rate;
use crate::series::CountSeries;

/// Result of a workload played against a limit.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Rows by phase or by interval.
    pub rows: Vec<ReportRow>,
    /// Sum of all rows.
    pub total: AdmissionCounts,
    /// When the last request had passed or given up.
    pub end: Time,
    /// Requests over time.
    pub series: CountSeries,
    /// Reason for ending early; `None` if the workload was played to its end.
    pub stop: Option<Stop>,
    /// Decisions asked of the limit.
    pub decisions: u64,
    /// When each request passed, in order; `None` if there are several keys.
    pub(crate) passes: Option<Vec<Time>>,
    pub(crate) cost: Permits,
}

/// A phase or an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ReportRow {
    /// When it began.
    pub start: Time,
    /// When it ended; the end of a phase is when all its requests had been served.
    pub end: Time,
    /// Rate of the requests, where the workload plans it.
    pub rate: Option<Rate>,
    /// Counts of this row.
    pub counts: AdmissionCounts,
}

/// Numbers of requests, and their waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AdmissionCounts {
    /// Requests that came.
    pub offered: u64,
    /// Requests that passed.
    pub admitted: u64,
    /// Attempts that were refused; one request may be refused many times.
    pub refused: u64,
    /// Requests that were refused and did not come again.
    pub gave_up: u64,
    /// Requests that were admitted after a wait: shaping.
    pub delayed: u64,
    /// Requests that did not pass when they came, but later.
    pub waited: u64,
    /// Sum of the times from coming to passing, in nanoseconds.
    pub wait_total: u128,
    /// The longest of these times.
    pub wait_max: Nanos,
}

/// Reason why a workload was not played to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::AsRefStr)]
#[strum(serialize_all = "snake_case")]
pub enum Stop {
    /// Refused requests are counted as well, so clients that go on asking keep the limit shut.
    RefusalsCount {
        /// Row number, from 0.
        row: usize,
        /// Last moment at which it admitted anything; the beginning of the row if it never did.
        since: Time,
    },
    /// Nothing was admitted for a long time, and the promised moment had passed.
    Drought {
        /// Row number, from 0.
        row: usize,
        /// Last moment at which it admitted anything; the beginning of the row if it never did.
        since: Time,
    },
    /// The cost is above what the limit can ever hold.
    NeverFits {
        /// Capacity of the limit.
        capacity: Permits,
    },
    /// More decisions than [`crate::MAX_DECISIONS`].
    TooMany,
}

impl AdmissionCounts {
    /// Adds the counts of another row.
    pub(crate) fn add(&mut self, other: &Self) {
        self.offered += other.offered;
        self.admitted += other.admitted;
        self.refused += other.refused;
        self.gave_up += other.gave_up;
        self.delayed += other.delayed;
        self.waited += other.waited;
        self.wait_total += other.wait_total;
        self.wait_max = self.wait_max.max(other.wait_max);
    }

    /// Mean time from coming to passing; `None` if nothing passed.
    pub fn wait_mean(&self) -> Option<Nanos> {
        let mean = self.wait_total.checked_div(u128::from(self.admitted))?;
        Some(Nanos::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

impl ReportRow {
    /// Length of the row.
    pub fn span(&self) -> Nanos {
        self.end.since(self.start)
    }

    /// Requests admitted a second.
    pub fn admitted_per_second(&self) -> f64 {
        per_second(self.counts.admitted, self.span())
    }
}

impl Report {
    /// Requests admitted a second, over all rows.
    pub fn admitted_per_second(&self) -> f64 {
        per_second(self.total.admitted, self.end.since(Time::ZERO))
    }

    /// Maximum number of permits spent within any span of this length; `None` if there are several
    /// keys.
    pub fn most_within(&self, span: Nanos) -> Option<u64> {
        let passes = self.passes.as_ref()?;
        let (mut most, mut first) = (0, 0);
        for (index, pass) in passes.iter().enumerate() {
            while pass.since(passes[first]) >= span && first < index {
                first += 1;
            }
            most = most.max(index + 1 - first);
        }
        Some(most as u64 * self.cost.get())
    }
}

#[expect(clippy::cast_precision_loss, reason = "only shown to people")]
fn per_second(count: u64, span: Nanos) -> f64 {
    if span == Nanos::ZERO {
        return 0.0;
    }
    count as f64 / span.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_in_any_span_is_found() {
        let second = |secs: &u64| Time::ZERO + Nanos::from_secs(*secs);
        let report = Report {
            rows: Vec::new(),
            total: AdmissionCounts::default(),
            end: Time::ZERO,
            series: CountSeries::new(),
            stop: None,
            decisions: 0,
            passes: Some([0, 0, 3, 4, 5, 9, 10].iter().map(second).collect()),
            cost: Permits::new(2),
        };
        for (secs, most) in [(1, 4), (2, 4), (3, 6), (5, 8), (6, 10), (20, 14)] {
            assert_eq!(
                report.most_within(Nanos::from_secs(secs)),
                Some(most),
                "{secs} s"
            );
        }
    }

    #[test]
    fn the_mean_wait_of_no_requests_is_none() {
        assert_eq!(AdmissionCounts::default().wait_mean(), None);
    }
}
