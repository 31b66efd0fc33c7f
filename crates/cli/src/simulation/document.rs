//! Document: results of a simulation as JSON, for programs.

use ratekeeper_core::{Algorithm as _, Nanos, Time};
use ratekeeper_lab::{AdmissionCounts, Report, ReportRow, Stop};
use serde_json::{Value, json};

use super::table::SimulatedLimit;

/// Maximum number of columns of a series.
const COLUMNS: u64 = 200;

/// Returns one limit and its report.
pub(crate) fn outcome(outcome: &SimulatedLimit) -> Value {
    let SimulatedLimit { subject, report } = outcome;
    let mut document = counts(&report.total);
    document["name"] = subject.name.as_str().into();
    document["limit"] = subject.text.as_str().into();
    document["algorithm"] = subject.algorithm.name().into();
    document["end_ms"] = millis(report.end.since(Time::ZERO));
    document["rate_per_s"] = report.admitted_per_second().into();
    document["window_ms"] = millis(subject.window);
    document["most_in_window"] = report.most_within(subject.window).into();
    document["bound_in_window"] = subject.algorithm.bound(subject.window).into();
    document["decisions"] = report.decisions.into();
    document["stopped"] = report.stop.as_ref().map(Stop::as_ref).into();
    document["rows"] = report.rows.iter().map(row).collect();
    document["series"] = series(report);
    document
}

fn row(row: &ReportRow) -> Value {
    let mut document = counts(&row.counts);
    document["start_ms"] = millis(row.start.since(Time::ZERO));
    document["duration_ms"] = millis(row.span());
    document["rate_per_s"] = row.admitted_per_second().into();
    document["offered_rate"] = row.rate.map(|rate| rate.to_string()).into();
    document
}

fn counts(counts: &AdmissionCounts) -> Value {
    json!({
        "offered": counts.offered,
        "admitted": counts.admitted,
        "refused": counts.refused,
        "gave_up": counts.gave_up,
        "delayed": counts.delayed,
        "waited": counts.waited,
        "wait_mean_ms": counts.wait_mean().map(millis),
        "wait_max_ms": millis(counts.wait_max),
    })
}

fn series(report: &Report) -> Value {
    let (column, bins) = report.series.overview(report.end, COLUMNS);
    let numbers = |of: fn(&ratekeeper_lab::Bin) -> u64| bins.iter().map(of).collect::<Vec<_>>();
    json!({
        "column_ms": millis(column),
        "offered": numbers(|bin| bin.offered),
        "admitted": numbers(|bin| bin.admitted),
        "refused": numbers(|bin| bin.refused),
    })
}

/// Returns milliseconds, with fractions.
fn millis(span: Nanos) -> Value {
    (span.as_secs_f64() * 1e3).into()
}
