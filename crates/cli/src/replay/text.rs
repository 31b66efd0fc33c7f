//! Text: the report of a replay for a terminal.

use ratekeeper_replay::report::{CountsReport, ReplayReport, ReplayedLimit};

use super::session::counted_lines;
use super::table::{TextTable, plain};
use crate::output::{BAD, GOOD, NAME, WARN, paint};
use crate::{Output, Result, words};

/// Maximum number of rows of the plot of hours.
const ROWS: usize = 24;

pub(crate) fn write(report: &ReplayReport, output: &mut Output) -> Result<()> {
    write_log(report, output)?;
    for limit in &report.limits {
        output.line("")?;
        self::limit(limit, output)?;
    }
    let differs = |limit: &ReplayedLimit| limit.counts.refused != report.all.refused;
    if report.limits.len() > 1 || report.limits.iter().any(differs) {
        output.line(format!("\nall limits: refused {}", of_all(&report.all)))?;
    }
    Ok(())
}

/// Prints the counts of the lines of the log, and the notes.
pub(crate) fn write_log(report: &ReplayReport, output: &mut Output) -> Result<()> {
    for line in about_log(report) {
        output.line(line)?;
    }
    for note in &report.notes {
        output.line(format!("{} {note}", paint(WARN, "note:")))?;
    }
    Ok(())
}

/// Returns the lines about the log and what was read of it.
pub(crate) fn about_log(report: &ReplayReport) -> Vec<String> {
    let mut lines = report.files.clone();
    lines.push(format!(
        "{}; {}; resolution {}",
        counted_lines(report.lines, report.decided, report.skipped),
        words::counted(report.all.clients, "client"),
        report.resolution,
    ));
    if let (Some(from), Some(to)) = (&report.from, &report.to) {
        lines.push(format!("from {from} to {to}"));
    }
    lines.extend(report.skipped_lines.iter().map(|skipped| {
        format!(
            "skipped {}: {}; the first, {}:{}: {}",
            words::count(skipped.count),
            skipped.reason,
            skipped.path,
            skipped.line,
            skipped.text
        )
    }));
    if report.out_of_order > 0 {
        let count = words::count(report.out_of_order);
        lines.push(format!(
            "{count} lines were out of order, and were put in order"
        ));
    }
    lines
}

/// Returns `405 (1.62 %)`.
pub(crate) fn share(part: u64, all: u64) -> String {
    let percent = part as f64 * 100.0 / all.max(1) as f64;
    let digits = match percent {
        percent if percent >= 10.0 || part == 0 => 1,
        percent if percent >= 0.1 => 2,
        _ => 4,
    };
    format!("{} ({percent:.digits$} %)", words::count(part))
}

/// Returns what a limit refused, or would refuse or send to a route, in one sentence.
pub(crate) fn sentence(limit: &ReplayedLimit) -> String {
    let all = of_all(&limit.counts);
    let route = limit.on_limit.as_ref();
    let would = route.map_or("would refuse".into(), |it| format!("would send to {it}"));
    match limit.enforced {
        _ if limit.mode == "off" => "decided nothing, because it is off".into(),
        enforced if enforced == limit.counts.refused && limit.mode != "shadow" => {
            format!("refused {all}")
        }
        0 => format!("{would} {all}"),
        enforced => format!("{would} {all}; it refused {}", words::count(enforced)),
    }
}

/// Returns the refused requests and the clients hit: `3 (1.00 %) of 300 requests, ..`.
fn of_all(counts: &CountsReport) -> String {
    format!(
        "{} of {} requests, {} of {} clients",
        share(counts.refused, counts.requests),
        words::count(counts.requests),
        share(counts.clients_hit, counts.clients),
        words::count(counts.clients),
    )
}

/// Returns the keys that a limit refused most.
pub(crate) fn worst_keys(limit: &ReplayedLimit) -> TextTable {
    let rows = limit.worst.iter().map(|key| {
        let refused = words::count(key.refused);
        vec![
            key.key.clone(),
            refused,
            key.first.clone(),
            key.last.clone(),
        ]
    });
    TextTable::new(&["key", "refused", "first", "last"], rows)
}

fn limit(limit: &ReplayedLimit, output: &mut Output) -> Result<()> {
    let style = if limit.counts.refused > 0 { BAD } else { GOOD };
    let sentence = paint(style, &sentence(limit));
    let name = paint(NAME, &limit.name);
    output.line(format!("{name} {}: {sentence}", limit.limit))?;
    let Some(first) = &limit.first_refused else {
        return Ok(());
    };
    output.line(format!("  first {first}"))?;
    worst_keys(limit).write(output)?;
    if limit.worst.iter().all(|key| !key.key.contains("ip=")) {
        let clients = limit.worst_clients.iter().take(5);
        let clients: Vec<String> = clients
            .map(|(name, count)| format!("{} {count}", plain(name)))
            .collect();
        output.line(format!("  clients refused most: {}", clients.join(", ")))?;
    }
    plot(limit, output)
}

/// Draws the refusals of each hour, or of several together.
fn plot(limit: &ReplayedLimit, output: &mut Output) -> Result<()> {
    let hours = &limit.counts.hours;
    let together = hours.len().div_ceil(ROWS).max(1);
    let rows: Vec<(&str, u64, u64)> = hours
        .chunks(together)
        .map(|hours| {
            let sum = |count: fn(&(String, u64, u64)) -> u64| hours.iter().map(count).sum();
            (&*hours[0].0, sum(|hour| hour.1), sum(|hour| hour.2))
        })
        .collect();
    let most = rows.iter().map(|row| row.2).max().unwrap_or(0).max(1);
    let cells = Output::width().saturating_sub(58).max(16);
    if together > 1 {
        output.line(format!("  {together} hours a row"))?;
    }
    for (start, requests, refused) in rows {
        let filled = usize::try_from((refused * cells as u64).div_ceil(most)).unwrap_or(cells);
        let bar = format!(
            "{}{}",
            "#".repeat(filled),
            " ".repeat(cells - filled.min(cells))
        );
        output.line(format!(
            "  {start} {} {} of {} refused",
            paint(BAD, &bar),
            words::count(refused),
            words::count(requests)
        ))?;
    }
    Ok(())
}
