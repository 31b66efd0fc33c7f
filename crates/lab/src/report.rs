//! Report: what became of a workload.

use ratekeeper_core::{Nanos, Permits, Time};

use crate::arrivals::Rate;
use crate::series::Series;

/// What became of a workload.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// By phase or by interval.
    pub rows: Vec<ReportRow>,
    /// All rows together.
    pub total: AdmissionCounts,
    /// When everything was over.
    pub end: Time,
    /// Requests over time.
    pub series: Series,
    /// Why it was not played to its end, if it was not.
    pub stop: Option<Stop>,
    /// Decisions asked of the limit.
    pub decisions: u64,
    /// When each request passed, in order; none if there are several keys.
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
    /// How fast requests came, where the workload plans it.
    pub rate: Option<Rate>,
    /// What happened.
    pub counts: AdmissionCounts,
}

/// How many, and how long they waited.
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
    /// Requests that were told to wait, and then passed: shaping.
    pub delayed: u64,
    /// Requests that did not pass when they came, but later.
    pub waited: u64,
    /// Time from coming to passing, all together, in nanoseconds.
    pub wait_total: u128,
    /// The longest of them.
    pub wait_max: Nanos,
}

/// Why a workload was not played to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Refused requests are counted as well: clients that go on asking keep the limit shut.
    RefusalsCount {
        /// Which row, from 0.
        row: usize,
        /// The last moment at which it admitted anything; the beginning of the row if never.
        since: Time,
    },
    /// Nothing was admitted for long, and later than was promised.
    Drought {
        /// Which row, from 0.
        row: usize,
        /// The last moment at which it admitted anything; the beginning of the row if never.
        since: Time,
    },
    /// The cost is above what the limit can ever hold.
    NeverFits {
        /// What it can hold.
        capacity: Permits,
    },
    /// More decisions than [`crate::MAX_DECISIONS`].
    TooMany,
}

impl AdmissionCounts {
    /// Adds what happened elsewhere.
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

    /// The mean time from coming to passing; none if nothing passed.
    pub fn wait_mean(&self) -> Option<Nanos> {
        let mean = self.wait_total.checked_div(u128::from(self.admitted))?;
        Some(Nanos::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX)))
    }
}

impl ReportRow {
    /// How long it took.
    pub fn span(&self) -> Nanos {
        self.end.since(self.start)
    }

    /// Requests admitted a second.
    pub fn admitted_per_second(&self) -> f64 {
        per_second(self.counts.admitted, self.span())
    }
}

impl Report {
    /// Requests admitted a second, over all.
    pub fn admitted_per_second(&self) -> f64 {
        per_second(self.total.admitted, self.end.since(Time::ZERO))
    }

    /// The most permits that were spent within any span of this length; none if there are
    /// several keys.
    pub fn most_within(&self, span: Nanos) -> Option<u64> {
        let passes = self.passes.as_ref()?;
        let (mut most, mut first) = (0, 0);
        for (index, pass) in passes.iter().enumerate() {
            while pass.since(passes[first]) >= span && first < index {
                first += 1;
            }
            most = most.max(index + 1 - first);
        }
        Some(most as u64 * u64::from(self.cost.get()))
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
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
    fn the_most_in_any_span_is_found() {
        let second = |secs: &u64| Time::ZERO + Nanos::from_secs(*secs);
        let report = Report {
            rows: Vec::new(),
            total: AdmissionCounts::default(),
            end: Time::ZERO,
            series: Series::new(),
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
    fn nobody_waits_for_nothing() {
        assert_eq!(AdmissionCounts::default().wait_mean(), None);
    }
}
