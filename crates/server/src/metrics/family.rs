//! Family: writes a metric and its values.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use ratekeeper_store::CallTime;

pub(super) fn counter<'s>(
    encoder: &'s mut DescriptorEncoder<'_>,
    name: &'s str,
    help: &str,
) -> Result<MetricEncoder<'s>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Counter)
}

pub(super) fn gauge<'s>(
    encoder: &'s mut DescriptorEncoder<'_>,
    name: &'s str,
    help: &str,
) -> Result<MetricEncoder<'s>, fmt::Error> {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)
}

/// Writes a counter without labels.
pub(super) fn put_total(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    count: u64,
) -> fmt::Result {
    ConstCounter::new(count).encode(counter(encoder, name, help)?)
}

pub(super) fn put(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    count: u64,
) -> fmt::Result {
    ConstCounter::new(count).encode(family.encode_family(&labels)?)
}

pub(super) fn put_gauge(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    value: u64,
) -> fmt::Result {
    level(value).encode(family.encode_family(&labels)?)
}

pub(super) fn put_durations(
    family: &mut MetricEncoder<'_>,
    labels: &[(&str, &str)],
    durations: &DurationsSnapshot,
) -> fmt::Result {
    let DurationsSnapshot {
        buckets,
        sum_seconds,
        count,
    } = durations;
    family
        .encode_family(&labels)?
        .encode_histogram::<[(&str, &str); 0]>(*sum_seconds, *count, buckets, None)
}

pub(super) fn level(value: u64) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX))
}

#[derive(Debug)]
pub(super) struct DurationsSnapshot {
    /// Upper bound in seconds, and the number of values in the bucket.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum_seconds: f64,
    pub(super) count: u64,
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
