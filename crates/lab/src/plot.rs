//! Plot: offered against admitted over time, in characters.
//!
//! ```text
//!   /s
//!   20 |....
//!   10 |########        # admitted
//!    0 +---------       . offered, and not admitted at that time
//!      0   5   10 s
//! ```

use ratekeeper_core::{Nanos, Time};

use crate::axis::{Scale, moments, unit};
use crate::report::Report;
use crate::series::Bin;
use crate::workload::ReportRows;

/// Cell of a column up to the admitted rate.
pub const ADMITTED: char = '#';
/// Cell of a column above that, up to the offered rate.
pub const OFFERED: char = '.';
/// Lines of a plot.
const LINES: u32 = 12;
/// Columns left of the axis: a rate such as `12.5` or `2500`, and a space.
const MARGIN: usize = 7;
/// Columns of the narrowest plot.
const NARROWEST: usize = 20;
/// Columns between two labels of the time axis, the label included.
const LABEL: u64 = 10;
/// Characters of a strip, from little to much.
const RAMP: [char; 6] = ['.', ':', '-', '=', '*', '#'];
/// Number of them.
const STEPS: f64 = 6.0;

/// The time of a picture in columns of equal, round width.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    pub(crate) width: Nanos,
    pub(crate) bins: Vec<Bin>,
}

impl Columns {
    /// Creates at most `most` columns up to `end`.
    pub(crate) fn of(report: &Report, end: Time, most: u64) -> Self {
        let (width, bins) = report.series.overview(end, most);
        Self { width, bins }
    }

    /// Returns the time that the columns cover.
    pub(crate) fn span(&self) -> Nanos {
        let columns = self.bins.len() as u64;
        Nanos::from_nanos(self.width.as_nanos().saturating_mul(columns))
    }

    /// Rates per second, offered and admitted, column by column.
    #[expect(clippy::cast_precision_loss, reason = "only shown to people")]
    pub(crate) fn rates(&self) -> impl Iterator<Item = (f64, f64)> {
        let span = self.width.as_secs_f64();
        let rate = move |count: u64| count as f64 / span;
        self.bins
            .iter()
            .map(move |bin| (rate(bin.offered), rate(bin.admitted)))
    }
}

/// Draws a plot at most `width` characters wide, line by line. If the rows of the report are phases,
/// a line under the axis has the number of each where it begins.
pub fn plot(report: &Report, width: usize, rows: ReportRows) -> Vec<String> {
    let inner = width.saturating_sub(MARGIN + 1).max(NARROWEST);
    let columns = Columns::of(report, report.end, inner as u64);
    let scale = Scale::of(columns.rates());
    let ticks = scale.ticks();
    let label = |line: u32| {
        let tick = ticks.iter().find(|tick| level(&scale, **tick) == line);
        tick.map_or(String::new(), |tick| scale.label(*tick))
    };
    let heights: Vec<(u32, u32)> = columns
        .rates()
        .map(|(offered, admitted)| (cells(&scale, offered), cells(&scale, admitted)))
        .collect();
    let note = if scale.is_log { " (log scale)" } else { "" };
    let mut lines = vec![format!("{:>1$} per {2}{note}", "", MARGIN, scale.unit())];
    for line in (1..=LINES).rev() {
        let cells = heights.iter().map(|&(offered, admitted)| {
            if admitted >= line {
                ADMITTED
            } else if offered >= line {
                OFFERED
            } else {
                ' '
            }
        });
        let cells: String = cells.collect();
        let line = format!("{:>1$} |{cells}", label(line), MARGIN - 1);
        lines.push(line.trim_end().to_owned());
    }
    let shown = columns.bins.len();
    lines.push(format!(
        "{:>2$} +{}",
        label(0),
        "-".repeat(shown),
        MARGIN - 1
    ));
    if rows == ReportRows::Phases {
        lines.push(row_marks(report, &columns));
    }
    lines.push(time_labels(&columns));
    lines
}

/// Draws the admitted rate over time in one line: `.` little, `#` most of all, a space nothing.
/// Strips that are compared share `end` and `top` (admitted a second).
pub fn strip(report: &Report, end: Time, top: f64, width: usize) -> String {
    let columns = Columns::of(report, end, width.max(1) as u64);
    let cell = |(_, admitted): (f64, f64)| {
        if admitted <= 0.0 {
            return ' ';
        }
        let step = whole(admitted / top * STEPS);
        RAMP[(step as usize).clamp(1, RAMP.len()) - 1]
    };
    columns.rates().map(cell).collect()
}

/// Returns the highest rate of a strip of this width.
pub fn top_of_strip(report: &Report, end: Time, width: usize) -> f64 {
    let columns = Columns::of(report, end, width.max(1) as u64);
    columns
        .rates()
        .map(|(_, admitted)| admitted)
        .fold(0.0, f64::max)
}

/// Returns the number of cells that a rate fills; at least one, if it is above zero.
fn cells(scale: &Scale, rate: f64) -> u32 {
    if rate > 0.0 {
        whole(scale.height(rate) * f64::from(LINES)).max(1)
    } else {
        0
    }
}

/// Returns the line of a tick.
fn level(scale: &Scale, tick: f64) -> u32 {
    whole(scale.height(tick) * f64::from(LINES))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small and not negative"
)]
pub(crate) fn whole(value: f64) -> u32 {
    value.round() as u32
}

/// Formats the numbers of the rows, each where its row begins: `1 2 3   4`.
fn row_marks(report: &Report, columns: &Columns) -> String {
    let mut line = " ".repeat(MARGIN + 1);
    for (index, row) in report.rows.iter().enumerate() {
        put(
            &mut line,
            column_of(row.start.since(Time::ZERO), columns),
            &(index + 1).to_string(),
        );
    }
    line
}

fn time_labels(columns: &Columns) -> String {
    let most = (columns.bins.len() as u64 / LABEL).max(1);
    let mut line = " ".repeat(MARGIN + 1);
    for (moment, text) in moments(columns.span(), most) {
        put(&mut line, column_of(moment, columns), &text);
    }
    line + " " + unit(columns.span()).0
}

fn column_of(moment: Nanos, columns: &Columns) -> usize {
    let column = moment.as_nanos() / columns.width.as_nanos().max(1);
    usize::try_from(column)
        .unwrap_or(usize::MAX)
        .min(columns.bins.len())
}

/// Writes `text` at a column, if there is room after the text already there.
fn put(line: &mut String, column: usize, text: &str) {
    let at = MARGIN + 1 + column;
    if at > line.len() || (at == line.len() && (line.ends_with(' ') || column == 0)) {
        line.push_str(&" ".repeat(at - line.len()));
        line.push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Gcra;

    use super::*;
    use crate::arrivals::ArrivalPattern;
    use crate::workload::Traffic;
    use crate::{Bench, Workload, play};

    fn report(workload: &Workload) -> Report {
        let gcra = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
        play(&mut Bench::new(gcra.into()), workload, None)
    }

    fn steady() -> Workload {
        let traffic = Traffic {
            rate: "20/s".parse().unwrap(),
            span: Nanos::from_secs(10),
            seed: 1,
        };
        Workload::patterned(traffic, ArrivalPattern::Steady).unwrap()
    }

    #[test]
    fn refused_requests_are_drawn_above_admitted_ones() {
        let workload = steady();
        let lines = plot(&report(&workload), 28, workload.rows);
        let expected = "        per s
    20 |#...................
       |##..................
       |##..................
    15 |##..................
       |##..................
       |##..................
    10 |####################
       |####################
       |####################
     5 |####################
       |####################
       |####################
     0 +--------------------
        0         5         10 s";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn a_plot_is_as_wide_as_there_is_room() {
        let report = report(&Workload::eight_phases());
        for width in [0, 20, 40, 80, 200] {
            let widest = plot(&report, width, ReportRows::Phases)
                .iter()
                .map(String::len)
                .max();
            let most = width.max(MARGIN + 1 + NARROWEST) + 8; // the unit may stand out
            assert!(
                widest.is_some_and(|widest| widest <= most),
                "{widest:?} of {width}"
            );
        }
    }

    #[test]
    fn a_strip_shows_little_and_much() {
        let report = report(&steady());
        let top = top_of_strip(&report, report.end, 10);
        assert_eq!(strip(&report, report.end, top, 10), "#---------");
    }

    #[test]
    fn an_empty_workload_has_a_plot() {
        let nothing = Workload {
            phases: Vec::new(),
            ..Workload::eight_phases()
        };
        assert_eq!(plot(&report(&nothing), 80, ReportRows::Phases).len(), 16);
    }
}
