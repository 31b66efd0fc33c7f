//! Report: one table, fixed columns.

#![expect(clippy::print_stdout, reason = "the table is what this program is for")]

use std::fmt::Write as _;

use crate::measure::Measured;

/// Prints a line unchanged.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// Prints a table; ratios are to the row named `reference`.
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

/// Prints a table of contenders that do the same work. Rows named `floor..` are not peers; rows
/// named `ours..` show their speed relative to the best peer. A peer with a name that ends in `*`
/// reads no clock, and is named beside the best of the others.
pub(crate) fn beside(title: &str, (floor, ours): (&str, &str), rows: &[Measured]) {
    let is = |row: &&Measured, what: &str| row.name.starts_with(what);
    let base = rows.iter().find(|row| is(row, floor));
    let base = base.map_or(f64::NAN, |row| row.least);
    let best = |clockless: bool| {
        let peers = rows.iter().filter(|row| !is(row, floor) && !is(row, ours));
        let peers = peers.filter(|row| row.name.ends_with('*') == clockless);
        peers.min_by(|a, b| a.least.total_cmp(&b.least))
    };
    println!("\n{title}   (ns each; ratio of least to the floor)");
    println!(
        "{:<46} {:>8} {:>8} {:>8} {:>7}",
        "", "least", "median", "cpu", "floor"
    );
    for row in rows {
        let mut stands = String::new();
        for peer in [best(false), best(true)].into_iter().flatten() {
            if is(&row, ours) {
                let _ = write!(stands, "  {:.2} x {}", peer.least / row.least, peer.name);
            }
        }
        println!(
            "{:<46} {:>8.2} {:>8.2} {:>8.2} {:>7.2}{stands}",
            row.name,
            row.least,
            row.median,
            row.cpu,
            row.least / base
        );
    }
}

/// Prints a table with the bytes of each row, and its ratio to its goal; a row without a goal has
/// NaN there.
pub(crate) fn goals(
    title: &str,
    reference: &str,
    rows: &[Measured],
    goals: impl Iterator<Item = (usize, f64)>,
) {
    let base = rows.iter().find(|row| row.name == reference);
    let base = base.map_or(f64::NAN, |row| row.least);
    println!("\n{title}   (ns per decision; ratio of least to: {reference})");
    println!(
        "{:<42} {:>8} {:>8} {:>8} {:>8} {:>7}  goal",
        "", "bytes", "least", "median", "cpu", "ratio"
    );
    let mut missed = 0;
    for (row, (bytes, goal)) in rows.iter().zip(goals) {
        let share = row.least / goal;
        let stands = match goal {
            goal if goal.is_nan() => String::new(),
            goal if row.least <= goal => format!("{goal:.0}: met {share:.2}"),
            goal => {
                missed += 1;
                format!("{goal:.0}: missed {share:.2}")
            }
        };
        println!(
            "{:<42} {:>8} {:>8.2} {:>8.2} {:>8.2} {:>7.2}  {stands}",
            row.name,
            bytes,
            row.least,
            row.median,
            row.cpu,
            row.least / base
        );
    }
    println!("{missed} missed");
}
