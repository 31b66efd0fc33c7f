//! Family: one metric of the table, and how its values are written.
//!
//! ```text
//!   values --Family, Series--> MetricSink::Text    /metrics
//!                         \--> MetricSink::List    OTLP
//! ```

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder};
use prometheus_client::metrics::MetricType;
use ratekeeper_store::CallTime;
use smallvec::SmallVec;

/// Number of labels that take no allocation.
const USUAL_LABELS: usize = 3;

/// Labels of exemplars, of which there are none.
type NoLabels = [(&'static str, &'static str); 0];

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
    pub(crate) samples: Vec<Sample>,
}

/// The value of one series.
#[derive(Debug)]
pub(crate) struct Sample {
    /// Values of the labels, in the order of the table.
    pub(crate) labels: SmallVec<[Box<str>; USUAL_LABELS]>,
    pub(crate) value: SampleValue,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum SampleValue {
    /// Of a counter.
    Count(u64),
    /// Of a gauge.
    Level(u64),
    /// Of a gauge.
    Number(f64),
    /// Of a histogram.
    Durations(DurationsSnapshot),
}

/// The place that metrics are written to.
#[derive(Debug)]
pub(super) enum MetricSink<'s> {
    Text(DescriptorEncoder<'s>),
    List(Vec<MetricValues>),
}

/// The series of a metric.
pub(super) struct Series<'s> {
    out: SeriesSink<'s>,
    labels: &'static [&'static str],
}

enum SeriesSink<'s> {
    Text(MetricEncoder<'s>),
    List(&'s mut Vec<Sample>),
}

impl Family {
    /// Writes the description of a metric; its series follow.
    pub(super) fn open<'s>(
        &'static self,
        sink: &'s mut MetricSink<'_>,
    ) -> Result<Series<'s>, fmt::Error> {
        let out = match sink {
            MetricSink::Text(encoder) => SeriesSink::Text(self.describe(encoder)?),
            MetricSink::List(metrics) => {
                let (family, samples) = (self, Vec::new());
                metrics.push(MetricValues { family, samples });
                let last = metrics.last_mut().ok_or(fmt::Error)?; // it was just pushed
                SeriesSink::List(&mut last.samples)
            }
        };
        Ok(Series {
            out,
            labels: self.labels,
        })
    }

    /// Writes a counter or a gauge without labels.
    pub(super) fn write(&'static self, sink: &mut MetricSink<'_>, value: u64) -> fmt::Result {
        let mut series = self.open(sink)?;
        match self.kind {
            Kind::Counter => series.count(&[], value),
            Kind::Gauge | Kind::Histogram => series.level(&[], value),
        }
    }

    fn describe<'s>(
        &'static self,
        encoder: &'s mut DescriptorEncoder<'_>,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        let kind = match self.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        encoder.encode_descriptor(self.name, self.help, None, kind)
    }
}

impl Series<'_> {
    /// Writes a counter; `values` are those of its labels, in the order of the table.
    pub(super) fn count(&mut self, values: &[&str], count: u64) -> fmt::Result {
        self.put(values, SampleValue::Count(count))
    }

    /// Writes a gauge.
    pub(super) fn level(&mut self, values: &[&str], value: u64) -> fmt::Result {
        self.put(values, SampleValue::Level(value))
    }

    /// Writes a gauge that is no whole number.
    pub(super) fn number(&mut self, values: &[&str], value: f64) -> fmt::Result {
        self.put(values, SampleValue::Number(value))
    }

    /// Writes a histogram.
    pub(super) fn durations(
        &mut self,
        values: &[&str],
        durations: &DurationsSnapshot,
    ) -> fmt::Result {
        self.put(values, SampleValue::Durations(durations.clone()))
    }

    fn put(&mut self, values: &[&str], value: SampleValue) -> fmt::Result {
        debug_assert_eq!(self.labels.len(), values.len(), "{:?}", self.labels);
        match &mut self.out {
            SeriesSink::Text(encoder) if self.labels.is_empty() => value.encode(encoder),
            SeriesSink::Text(encoder) => {
                let pairs = self.labels.iter().copied().zip(values.iter().copied());
                let pairs: SmallVec<[(&str, &str); USUAL_LABELS]> = pairs.collect();
                value.encode(&mut encoder.encode_family(&pairs.as_slice())?)
            }
            SeriesSink::List(samples) => {
                let labels = values.iter().map(|value| Box::from(*value)).collect();
                samples.push(Sample { labels, value });
                Ok(())
            }
        }
    }
}

impl SampleValue {
    fn encode(&self, metric: &mut MetricEncoder<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => metric.encode_counter::<NoLabels, _, u64>(count, None),
            Self::Level(value) => metric.encode_gauge(value),
            Self::Number(value) => metric.encode_gauge(value),
            Self::Durations(DurationsSnapshot {
                buckets,
                sum_seconds,
                count,
            }) => metric.encode_histogram::<NoLabels>(*sum_seconds, *count, buckets, None),
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
    /// Adds the durations of another one with the same buckets.
    pub(super) fn add(&mut self, other: &Self) {
        for ((_, mine), (_, theirs)) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum_seconds += other.sum_seconds;
        self.count += other.count;
    }
}

impl From<CallTime> for DurationsSnapshot {
    fn from(time: CallTime) -> Self {
        let edges = CallTime::EDGES.iter().map(|edge| seconds(edge.as_nanos()));
        let buckets: Vec<_> = edges.chain([f64::INFINITY]).zip(time.buckets).collect();
        Self {
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
            sum_seconds: seconds(time.sum.as_nanos()),
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "metrics are doubles; 2^53 ns of decision time are 104 days"
)]
pub(super) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}
