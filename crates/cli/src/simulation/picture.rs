//! Picture: the SVG file.

use ratekeeper_core::Algorithm as _;
use std::path::Path;

use ratekeeper_lab::svg::{self, Panel};

use super::table::SimulatedLimit;
use crate::output::unwritable;
use crate::{Result, words};

/// Writes the picture of all outcomes.
///
/// # Errors
/// Returns an error if the file cannot be written.
pub(crate) fn write(path: &Path, title: &str, outcomes: &[SimulatedLimit]) -> Result<()> {
    let subtitles: Vec<String> = outcomes.iter().map(subtitle).collect();
    let panels: Vec<Panel<'_>> = outcomes
        .iter()
        .zip(&subtitles)
        .map(|(outcome, subtitle)| Panel {
            title: &outcome.subject.name,
            subtitle,
            report: &outcome.report,
        })
        .collect();
    std::fs::write(path, svg::svg(title, &panels)).map_err(|why| unwritable(path, &why))
}

/// Returns the subtitle, `2,130 admitted; most in 1 s: 19, bound 19`.
fn subtitle(outcome: &SimulatedLimit) -> String {
    let SimulatedLimit { subject, report } = outcome;
    let admitted = words::count(report.total.admitted);
    let stopped = report.stop.map_or("", |_| ", then stopped");
    let window = subject.window;
    match report.most_within(window) {
        Some(most) => format!(
            "{admitted} admitted{stopped}; most in {}: {}, bound {}",
            words::span(window),
            words::count(most),
            words::count(subject.algorithm.bound(window))
        ),
        None => format!("{admitted} admitted{stopped}"),
    }
}
