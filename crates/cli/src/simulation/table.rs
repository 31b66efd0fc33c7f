//! Table: results of a simulation, in rows for people.

use ratekeeper_core::{Algorithm as _, Nanos, Time};
use ratekeeper_lab::workload::ReportRows;
use ratekeeper_lab::{AdmissionCounts, Report, ReportRow, Stop, Workload, plot, rate};

use super::subject::Subject;
use crate::output::{BAD, GOOD, NAME, WARN, paint, paint_runs};
use crate::replay::table::TextTable;
use crate::{Output, Result, words};

/// A limit and the results of its workload.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedLimit {
    pub(crate) subject: Subject,
    pub(crate) report: Report,
}

/// Columns of a strip.
const STRIP: usize = 50;

/// Writes one limit: its rows, its total, its maximum admission.
pub(crate) fn one(outcome: &SimulatedLimit, rows: ReportRows, output: &mut Output) -> Result<()> {
    let SimulatedLimit { report, .. } = outcome;
    let by_phase = rows == ReportRows::Phases;
    let first = if by_phase { "phase" } else { "from" };
    let head = [
        first,
        "offered",
        "admitted",
        "refused",
        "gave up",
        "took",
        "rate",
        "mean wait",
        "longest",
    ];
    let each = report.rows.iter().enumerate().map(|(index, row)| {
        let label = if by_phase {
            (index + 1).to_string()
        } else {
            words::span(row.start.since(Time::ZERO))
        };
        cells(label, row, rows)
    });
    let whole = ReportRow {
        start: Time::ZERO,
        end: report.end,
        rate: None,
        counts: report.total,
    };
    let total = cells("total".into(), &whole, rows);
    TextTable::new(&head, each.chain([total])).write(output)
}

fn cells(label: String, row: &ReportRow, rows: ReportRows) -> Vec<String> {
    let AdmissionCounts {
        offered,
        admitted,
        refused,
        gave_up,
        wait_max,
        ..
    } = row.counts;
    let offered = match row.rate.filter(|_| rows == ReportRows::Phases) {
        Some(rate) => format!("{} at {rate}", words::count(offered)),
        None => words::count(offered),
    };
    vec![
        label,
        offered,
        words::count(admitted),
        words::count(refused),
        words::count(gave_up),
        words::span(row.span()),
        rate(row.admitted_per_second()),
        row.counts.wait_mean().map_or("-".into(), words::span),
        words::span(wait_max),
    ]
}

/// Returns the maximum admission, beside the bound of the limit.
pub(crate) fn worst(outcome: &SimulatedLimit) -> Option<String> {
    let window = outcome.subject.window;
    let most = outcome.report.most_within(window)?;
    let bound = outcome.subject.algorithm.bound(window);
    Some(format!(
        "at most {} admitted in any {}; the bound is {}",
        words::count(most),
        words::bounded_span(window),
        words::count(bound)
    ))
}

/// Draws the plot of one limit, `#` green and `.` yellow.
pub(crate) fn draw(
    report: &Report,
    rows: ReportRows,
    width: usize,
    output: &mut Output,
) -> Result<()> {
    for line in plot::plot(report, width, rows) {
        output.line(painted(&line))?;
    }
    let legend = format!(
        "        {} admitted   {} offered, and not admitted at that time",
        paint(GOOD, &plot::ADMITTED.to_string()),
        paint(WARN, &plot::OFFERED.to_string())
    );
    output.line(legend)
}

/// Paints runs of `#` and `.` right of the axis in their colours.
fn painted(line: &str) -> String {
    let Some((label, cells)) = line.split_once('|') else {
        return line.to_owned();
    };
    let painted = paint_runs(cells, |cell| match cell {
        b'#' => Some(GOOD),
        b'.' => Some(WARN),
        _ => None,
    });
    format!("{label}|{painted}")
}

/// Writes all algorithms side by side.
pub(crate) fn compared(
    outcomes: &[SimulatedLimit],
    workload: &Workload,
    output: &mut Output,
) -> Result<()> {
    let by_phase = workload.rows == ReportRows::Phases;
    let phases = workload.phases.len();
    let window = outcomes
        .first()
        .map_or(Nanos::SECOND, |outcome| outcome.subject.window);
    let most_in = format!("most in {window}");
    let numbers: Vec<String> = (1..=phases).map(|phase| phase.to_string()).collect();
    let mut head = vec![""];
    if by_phase {
        head.extend(numbers.iter().map(String::as_str));
    } else {
        head.extend(["admitted", "refused", "gave up", "longest"]);
    }
    head.extend([&most_in, "bound"]);
    let mut table = Vec::with_capacity(outcomes.len());
    for SimulatedLimit { subject, report } in outcomes {
        let mut line = vec![subject.name.clone()];
        if by_phase {
            line.extend((0..phases).map(|index| phase(report, index)));
        } else {
            let counts = &report.total;
            line.extend([counts.admitted, counts.refused, counts.gave_up].map(words::count));
            line.push(words::span(counts.wait_max));
        }
        line.push(report.most_within(window).map_or("-".into(), words::count));
        line.push(words::count(subject.algorithm.bound(window)));
        table.push(line);
    }
    if by_phase {
        output.line("  seconds that each phase took")?;
    }
    TextTable::new(&head, table).write(output)?;
    strips(outcomes, output)
}

/// Returns `19`, `22.23`, or why there is no number.
fn phase(report: &Report, index: usize) -> String {
    let stopped = report.stop.is_some() && index + 1 >= report.rows.len();
    match report.rows.get(index).filter(|_| !stopped) {
        Some(row) => {
            let text = format!("{:.2}", row.span().as_secs_f64());
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        None if index + 1 == report.rows.len() => "never".into(),
        None => "-".into(),
    }
}

/// Draws the admissions over time, a line for each limit.
fn strips(outcomes: &[SimulatedLimit], output: &mut Output) -> Result<()> {
    let end = outcomes.iter().map(|outcome| outcome.report.end).max();
    let end = end.unwrap_or(Time::ZERO);
    let tops = outcomes
        .iter()
        .map(|outcome| plot::top_of_strip(&outcome.report, end, STRIP));
    let top = tops.fold(0.0, f64::max);
    let names = outcomes.iter().map(|outcome| outcome.subject.name.len());
    let names = names.max().unwrap_or(0);
    output.line(format!(
        "\n  admitted over time, from 0 to {}",
        words::span(end.since(Time::ZERO))
    ))?;
    for SimulatedLimit { subject, report } in outcomes {
        let name = paint(NAME, &format!("{:<names$}", subject.name));
        let strip = plot::strip(report, end, top, STRIP);
        output.line(format!("  {name}  |{}|", paint(GOOD, &strip)))?;
    }
    output.line(format!(
        "  {:names$}  . : - = * # from little to {}",
        "",
        rate(top)
    ))
}

/// Returns why a workload was not played to its end.
pub(crate) fn reason(report: &Report) -> Option<String> {
    let after = |since: Time| words::span(since.since(Time::ZERO));
    let text = match report.stop? {
        Stop::RefusalsCount { row, since } => format!(
            "phase {} can never finish, because refused requests count as well: clients that go on \
             sending keep the limit exhausted (nothing was admitted for 120 s after {})",
            row + 1,
            after(since)
        ),
        Stop::Drought { row, since } => format!(
            "phase {} does not finish: nothing was admitted for 120 s after {}, nor at the \
             promised time",
            row + 1,
            after(since)
        ),
        Stop::NeverFits { capacity } => format!(
            "no request is ever admitted: its cost is above the capacity of the limit ({})",
            words::count(capacity.get())
        ),
        Stop::TooMany => format!(
            "after {} decisions, the maximum: too many attempts, most of them refused",
            words::count(ratekeeper_lab::MAX_DECISIONS)
        ),
    };
    Some(paint(BAD, "stopped") + ": " + &text)
}
