//! Family: one metric of the table, and the list that its values are added to.
//!
//! ```text
//!   values --Family, Series--> MetricList --> /metrics (`format.rs`), OTLP
//! ```

use ratekeeper_store::CallTime;
use smallvec::SmallVec;

use crate::counter::Counter;

/// Name of the limits that are counted together: series with the same labels are added up.
pub(super) const OTHER: &str = "(other)";
/// Number of labels that take no allocation.
const USUAL_LABELS: usize = 3;

/// A row of the table of metrics.
#[derive(Debug)]
pub(crate) struct Family {
    /// Without the prefix `ratekeeper_`, and `_total` of a counter.
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) labels: &'static [&'static str],
    pub(crate) help: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric with the values of its series.
#[derive(Debug)]
pub(crate) struct MetricValues {
    pub(crate) family: &'static Family,
    pub(crate) samples: Vec<MetricSample>,
}

/// The value of one series.
#[derive(Debug)]
pub(crate) struct MetricSample {
    /// Values of the labels, in the order of the table.
    pub(crate) labels: SmallVec<[Box<str>; USUAL_LABELS]>,
    pub(crate) value: SampleValue,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SampleValue {
    /// Of a counter or a gauge.
    Count(u64),
    /// Of a gauge that is no whole number.
    Number(f64),
    /// Of a histogram.
    Durations(DurationsSnapshot),
}

/// Metrics in the order of the table.
pub(super) type MetricList = Vec<MetricValues>;

/// The series of a metric at the end of a list.
#[derive(Debug)]
pub(super) struct Series<'s> {
    list: &'s mut MetricList,
    family: &'static Family,
}

impl Family {
    /// Adds a metric, whose series follow; without a series it is left out.
    pub(super) fn open<'s>(&'static self, list: &'s mut MetricList) -> Series<'s> {
        let family = self;
        Series { list, family }
    }

    /// Adds a metric that is listed without a series too; its series follow.
    pub(super) fn begin(&'static self, list: &mut MetricList) {
        let (family, samples) = (self, Vec::new());
        list.push(MetricValues { family, samples });
    }

    /// Adds a counter or a gauge without labels.
    pub(super) fn write(&'static self, list: &mut MetricList, value: u64) {
        self.each(list, [([], value)]);
    }

    /// Adds counters, by the value of their label.
    pub(super) fn counters(
        &'static self,
        list: &mut MetricList,
        names: &[&str],
        counters: &[Counter],
    ) {
        let counts = names.iter().zip(counters);
        self.each(list, counts.map(|(name, it)| ([*name], it.count())));
    }

    /// Adds a counter or a gauge: the values of its labels, in the order of the table, and its own.
    pub(super) fn each<'v, const N: usize>(
        &'static self,
        list: &mut MetricList,
        values: impl IntoIterator<Item = ([&'v str; N], u64)>,
    ) {
        let mut series = self.open(list);
        for (labels, value) in values {
            series.count(&labels, value);
        }
    }

    /// Adds the counters of each first label, by the value of the second.
    pub(super) fn rows<'v, const N: usize>(
        &'static self,
        list: &mut MetricList,
        names: &[&str],
        rows: impl IntoIterator<Item = (&'v str, [u64; N])>,
    ) {
        let mut series = self.open(list);
        for (first, counts) in rows {
            for (name, count) in names.iter().zip(counts) {
                series.count(&[first, name], count);
            }
        }
    }
}

impl Series<'_> {
    /// Adds a counter or a gauge; `values` are those of its labels, in the order of the table.
    pub(super) fn count(&mut self, values: &[&str], count: u64) {
        self.put(values, SampleValue::Count(count));
    }

    /// Adds a gauge that is no whole number.
    pub(super) fn number(&mut self, values: &[&str], value: f64) {
        self.put(values, SampleValue::Number(value));
    }

    /// Adds a histogram.
    pub(super) fn durations(&mut self, values: &[&str], durations: &DurationsSnapshot) {
        self.put(values, SampleValue::Durations(durations.clone()));
    }

    fn put(&mut self, values: &[&str], value: SampleValue) {
        let family = self.family;
        debug_assert_eq!(family.labels.len(), values.len());
        let last = self.list.last();
        if last.is_none_or(|last| !std::ptr::eq(last.family, family)) {
            let samples = Vec::new();
            self.list.push(MetricValues { family, samples });
        }
        let Some(metric) = self.list.last_mut() else {
            return;
        };
        let samples = metric.samples.iter_mut().rev();
        let mut folded =
            samples.take_while(|it| it.labels.first().is_some_and(|it| **it == *OTHER));
        let has_values =
            |it: &&mut MetricSample| it.labels.iter().map(|it| &**it).eq(values.iter().copied());
        if let Some(sum) = folded.find(has_values) {
            sum.value.add(value);
            return;
        }
        let labels = values.iter().map(|value| Box::from(*value)).collect();
        metric.samples.push(MetricSample { labels, value });
    }
}

impl SampleValue {
    /// Adds the value of another series of the metric.
    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Count(mine), Self::Count(theirs)) => *mine += theirs,
            (Self::Number(mine), Self::Number(theirs)) => *mine += theirs,
            (Self::Durations(mine), Self::Durations(theirs)) => mine.add(&theirs),
            _ => {}
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DurationsSnapshot {
    /// Upper bound in seconds, and the number of values in the bucket. The last has no bound.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) sum_seconds: f64,
    pub(crate) count: u64,
}

impl DurationsSnapshot {
    /// Creates a snapshot; `edges` are the upper bounds of the buckets but the last, in
    /// nanoseconds.
    pub(super) fn new(
        edges: impl IntoIterator<Item = u64>,
        counts: impl IntoIterator<Item = u64>,
        sum_nanos: u64,
    ) -> Self {
        let edges = edges.into_iter().map(seconds).chain([f64::INFINITY]);
        let buckets: Vec<_> = edges.zip(counts).collect();
        Self {
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
            sum_seconds: seconds(sum_nanos),
        }
    }

    /// Adds the durations of another one with the same buckets.
    pub(crate) fn add(&mut self, other: &Self) {
        for ((_, mine), (_, theirs)) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_seconds += other.sum_seconds;
        self.count += other.count;
    }
}

impl From<CallTime> for DurationsSnapshot {
    fn from(time: CallTime) -> Self {
        let edges = CallTime::EDGES_MICROS.map(|it| it * 1_000);
        Self::new(edges, time.buckets, time.sum.as_nanos())
    }
}

pub(super) fn seconds(nanos: impl Into<i128>) -> f64 {
    double(nanos) / 1e9
}

/// Returns a number as metrics have it.
#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are doubles; numbers beyond 2^53 are rounded, and 2^53 ns are 104 days"
)]
pub(crate) fn double(number: impl Into<i128>) -> f64 {
    number.into() as f64
}
