//! Exposition: a scrape in the protobuf format of Prometheus, the only one with native histograms.
//!
//! ```text
//!   length, MetricFamily, length, MetricFamily, ..
//! ```
//!
//! Names and values are those of the text format. A histogram has the buckets of the text format, and
//! those of `native.rs` if it keeps some.

use prost::Message as _;
use ratekeeper_wire::prometheus::{
    Bucket, BucketSpan, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use super::family::{DurationsSnapshot, Kind, MetricValues, Sample, SampleValue};
use super::native::{NativeBuckets, SCHEMA};

/// The usual bound of values that are zero.
const ZERO_THRESHOLD: f64 = f64::from_bits((1_023 - 128) << 52); // 2^-128

/// Returns the scrape.
pub(super) fn written(metrics: &[MetricValues]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for family in metrics.iter().map(family) {
        let _ = family.encode_length_delimited(&mut bytes); // a vector takes everything
    }
    bytes
}

fn family(values: &MetricValues) -> MetricFamily {
    let family = values.family;
    let (end, kind) = match family.kind {
        Kind::Counter => ("_total", MetricType::Counter),
        Kind::Gauge => ("", MetricType::Gauge),
        Kind::Histogram => ("", MetricType::Histogram),
    };
    let metric = |sample| metric(sample, family.labels);
    MetricFamily {
        name: format!("ratekeeper_{}{end}", family.name),
        help: format!("{}.", family.help),
        r#type: kind.into(),
        metric: values.samples.iter().map(metric).collect(),
    }
}

fn metric(sample: &Sample, labels: &[&str]) -> Metric {
    let label = labels
        .iter()
        .zip(&sample.labels)
        .map(|(name, value)| LabelPair {
            name: (*name).to_owned(),
            value: value.to_string(),
        });
    let mut metric = Metric {
        label: label.collect(),
        ..Metric::default()
    };
    match &sample.value {
        SampleValue::Count(count) => {
            let value = as_double(*count);
            metric.counter = Some(Counter { value });
        }
        SampleValue::Level(level) => {
            let value = as_double(*level);
            metric.gauge = Some(Gauge { value });
        }
        SampleValue::Number(value) => metric.gauge = Some(Gauge { value: *value }),
        SampleValue::Durations(durations) => metric.histogram = Some(histogram(durations)),
    }
    metric
}

fn histogram(durations: &DurationsSnapshot) -> Histogram {
    let buckets = durations.buckets.iter();
    let bucket = buckets.scan(0, |sum, (upper_bound, count)| {
        *sum += count;
        Some(Bucket {
            cumulative_count: *sum,
            upper_bound: *upper_bound,
        })
    });
    let mut histogram = Histogram {
        sample_count: durations.count,
        sample_sum: durations.sum_seconds,
        bucket: bucket.collect(),
        ..Histogram::default()
    };
    if let Some(native) = &durations.native {
        put_native(native, &mut histogram);
    }
    histogram
}

/// Adds the native buckets: runs of those that follow each other, with the differences of their counts.
fn put_native(native: &NativeBuckets, to: &mut Histogram) {
    to.schema = SCHEMA;
    to.zero_threshold = ZERO_THRESHOLD;
    to.zero_count = native.zero;
    // Read one after the other, so that both agree where a decision is counted meanwhile.
    to.sample_count = native.zero + native.each.iter().map(|(_, count)| count).sum::<u64>();
    let (mut end, mut before) = (0, 0);
    for &(bucket, count) in &native.each {
        match to.positive_span.last_mut() {
            Some(run) if bucket == end => run.length += 1,
            _ => to.positive_span.push(BucketSpan {
                offset: bucket - end,
                length: 1,
            }),
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        to.positive_delta.push(count - before);
        (end, before) = (bucket + 1, count);
    }
}

#[expect(clippy::cast_precision_loss, reason = "metrics are doubles")]
fn as_double(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_buckets_are_runs_of_differences() {
        let native = NativeBuckets {
            zero: 2,
            each: vec![(-3, 5), (-2, 4), (1, 9)],
        };
        let mut histogram = Histogram::default();
        put_native(&native, &mut histogram);
        let runs = histogram.positive_span.iter();
        let runs: Vec<_> = runs.map(|run| (run.offset, run.length)).collect();
        assert_eq!(runs, [(-3, 2), (2, 1)]);
        assert_eq!(histogram.positive_delta, [5, -1, 5]);
        assert_eq!((histogram.sample_count, histogram.zero_count), (20, 2));
    }
}
