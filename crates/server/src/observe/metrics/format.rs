//! Format: the format of a scrape, as its reader accepts it.
//!
//! ```text
//!   Accept names application/openmetrics-text    OpenMetrics 1.0
//!   anything else, or nothing                    Prometheus text format 0.0.4
//!
//!   Accept-Encoding names gzip                   compressed, to about a tenth
//! ```

use std::fmt::{self, Write as _};
use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, header};

use super::family::{DurationsSnapshot, Kind, MetricValues, SampleValue};
use super::table::PREFIX;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// The format of a scrape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    /// `OpenMetrics` 1.0.
    OpenMetrics,
    /// The text format of Prometheus, 0.0.4.
    Text,
}

impl Format {
    /// Returns the format that a request accepts.
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let accepts = headers.get_all(header::ACCEPT).iter();
        let accepts = accepts.filter_map(|value| value.to_str().ok());
        let mut accepts = accepts.map(str::to_ascii_lowercase);
        if accepts.any(|accepted| accepted.contains(OPEN_METRICS)) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Returns a scrape.
    pub(crate) fn written(self, metrics: &[MetricValues]) -> String {
        let mut text = String::new();
        // Writing to a string cannot fail.
        let _ = metrics
            .iter()
            .try_for_each(|metric| self.put(metric, &mut text));
        if self == Self::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }

    fn put(self, metric: &MetricValues, out: &mut String) -> fmt::Result {
        let family = metric.family;
        let name = format!("{PREFIX}{}", family.name);
        let (total, kind) = match family.kind {
            Kind::Counter => ("_total", "counter"),
            Kind::Gauge => ("", "gauge"),
            Kind::Histogram => ("", "histogram"),
        };
        // The older format names a counter as its samples are named.
        let described = if self == Self::Text { total } else { "" };
        writeln!(out, "# HELP {name}{described} {}", family.help)?;
        writeln!(out, "# TYPE {name}{described} {kind}")?;
        for sample in &metric.samples {
            let labels = Labels {
                names: family.labels,
                values: &sample.labels,
                bound: None,
            };
            match &sample.value {
                SampleValue::Count(count) => writeln!(out, "{name}{total}{labels} {count}")?,
                SampleValue::Number(number) => {
                    writeln!(out, "{name}{labels} {}", Decimal(*number))?;
                }
                SampleValue::Durations(durations) => put_durations(&name, labels, durations, out)?,
            }
        }
        Ok(())
    }
}

/// The coding of a scrape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coding {
    Identity,
    Gzip,
}

impl Coding {
    /// Returns the coding that a request accepts (RFC 9110, section 12.5.3).
    pub(crate) fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT_ENCODING).iter();
        let mut codings = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','));
        if codings.any(takes_gzip) {
            Self::Gzip
        } else {
            Self::Identity
        }
    }

    /// Returns the value of `Content-Encoding`; `None` for a scrape as it is.
    pub(crate) const fn header(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Gzip => Some("gzip"),
        }
    }

    /// Returns a scrape in this coding.
    pub(crate) fn written(self, scrape: String) -> Bytes {
        match self {
            Self::Identity => Bytes::from(scrape),
            Self::Gzip => compressed(scrape.as_bytes()),
        }
    }
}

/// Compresses bytes by gzip at its fastest level: the others take several times as long for a few
/// per cent.
pub(crate) fn compressed(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let _ = encoder.write_all(bytes); // writing to memory cannot fail
    Bytes::from(encoder.finish().unwrap_or_default())
}

/// Returns true if one part of `Accept-Encoding` is gzip, with a weight above 0.
fn takes_gzip(part: &str) -> bool {
    let mut fields = part.split(';').map(str::trim);
    let is_gzip = fields
        .next()
        .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
    let weight = |field: &str| field.strip_prefix("q=")?.parse().ok();
    is_gzip
        && fields
            .find_map(weight)
            .is_none_or(|weight: f32| weight > 0.0)
}

fn put_durations(
    name: &str,
    labels: Labels<'_>,
    durations: &DurationsSnapshot,
    out: &mut String,
) -> fmt::Result {
    writeln!(out, "{name}_sum{labels} {}", Decimal(durations.sum_seconds))?;
    writeln!(out, "{name}_count{labels} {}", durations.count)?;
    let mut sum = 0;
    for (bound, count) in &durations.buckets {
        sum += count;
        let bound = Some(*bound);
        writeln!(out, "{name}_bucket{} {sum}", Labels { bound, ..labels })?;
    }
    Ok(())
}

/// The labels of a series, with the upper bound of a bucket, if it is one.
#[derive(Clone, Copy)]
struct Labels<'s> {
    names: &'s [&'s str],
    values: &'s [Box<str>],
    bound: Option<f64>,
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = '{';
        if let Some(bound) = self.bound {
            write!(f, "{before}le=\"{}\"", Decimal(bound))?;
            before = ',';
        }
        for (name, value) in self.names.iter().zip(self.values) {
            write!(f, "{before}{name}=\"")?;
            for character in value.chars() {
                match character {
                    '\\' | '"' => write!(f, "\\{character}")?,
                    '\n' => f.write_str("\\n")?,
                    character => f.write_char(character)?,
                }
            }
            f.write_char('"')?;
            before = ',';
        }
        if before == ',' {
            f.write_char('}')?;
        }
        Ok(())
    }
}

/// A number as clients of Prometheus write it: `1.0`, `0.00001`, `5e-7`, `+Inf`.
struct Decimal(f64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if value == f64::INFINITY {
            f.write_str("+Inf")
        } else if value != 0.0 && value.abs() < 1e-6 {
            write!(f, "{value:e}")
        } else if value.fract() == 0.0 {
            write!(f, "{value:.1}")
        } else {
            write!(f, "{value}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::metrics::family::{Family, MetricSample};

    #[test]
    fn a_metric_is_written_with_its_labels() {
        static REQUESTS: Family = Family {
            name: "a_requests",
            kind: Kind::Counter,
            labels: &["x"],
            help: "Requests",
        };
        static TIMES: Family = Family {
            name: "a_seconds",
            kind: Kind::Histogram,
            labels: &["x"],
            help: "Times",
        };
        static SHARE: Family = Family {
            name: "a_share",
            kind: Kind::Gauge,
            labels: &[],
            help: "Share",
        };
        let values = |family, label: Option<&str>, value| MetricValues {
            family,
            samples: vec![MetricSample {
                labels: label.into_iter().map(Box::from).collect(),
                value,
            }],
        };
        let times = DurationsSnapshot {
            buckets: vec![(5e-7, 1), (1e-5, 0), (1.0, 2), (f64::INFINITY, 1)],
            sum_seconds: 3.25,
            count: 4,
        };
        let metrics = [
            values(&REQUESTS, Some("a\\b\"c\nd"), SampleValue::Count(1)),
            values(&TIMES, Some("y"), SampleValue::Durations(times)),
            values(&SHARE, None, SampleValue::Number(0.0)),
        ];
        let text = concat!(
            "# HELP ratekeeper_a_requests_total Requests\n",
            "# TYPE ratekeeper_a_requests_total counter\n",
            "ratekeeper_a_requests_total{x=\"a\\\\b\\\"c\\nd\"} 1\n",
            "# HELP ratekeeper_a_seconds Times\n",
            "# TYPE ratekeeper_a_seconds histogram\n",
            "ratekeeper_a_seconds_sum{x=\"y\"} 3.25\n",
            "ratekeeper_a_seconds_count{x=\"y\"} 4\n",
            "ratekeeper_a_seconds_bucket{le=\"5e-7\",x=\"y\"} 1\n",
            "ratekeeper_a_seconds_bucket{le=\"0.00001\",x=\"y\"} 1\n",
            "ratekeeper_a_seconds_bucket{le=\"1.0\",x=\"y\"} 3\n",
            "ratekeeper_a_seconds_bucket{le=\"+Inf\",x=\"y\"} 4\n",
            "# HELP ratekeeper_a_share Share\n",
            "# TYPE ratekeeper_a_share gauge\n",
            "ratekeeper_a_share 0.0\n",
        );
        assert_eq!(Format::Text.written(&metrics), text);
        let open = text
            .replace(
                "# HELP ratekeeper_a_requests_total",
                "# HELP ratekeeper_a_requests",
            )
            .replace(
                "# TYPE ratekeeper_a_requests_total",
                "# TYPE ratekeeper_a_requests",
            );
        assert_eq!(
            Format::OpenMetrics.written(&metrics),
            format!("{open}# EOF\n")
        );
    }

    #[test]
    fn a_reader_gets_the_format_that_it_accepts() {
        for (accept, expected) in [
            (&[][..], Format::Text),
            (&["*/*"], Format::Text),
            (&["text/plain;version=0.0.4"], Format::Text),
            (
                &["application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3"],
                Format::OpenMetrics,
            ),
            (
                &["text/plain", "Application/OpenMetrics-Text"],
                Format::OpenMetrics,
            ),
            (
                &[
                    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily",
                    "application/openmetrics-text",
                ],
                Format::OpenMetrics,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(Format::accepted(&headers), expected, "{accept:?}");
        }
    }

    #[test]
    fn gzip_is_written_for_a_reader_that_accepts_it() {
        for (accept, expected) in [
            ("", Coding::Identity),
            ("gzip", Coding::Gzip),
            ("br, GZIP;q=0.5", Coding::Gzip),
            ("gzip;q=0, deflate", Coding::Identity),
            ("gzip; q=0.000", Coding::Identity),
            ("x-gzipped", Coding::Identity),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, accept.parse().unwrap());
            assert_eq!(Coding::accepted(&headers), expected, "{accept}");
        }
        let text = "a_requests_total 1\n".repeat(1_000);
        let gzip = Coding::Gzip.written(text.clone());
        assert!(gzip.len() < text.len() / 10);
        let mut read = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&gzip[..]), &mut read)
            .unwrap();
        assert_eq!(read, text);
        assert_eq!(Coding::Identity.written(text.clone()), text);
    }
}
