//! Drawing: the lines of the screen.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::{Below, Focus, Screen};
use crate::top::row::{KeyRow, LimitRow};
use crate::top::table::{
    self, COUNTRY_HEAD, KeyNotes, clipped, country_line, key_head, key_line, keys_refused,
    note_line,
};
use crate::top::trend::Trend;
use crate::words;

/// Maximum number of notes.
const MAX_NOTES: usize = 3;

impl Screen {
    /// Returns the lines of a terminal of that size.
    pub(in crate::top) fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled(self.title(), bold), Line::raw(self.totals())];
        let notes = self.board.notes.iter().take(MAX_NOTES);
        lines.extend(notes.map(|note| Line::styled(note_line(note), bold)));
        self.limit_lines(&mut lines, (width, height));
        lines.push(Line::raw(""));
        let rows = height.saturating_sub(lines.len() + 3);
        match &self.below {
            Below::Keys => self.key_lines(&mut lines, (width, rows)),
            Below::Countries => {
                lines.push(Line::styled(COUNTRY_HEAD, bold));
                let countries = self.board.countries.iter().take(rows);
                lines.extend(countries.map(|row| Line::raw(country_line(row))));
            }
            Below::Words {
                limit,
                lines: all,
                first,
            } => {
                let head = format!("{limit} (arrows scroll, k shows the keys again)");
                lines.push(Line::styled(head, bold));
                let all = all
                    .iter()
                    .skip(*first)
                    .flat_map(|line| wrapped(line, width));
                lines.extend(all.take(rows).map(Line::raw));
            }
        }
        lines.resize(height.saturating_sub(2), Line::raw(""));
        lines.push(Line::raw(self.message.clone()));
        let country = match self.board.countries.as_slice() {
            [] => "",
            _ => " [c]ountry",
        };
        lines.push(Line::styled(
            format!("[l]imits [k]eys{country} [e]xplain [r]eset [b]an [o]verride [/]filter [q]uit"),
            Style::new().add_modifier(Modifier::DIM),
        ));
        lines
    }

    /// Adds the limits, a third of the screen at most.
    fn limit_lines(&self, lines: &mut Vec<Line<'static>>, (width, height): (usize, usize)) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let limits = self.board.limits.len().clamp(1, (height / 3).max(1));
        let keys = if width >= WIDE { "   KEYS REFUSED" } else { "" };
        lines.push(Line::styled(format!("{LIMIT_HEAD}{keys}"), bold));
        let first = self.limit.saturating_sub(limits - 1);
        let rows = self.board.limits.iter().enumerate();
        for (index, row) in rows.skip(first).take(limits) {
            let mut line = self.limit_line(row);
            if width >= WIDE {
                let keys = keys_refused(row);
                line = format!("{line:KEYS_COLUMN$}{keys}");
            }
            lines.push(Line::styled(line, self.style(Focus::Limits, index)));
        }
    }

    /// Adds the keys of the selected limit.
    fn key_lines(&self, lines: &mut Vec<Line<'static>>, (width, rows): (usize, usize)) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let limit = self.board.limit.as_deref().unwrap_or_default();
        let row = self.board.limits.iter().find(|row| row.name == limit);
        let head = key_head(limit, row.map_or("", LimitRow::reading));
        lines.push(Line::styled(head, bold));
        let notes = KeyNotes {
            at_ms: self.board.at_ms,
            covers_ms: self.board.keys_cover_ms,
            by_minute: self.board.by_minute,
            wide: width >= WIDE,
        };
        let first = (self.key + 1).saturating_sub(rows);
        for (index, row) in self.keys().into_iter().enumerate().skip(first).take(rows) {
            let since = since(row, width);
            let line = format!("{}{since}", key_line(row, notes));
            lines.push(Line::styled(line, self.style(Focus::Keys, index)));
        }
    }

    /// Returns the style of a row: the selected one is reversed.
    fn style(&self, table: Focus, index: usize) -> Style {
        let selected = match table {
            Focus::Limits => self.limit,
            Focus::Keys => self.key,
        };
        if (table, index) == (self.focus, selected) {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        }
    }

    fn title(&self) -> String {
        let answered = words::counted(self.board.answered.len(), "server");
        let failed = match self.board.failed.len() {
            0 => String::new(),
            failed => format!(", {failed} not answering"),
        };
        let policy = match self.board.policies.as_slice() {
            [] => String::new(),
            [one] => format!("   policy {one}"),
            more => format!("   {} different policies", more.len()),
        };
        let stores = self.board.stores.join(", ");
        let (by, window) = (&self.request.by, &self.request.window);
        format!("ratekeeper top   {answered}{failed}{policy}   {stores}   by {by}, {window}")
    }

    fn totals(&self) -> String {
        let [mut all, mut denied, mut shadow, mut near] = [0.0; 4];
        for row in &self.board.limits {
            let [decided, refused, close] = self
                .rates
                .get(&row.name)
                .map_or([0.0; 3], |trend| trend.rates);
            all += decided;
            near += close;
            *(if row.mode == "shadow" {
                &mut shadow
            } else {
                &mut denied
            }) += refused;
        }
        let percent = |part: f64| part * 100.0 / all.max(1.0);
        let time = self.times.within(99).unwrap_or_else(|| "-".into());
        format!(
            "{all:.1} decisions/s   denied {:.1} %   shadow {:.1} %   near {:.1} %   p99 {time}",
            percent(denied),
            percent(shadow),
            percent(near)
        )
    }

    /// Returns a limit with its rate since the last board, in place of that of the window.
    fn limit_line(&self, row: &LimitRow) -> String {
        let trend = self.rates.get(&row.name);
        let rate = trend.map_or(0.0, |trend| trend.rates[0]);
        let denied = row.denied_percent();
        let name = clipped(&row.name, 18);
        let highest = table::percent(row.highest_percent);
        let bar = bar(row.highest_percent.unwrap_or_default());
        let trend = trend.map(Trend::text).unwrap_or_default();
        format!(
            "{name:18} {:7} {rate:>8.1} {denied:>5.1} %  {bar} {highest:>5}  {trend}",
            row.mode
        )
    }
}

/// Returns a share in percent as a bar of ten characters.
fn bar(percent: u64) -> String {
    let full = usize::try_from(percent / 10).unwrap_or(10).min(10); // full means all of it
    format!("[{}{}]", "#".repeat(full), "-".repeat(10 - full))
}

/// Returns the lines of a text that is too long for one; those after the first are indented.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "              ";
    let width = width.max(2 * INDENT.len());
    let mut lines = vec![String::new()];
    let lead = text.len() - text.trim_start().len();
    for (index, word) in text.trim_start().split(' ').enumerate() {
        let last = lines
            .last_mut()
            .map(|line| line.chars().count())
            .unwrap_or_default();
        if index > 0 && last + 1 + word.chars().count() > width {
            lines.push(format!("{INDENT}{word}"));
        } else if let Some(line) = lines.last_mut() {
            line.push_str(if index == 0 { &text[..lead] } else { " " });
            line.push_str(word);
        }
    }
    lines
}

const LIMIT_HEAD: &str =
    "LIMIT              MODE          /s  DENIED  HEADROOM            TREND (60 s)";
/// Column of the keys that a limit refused, on a wide screen.
const KEYS_COLUMN: usize = 80;
/// Width from which the first refusal of a key is shown.
const WIDE: usize = 120;

fn since(row: &KeyRow, width: usize) -> String {
    match &row.since {
        Some(since) if width >= WIDE => format!("   refused since {since}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::board::{Board, TopRequest};

    #[test]
    fn a_long_line_is_wrapped_and_indented() {
        assert_eq!(wrapped("    for       all", 80), ["    for       all"]);
        let long = format!("    ban       {}", "word ".repeat(30));
        let lines = wrapped(long.trim_end(), 80);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 80));
        assert!(lines[1].starts_with("              word"), "{lines:?}");
    }

    #[test]
    fn rows_fit_their_columns_on_a_small_screen() {
        let request = TopRequest {
            limit: None,
            by: "denied".into(),
            window: "1m".into(),
            count: 20,
        };
        let mut screen = Screen::new(request);
        screen.board = Board {
            at_ms: 1_767_225_600_000, // 2026-01-01T00:00:00Z
            by_minute: true,
            limit: Some("a-limit-with-a-very-long-name".into()),
            limits: vec![LimitRow {
                name: "a-limit-with-a-very-long-name".into(),
                mode: "enforce".into(),
                denied: 9_752,
                distinct_denied: 12,
                distinct_at_most: 12,
                busiest: 9_000,
                highest_percent: Some(100),
                ..LimitRow::default()
            }],
            keys: vec![KeyRow {
                key: vec!["attr:user=".to_owned() + &"m".repeat(40)],
                since: Some("2025-12-31T22:01:00Z".into()),
                next_free_in_ms: Some(39_000_000),
                ..KeyRow::default()
            }],
            ..Board::default()
        };
        let shown = |width: usize| {
            let lines = screen.lines(width, 24);
            lines.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let small = shown(80);
        assert_eq!(small.len(), 24);
        assert!(
            small.iter().all(|line| line.chars().count() <= 80),
            "{small:#?}"
        );
        assert!(
            small
                .iter()
                .any(|line| line.ends_with("denied 119 min running"))
        );
        let wide = shown(200).join("\n");
        assert!(wide.contains("12 (mostly one key)"), "{wide}");
        assert!(
            wide.contains("denied 119 min running, free in 10 h 50 min"),
            "{wide}"
        );
    }

    #[test]
    fn a_bar_is_full_at_a_hundred() {
        assert_eq!(bar(0), "[----------]");
        assert_eq!(bar(94), "[#########-]");
        assert_eq!(bar(100), "[##########]");
        assert_eq!(bar(250), "[##########]");
    }
}
