//! Report: one table, fixed columns.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use crate::measure::Measured;

/// Prints a line as it is.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// Prints a table; the ratio of each row is to the row named `reference`.
pub(crate) fn table(title: &str, reference: &str, rows: &[Measured]) {
    let least = |name: &str| {
        rows.iter()
            .find(|row| row.name == name)
            .map(|row| row.least)
    };
    let base = least(reference).unwrap_or(f64::NAN);
    println!("\n{title}   (ns per decision; ratio of least to: {reference})");
    println!(
        "{:<46} {:>8} {:>8} {:>8} {:>7}",
        "", "least", "median", "cpu", "ratio"
    );
    for row in rows {
        println!(
            "{:<46} {:>8.2} {:>8.2} {:>8.2} {:>7.2}",
            row.name,
            row.least,
            row.median,
            row.cpu,
            row.least / base
        );
    }
}
