//! Monitoring: the files of examples/monitoring, written from tables beside the table of metrics.
//!
//! ```text
//!   table.rs --names--> alerts.rs --> ratekeeper.rules.yml    each alert with its runbook section
//!                   \-> panels.rs --> grafana.json
//! ```
//!
//! `RATEKEEPER_MONITORING=write cargo test -p ratekeeper-server --lib monitoring` writes them. An
//! expression takes the name of a metric from its row, so a name that is not there does not compile;
//! a label that the row does not have fails the test. Compiled for tests only: the service has no
//! use for it.

mod alert;
mod alerts;
mod panels;
mod upstream_alerts;

use std::fmt;
use std::path::{Path, PathBuf};

use super::family::{Family, Kind};
use super::table::PREFIX;

/// Labels that Prometheus adds.
const TARGET: [&str; 2] = ["instance", "job"];

/// Writes the name of the samples; of a histogram without `_bucket`.
impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.kind {
            Kind::Counter => "_total",
            Kind::Gauge | Kind::Histogram => "",
        };
        write!(f, "{PREFIX}{}{end}", self.name)
    }
}

impl Family {
    /// Returns the series whose labels match, such as `result="denied"`.
    ///
    /// # Panics
    /// If the metric does not have one of the labels.
    fn with(&self, matchers: &str) -> String {
        let unknown = self.unknown(matchers);
        assert_eq!(unknown, None, "labels of {self}: {:?}", self.labels);
        format!("{self}{{{matchers}}}")
    }

    /// Returns the first label that the metric does not have.
    fn unknown<'m>(&self, matchers: &'m str) -> Option<&'m str> {
        let labels = matchers.split(',').map(|matcher| {
            let end = matcher.find(['=', '!']).unwrap_or(matcher.len());
            &matcher[..end]
        });
        let is_known = |label: &&str| self.labels.contains(label) || TARGET.contains(label);
        labels.into_iter().find(|label| !is_known(label))
    }
}

/// Returns the rate of counters over a span such as `[5m]`, summed by `labels`.
fn rate(labels: &str, series: impl fmt::Display, over: &str) -> String {
    format!("sum by ({labels}) (rate({series}{over}))")
}

/// Returns the time within which that part of the calls of a histogram ended.
fn quantile(part: &str, labels: &str, buckets: impl fmt::Display, over: &str) -> String {
    format!(
        "histogram_quantile({part}, {})",
        rate(labels, buckets, over)
    )
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/monitoring")
}

#[test]
fn the_files_are_current() {
    for (name, text) in [
        ("ratekeeper.rules.yml", alerts::file()),
        ("grafana.json", panels::file()),
    ] {
        let path = folder().join(name);
        if std::env::var("RATEKEEPER_MONITORING").is_ok_and(|what| what == "write") {
            std::fs::write(&path, &text).expect("the file can be written");
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "examples/monitoring/{name} is not current; run RATEKEEPER_MONITORING=write cargo test \
             -p ratekeeper-server --lib monitoring"
        );
    }
}

#[test]
fn a_label_that_a_metric_does_not_have_is_found() {
    for (matchers, expected) in [
        (r#"job="a",result=~"denied|error""#, None),
        (r#"result!="denied",outcome="denied""#, Some("outcome")),
        ("", Some("")),
    ] {
        let unknown = super::table::REQUESTS.unknown(matchers);
        assert_eq!(unknown, expected, "{matchers}");
    }
}

#[test]
fn each_alert_has_a_section_of_the_runbook_and_each_section_an_alert() {
    let runbook = std::fs::read_to_string(folder().join("../../docs/guide/runbook.md"));
    let runbook = runbook.expect("it is there");
    let sections: Vec<_> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .collect();
    let groups = alerts::groups();
    let alerts = groups.iter().flat_map(|(_, alerts)| alerts);
    let names: Vec<_> = alerts.map(|alert| alert.name).collect();
    let sorted = |mut names: Vec<_>| {
        names.sort_unstable();
        names
    };
    assert_eq!(sorted(names), sorted(sections));
}
