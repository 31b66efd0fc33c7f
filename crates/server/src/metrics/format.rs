//! Format: the format of a scrape, as its reader accepts it.
//!
//! ```text
//!   Accept names application/openmetrics-text    OpenMetrics 1.0
//!   anything else, or nothing                    Prometheus text format 0.0.4
//! ```

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
        let mut accepts = accepts.filter_map(|value| value.to_str().ok());
        if accepts.any(|value| value.to_ascii_lowercase().contains(OPEN_METRICS)) {
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

    /// Converts a scrape in `OpenMetrics` to this format.
    pub(crate) fn written(self, open: String) -> String {
        match self {
            Self::OpenMetrics => open,
            Self::Text => text(&open),
        }
    }
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
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(Format::accepted(&headers), expected, "{accept:?}");
        }
    }
}
