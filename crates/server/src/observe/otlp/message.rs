//! Message: metrics and events in the words of the OpenTelemetry protocol.
//!
//! ```text
//!   Counter     Sum, monotonic, cumulative since the start of the process
//!   Gauge       Gauge
//!   Histogram   Histogram, cumulative, with the bounds of its buckets
//! ```
//!
//! A metric has its name of Prometheus without `_total`, so that a receiver which adds that ending,
//! as Prometheus does, has the names of the alert rules.

use ratekeeper_wire::otlp::common::any_value::Value;
use ratekeeper_wire::otlp::common::{AnyValue, InstrumentationScope, KeyValue};
use ratekeeper_wire::otlp::logs::{LogRecord, ResourceLogs, ScopeLogs};
use ratekeeper_wire::otlp::logs_service::ExportLogsServiceRequest;
use ratekeeper_wire::otlp::metrics::metric::Data;
use ratekeeper_wire::otlp::metrics::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint,
    ResourceMetrics, ScopeMetrics, Sum, number_data_point,
};
use ratekeeper_wire::otlp::metrics_service::ExportMetricsServiceRequest;
use ratekeeper_wire::otlp::resource::Resource;

use crate::observe::metrics::{DurationsSnapshot, Kind, MetricSample, MetricValues, SampleValue};

/// The process that messages are about.
#[derive(Clone, Debug)]
pub(super) struct Source {
    resource: Resource,
    scope: InstrumentationScope,
    started_unix_nanos: u64,
}

/// When a value was read, and since when it counts, in nanoseconds since 1970.
#[derive(Clone, Copy)]
struct Span {
    start: u64,
    now: u64,
}

impl Source {
    pub(super) fn new(service: &str, instance: &str, started_unix_nanos: u64) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        let attributes = vec![
            attribute("service.name", service),
            attribute("service.version", version),
            attribute("service.instance.id", &format!("{host}:{instance}")),
            attribute("host.name", &host),
        ];
        Self {
            resource: Resource { attributes },
            scope: InstrumentationScope {
                name: "ratekeeper".to_owned(),
                version: version.to_owned(),
            },
            started_unix_nanos,
        }
    }

    /// Returns the message of all metrics that have a value.
    pub(super) fn metrics(
        &self,
        metrics: &[MetricValues],
        now_unix_nanos: u64,
    ) -> ExportMetricsServiceRequest {
        let span = Span {
            start: self.started_unix_nanos,
            now: now_unix_nanos,
        };
        let metrics = metrics.iter().filter(|it| !it.samples.is_empty());
        let scope_metrics = vec![ScopeMetrics {
            scope: Some(self.scope.clone()),
            metrics: metrics.map(|values| metric(values, span)).collect(),
        }];
        ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics,
            }],
        }
    }

    /// Returns the message of some events.
    pub(super) fn events(&self, log_records: Vec<LogRecord>) -> ExportLogsServiceRequest {
        let scope_logs = vec![ScopeLogs {
            scope: Some(self.scope.clone()),
            log_records,
        }];
        ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(self.resource.clone()),
                scope_logs,
            }],
        }
    }
}

fn metric(values: &MetricValues, span: Span) -> Metric {
    let family = values.family;
    let cumulative = AggregationTemporality::Cumulative.into();
    let numbers = |span| {
        let point = |sample| number(sample, family.labels, span);
        values.samples.iter().filter_map(point).collect()
    };
    let data = match family.kind {
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers(span),
            aggregation_temporality: cumulative,
            is_monotonic: true,
        }),
        Kind::Gauge => Data::Gauge(Gauge {
            // A level has no beginning.
            data_points: numbers(Span { start: 0, ..span }),
        }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: values
                .samples
                .iter()
                .filter_map(|sample| durations(sample, family.labels, span))
                .collect(),
            aggregation_temporality: cumulative,
        }),
    };
    let is_time = family.name.ends_with("_seconds");
    let is_size = family.name.ends_with("_bytes");
    Metric {
        name: format!("ratekeeper_{}", family.name),
        description: family.help.to_owned(),
        unit: match (is_time, is_size) {
            (true, _) => "s",
            (_, true) => "By",
            _ => "",
        }
        .to_owned(),
        data: Some(data),
    }
}

fn number(sample: &MetricSample, labels: &[&str], span: Span) -> Option<NumberDataPoint> {
    let value = match &sample.value {
        SampleValue::Count(value) => {
            number_data_point::Value::AsInt(i64::try_from(*value).unwrap_or(i64::MAX))
        }
        SampleValue::Number(value) => number_data_point::Value::AsDouble(*value),
        SampleValue::Durations(_) => return None,
    };
    Some(NumberDataPoint {
        start_time_unix_nano: span.start,
        time_unix_nano: span.now,
        value: Some(value),
        attributes: attributes(labels, sample),
    })
}

fn durations(sample: &MetricSample, labels: &[&str], span: Span) -> Option<HistogramDataPoint> {
    let SampleValue::Durations(DurationsSnapshot {
        buckets,
        sum_seconds,
        count,
        ..
    }) = &sample.value
    else {
        return None;
    };
    let bounds = buckets.iter().map(|(bound, _)| *bound);
    Some(HistogramDataPoint {
        start_time_unix_nano: span.start,
        time_unix_nano: span.now,
        count: *count,
        sum: Some(*sum_seconds),
        bucket_counts: buckets.iter().map(|(_, count)| *count).collect(),
        explicit_bounds: bounds.filter(|bound| bound.is_finite()).collect(),
        attributes: attributes(labels, sample),
    })
}

fn attributes(names: &[&str], sample: &MetricSample) -> Vec<KeyValue> {
    let pairs = names.iter().zip(&sample.labels);
    pairs.map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(Value::StringValue(value.to_owned())),
        }),
    }
}
