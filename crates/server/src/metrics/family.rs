//! Family: one metric of the table, and how its values are written.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use ratekeeper_store::CallTime;
use smallvec::SmallVec;

/// Number of labels that take no allocation.
const USUAL_LABELS: usize = 3;

/// A row of the table of metrics.
#[derive(Debug)]
pub(super) struct Family {
    /// Without the prefix `ratekeeper_`, and `_total` of a counter.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
}

/// The type of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The series of a metric with labels.
pub(super) struct Series<'s> {
    encoder: MetricEncoder<'s>,
    labels: &'static [&'static str],
}

impl Family {
    /// Writes the description of a metric with labels; its series follow.
    pub(super) fn open<'s>(
        &'static self,
        encoder: &'s mut DescriptorEncoder<'_>,
    ) -> Result<Series<'s>, fmt::Error> {
        Ok(Series {
            encoder: self.describe(encoder)?,
            labels: self.labels,
        })
    }

    /// Writes a counter or a gauge without labels.
    pub(super) fn write(
        &'static self,
        encoder: &mut DescriptorEncoder<'_>,
        value: u64,
    ) -> fmt::Result {
        let metric = self.describe(encoder)?;
        match self.kind {
            Kind::Counter => ConstCounter::new(value).encode(metric),
            Kind::Gauge | Kind::Histogram => level(value).encode(metric),
        }
    }

    /// Writes a histogram without labels.
    pub(super) fn write_durations(
        &'static self,
        encoder: &mut DescriptorEncoder<'_>,
        durations: &DurationsSnapshot,
    ) -> fmt::Result {
        durations.encode(self.describe(encoder)?)
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
        self.with(values, |metric| ConstCounter::new(count).encode(metric))
    }

    /// Writes a gauge.
    pub(super) fn level(&mut self, values: &[&str], value: u64) -> fmt::Result {
        self.with(values, |metric| level(value).encode(metric))
    }

    /// Writes a gauge that is no whole number.
    pub(super) fn number(&mut self, values: &[&str], value: f64) -> fmt::Result {
        self.with(values, |metric| ConstGauge::new(value).encode(metric))
    }

    /// Writes a histogram.
    pub(super) fn durations(
        &mut self,
        values: &[&str],
        durations: &DurationsSnapshot,
    ) -> fmt::Result {
        self.with(values, |metric| durations.encode(metric))
    }

    fn with(
        &mut self,
        values: &[&str],
        write: impl FnOnce(MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        debug_assert_eq!(self.labels.len(), values.len(), "{:?}", self.labels);
        let pairs = self.labels.iter().copied().zip(values.iter().copied());
        let pairs: SmallVec<[(&str, &str); USUAL_LABELS]> = pairs.collect();
        write(self.encoder.encode_family(&pairs.as_slice())?)
    }
}

fn level(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

#[derive(Debug)]
pub(super) struct DurationsSnapshot {
    /// Upper bound in seconds, and the number of values in the bucket.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum_seconds: f64,
    pub(super) count: u64,
}

impl DurationsSnapshot {
    fn encode(&self, mut metric: MetricEncoder<'_>) -> fmt::Result {
        metric.encode_histogram::<[(&str, &str); 0]>(
            self.sum_seconds,
            self.count,
            &self.buckets,
            None,
        )
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
