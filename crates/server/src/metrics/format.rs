//! Format: the format of a scrape, as its reader accepts it.
//!
//! ```text
//!   Accept names application/openmetrics-text    OpenMetrics 1.0
//!   anything else, or nothing                    Prometheus text format 0.0.4
//!
//!   Accept-Encoding names gzip                   compressed, to about a tenth
//! ```

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, header};

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

    /// Converts a scrape in `OpenMetrics` to this format of text.
    pub(crate) fn written(self, open: String) -> String {
        match self {
            Self::Text => text(&open),
            Self::OpenMetrics => open,
        }
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
            Self::Gzip => {
                // The fastest level: the others take several times as long for a few per cent.
                let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
                // Writing to memory cannot fail.
                let _ = encoder.write_all(scrape.as_bytes());
                Bytes::from(encoder.finish().unwrap_or_default())
            }
        }
    }
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

/// Names a counter as its samples are named, in `# HELP` and `# TYPE` too, and leaves out the
/// lines that the older format does not have: `# EOF` and `# UNIT`.
fn text(open: &str) -> String {
    let mut text = String::with_capacity(open.len() + 512);
    let mut lines = open.lines().peekable();
    while let Some(line) = lines.next() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let described = ["# HELP ", "# TYPE "]
            .into_iter()
            .find_map(|word| Some((word, line.strip_prefix(word)?)));
        let Some((word, (name, rest))) =
            described.and_then(|(word, line)| Some((word, line.split_once(' ')?)))
        else {
            text.extend([line, "\n"]);
            continue;
        };
        // The help of a metric stands before its type.
        let counted = |line: &str| line.strip_prefix("# TYPE ") == Some(&format!("{name} counter"));
        let is_counter = counted(line) || lines.peek().is_some_and(|next| counted(next));
        let total = if is_counter { "_total" } else { "" };
        text.extend([word, name, total, " ", rest, "\n"]);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_as_their_samples_in_the_text_format() {
        let open = "# HELP a_requests Requests.\n# TYPE a_requests counter\n\
                    a_requests_total{x=\"y\"} 1\n# HELP a_keys Keys.\n# TYPE a_keys gauge\n\
                    a_keys 2\n# EOF\n";
        let text = "# HELP a_requests_total Requests.\n# TYPE a_requests_total counter\n\
                    a_requests_total{x=\"y\"} 1\n# HELP a_keys Keys.\n# TYPE a_keys gauge\n\
                    a_keys 2\n";
        assert_eq!(Format::Text.written(open.into()), text);
        assert_eq!(Format::OpenMetrics.written(open.into()), open);
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
