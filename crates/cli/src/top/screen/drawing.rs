//! Drawing: the lines of the screen.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::Screen;
use crate::top::board::{Board, StoreState};
use crate::top::row::{BoardRow, KeyRow};
use crate::top::table::{self, WIDE, clipped, key_head, key_line, keys_refused, note_line, plain};
use crate::top::trend::Trend;

/// Maximum number of notes.
const MAX_NOTES: usize = 3;

impl Screen {
    /// Returns the lines of a terminal of that size.
    pub(in crate::top) fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled(self.title(), bold), Line::raw(self.totals())];
        let upstreams = self.board.upstreams.iter().take(MAX_NOTES);
        lines.extend(upstreams.map(|row| Line::raw(clipped(&plain(&row.text()), width))));
        let notes = self.board.notes.iter().take(MAX_NOTES);
        lines.extend(notes.map(|note| Line::styled(clipped(&note_line(note), width), bold)));
        self.limit_lines(&mut lines, width, height);
        lines.push(Line::raw(""));
        let rows = height.saturating_sub(lines.len() + 3);
        self.key_lines(&mut lines, width, rows);
        lines.resize(height.saturating_sub(2), Line::raw(""));
        lines.push(Line::raw(self.message.clone()));
        let dim = Style::new().add_modifier(Modifier::DIM);
        lines.push(Line::styled("arrows select a limit, [q]uit", dim));
        lines
    }

    /// Adds the limits, a third of the screen at most.
    fn limit_lines(&self, lines: &mut Vec<Line<'static>>, width: usize, height: usize) {
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
            let mut style = Style::new();
            if index == self.limit {
                style = style.add_modifier(Modifier::REVERSED);
            }
            lines.push(Line::styled(line, style));
        }
    }

    /// Adds the keys of the selected limit.
    fn key_lines(&self, lines: &mut Vec<Line<'static>>, width: usize, rows: usize) {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let limit = self.board.limit.as_deref().unwrap_or_default();
        let row = self.board.limits.iter().find(|row| row.name == limit);
        let head = key_head(limit, row.map_or("", |row| &row.cause));
        lines.push(Line::styled(head, bold));
        for row in self.board.keys.iter().take(rows) {
            let line = key_line(row, &self.board, width) + &since(row, width);
            lines.push(Line::raw(line));
        }
    }

    fn title(&self) -> String {
        let Board { version, sha, .. } = &self.board;
        let StoreState { kind, state } = &self.board.store;
        let policy = match version {
            0 => String::new(), // no answer yet
            version => format!("v{version} {sha:.SHA_SHOWN$}"),
        };
        let (by, window) = (&self.request.by, &self.request.window);
        format!("ratekeeper top   policy {policy}   {kind} {state}   by {by}, {window}")
    }

    fn totals(&self) -> String {
        let [mut all, mut denied, mut shadow, mut near] = [0.0; 4];
        for row in &self.board.limits {
            let trend = self.rates.get(&row.name);
            let [decided, refused, close] = trend.map_or([0.0; 3], |trend| trend.rates);
            all += decided;
            near += close;
            match row.mode.as_str() {
                "shadow" => shadow += refused,
                _ => denied += refused,
            }
        }
        let percent = |part: f64| part * 100.0 / all.max(1.0);
        format!(
            "{all:.1} decisions/s   denied {:.1} %   shadow {:.1} %   near {:.1} %",
            percent(denied),
            percent(shadow),
            percent(near)
        )
    }

    /// Returns a limit with its rate since the last board, in place of that of the window.
    fn limit_line(&self, row: &BoardRow) -> String {
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

const LIMIT_HEAD: &str =
    "LIMIT              MODE          /s  DENIED  SPENT               TREND (60 s)";
/// Column of the keys that a limit refused, on a wide screen.
const KEYS_COLUMN: usize = 80;
/// Number of digits of the hash of a policy that are shown.
const SHA_SHOWN: usize = 6;

fn since(row: &KeyRow, width: usize) -> String {
    match &row.refused {
        Some(refused) if width >= WIDE => format!("   refused since {}", refused.since),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::row::RefusedKey;
    use crate::top::screen::tests::usual;

    #[test]
    fn rows_fit_their_columns_on_a_small_screen() {
        let mut screen = usual();
        screen.board = Board {
            at_ms: 1_767_225_600_000, // 2026-01-01T00:00:00Z
            by_minute: true,
            limit: Some("a-limit-with-a-very-long-name".into()),
            limits: vec![BoardRow {
                name: "a-limit-with-a-very-long-name".into(),
                mode: "enforce".into(),
                denied: 9_752,
                distinct_denied: 12,
                cause: "mostly one key".into(),
                highest_percent: Some(100),
                ..BoardRow::default()
            }],
            keys: vec![KeyRow {
                key: vec!["attr:user=".to_owned() + &"m".repeat(40)],
                refused: Some(RefusedKey {
                    since: "2025-12-31T22:01:00Z".into(),
                    next_free_in_ms: Some(39_000_000),
                }),
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
