//! Drawing: the lines of the screen.

use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use super::Screen;
use crate::top::board::{Board, StoreState};
use crate::top::row::BoardRow;
use crate::top::table::{
    LIMIT_HEAD, WIDE, clipped, key_head, key_line, keys_refused, limit_line, note_line, plain,
};
use crate::top::trend::Trend;

/// Maximum number of notes.
const MAX_NOTES: usize = 3;

impl Screen {
    /// Returns the lines of a terminal of that size.
    pub(in crate::top) fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::styled(self.title(), bold)];
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
        let keys = if width >= WIDE { "KEYS REFUSED" } else { "" };
        lines.push(Line::styled(
            format!("{LIMIT_HEAD}  TREND (60 s)  {keys}"),
            bold,
        ));
        let first = self.limit.saturating_sub(limits - 1);
        let rows = self.board.limits.iter().enumerate();
        for (index, row) in rows.skip(first).take(limits) {
            let mut line = self.limit_line(row);
            if width >= WIDE {
                line += &keys_refused(row);
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
            lines.push(Line::raw(key_line(row, &self.board, width)));
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

    /// Returns a limit with its rate since the last board, in place of that of the window.
    fn limit_line(&self, row: &BoardRow) -> String {
        let none = Trend::default();
        let trend = self.rates.get(&row.name).unwrap_or(&none);
        let [rate, _] = trend.rates;
        format!("{}  {:12}  ", limit_line(row, rate), trend.text())
    }
}

/// Number of digits of the hash of a policy that are shown.
const SHA_SHOWN: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::row::{KeyRow, RefusedKey};
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
}
