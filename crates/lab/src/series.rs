//! Series: how many requests came, passed and were refused, over time, in bounded memory.
//!
//! ```text
//!   bins of 1 us -- too many? --> ten become one: 10 us -- ... --> 100 ms, at most 20,000
//! ```

use ratekeeper_core::{Nanos, Time};

use crate::axis::round_span;

/// Maximum number of bins: a tenth of them remain after they are joined, many more than a plot has
/// columns.
const MAX_BINS: usize = 20_000;
/// Number of bins that are joined into one.
const JOINED: usize = 10;
/// Initial width of bins.
const FINEST: u64 = 1_000;

/// Requests over time, counted in bins of equal width.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CountSeries {
    /// In nanoseconds.
    width: u64,
    bins: Vec<Bin>,
}

/// Counts of one bin, or of one column of a plot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bin {
    /// Requests that came.
    pub offered: u64,
    /// Requests that passed.
    pub admitted: u64,
    /// Attempts that were refused.
    pub refused: u64,
}

impl CountSeries {
    pub(crate) const fn new() -> Self {
        Self {
            width: FINEST,
            bins: Vec::new(),
        }
    }

    /// Returns the bin of a moment.
    pub(crate) fn at(&mut self, moment: Time) -> &mut Bin {
        while moment.as_nanos() / self.width >= MAX_BINS as u64 {
            self.join();
        }
        let index = usize::try_from(moment.as_nanos() / self.width)
            .expect("bins were joined until the index is small");
        if index >= self.bins.len() {
            self.bins.resize(index + 1, Bin::default());
        }
        &mut self.bins[index]
    }

    fn join(&mut self) {
        self.width = self.width.saturating_mul(JOINED as u64);
        self.bins = self.bins.chunks(JOINED).map(sum).collect();
    }

    /// Width of a bin: a power of ten.
    pub(crate) const fn width(&self) -> Nanos {
        Nanos::from_nanos(self.width)
    }

    /// Returns at most `most` columns of equal, round width up to `end`: their width, and the
    /// counts of each.
    pub fn overview(&self, end: Time, most: u64) -> (Nanos, Vec<Bin>) {
        let width = round_span(end.since(Time::ZERO), most).max(self.width());
        (width, self.columns(width, end))
    }

    /// Returns the series in wider columns, from the beginning to `end`; `column` is rounded up to
    /// whole bins.
    pub(crate) fn columns(&self, column: Nanos, end: Time) -> Vec<Bin> {
        let bins = column.as_nanos().div_ceil(self.width).max(1);
        let width = bins.saturating_mul(self.width);
        let count = usize::try_from(end.as_nanos().div_ceil(width)).unwrap_or(usize::MAX);
        let bins = usize::try_from(bins).unwrap_or(usize::MAX);
        let mut columns: Vec<Bin> = self.bins.chunks(bins).map(sum).collect();
        columns.resize(count.clamp(columns.len(), MAX_BINS), Bin::default());
        columns
    }
}

fn sum(bins: &[Bin]) -> Bin {
    bins.iter().fold(Bin::default(), |sum, bin| Bin {
        offered: sum.offered + bin.offered,
        admitted: sum.admitted + bin.admitted,
        refused: sum.refused + bin.refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_when_bins_are_joined() {
        let mut series = CountSeries::new();
        for milli in 0..30_000 {
            series.at(Time::ZERO + Nanos::from_millis(milli)).admitted += 1;
        }
        assert_eq!(series.width(), Nanos::from_millis(10));
        let end = Time::ZERO + Nanos::from_secs(40);
        let columns = series.columns(Nanos::SECOND, end);
        assert_eq!(columns.len(), 40);
        let admitted: Vec<u64> = columns.iter().map(|column| column.admitted).collect();
        assert_eq!(admitted[..30], [1_000; 30]);
        assert_eq!(admitted[30..], [0; 10]);
    }

    #[test]
    fn the_end_of_time_fits() {
        let mut series = CountSeries::new();
        series.at(Time::ZERO).offered += 1;
        series.at(Time::MAX).offered += 1;
        let total: u64 = series.bins.iter().map(|bin| bin.offered).sum();
        assert_eq!(total, 2);
        assert!(series.bins.len() <= MAX_BINS);
    }
}
