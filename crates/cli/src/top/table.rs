//! Table: a board as lines of text.

use ratekeeper_core::Nanos;

use super::board::Board;
use super::row::{BoardRow, KeyRow};
use crate::words;

/// Maximum width of the text of a key.
const KEY_WIDTH: usize = 31;
/// Width from which there is room for all of the notes of a key.
pub(super) const WIDE: usize = 120;

/// Returns the limits and the keys, as `--once` prints them: notes and upstreams whole.
pub(crate) fn table(board: &Board) -> Vec<String> {
    let mut lines = vec![format!("{LIMIT_HEAD}  KEYS REFUSED")];
    let limits = board.limits.iter();
    lines.extend(limits.map(|row| {
        let line = format!("{}  {}", limit_line(row, row.rate()), keys_refused(row));
        line.trim_end().to_owned()
    }));
    if board.more > 0 {
        let more = words::counted(board.more, "limit");
        lines.push(format!("and {more} more"));
    }
    if let Some(limit) = &board.limit {
        lines.push(String::new());
        lines.push(key_head(limit, ""));
        lines.extend(board.keys.iter().map(|row| key_line(row, board, WIDE)));
        if board.unlisted_at_most > 0 {
            let most = words::count(board.unlisted_at_most);
            lines.push(format!("no other key has more than {most}"));
        }
    }
    if !board.upstreams.is_empty() {
        lines.push(String::new());
        lines.extend(board.upstreams.iter().map(|row| plain(&row.text())));
    }
    if !board.notes.is_empty() {
        lines.push(String::new());
        lines.extend(board.notes.iter().map(|note| note_line(note)));
    }
    lines
}

/// Returns a note on one line. It may have text of a policy: no escapes of a terminal.
pub(super) fn note_line(note: &str) -> String {
    plain(&format!("note: {note}"))
}

/// Returns a text on one line, without escapes of a terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

/// Head of the limits, without their last columns.
pub(super) const LIMIT_HEAD: &str = "LIMIT          MODE          /s   DENIED           SPENT";

/// Returns the head of the keys of a limit.
pub(super) fn key_head(limit: &str, cause: &str) -> String {
    let name = format!("KEY OF {limit}");
    let why = format!("{name} ({cause})");
    let fits = !cause.is_empty() && why.chars().count() <= KEY_WIDTH;
    let key = if fits { why } else { clipped(&name, KEY_WIDTH) };
    format!("{key:KEY_WIDTH$} HITS/MIN   DENIED    ERR  NOTE")
}

/// Returns a limit with its number of requests a second.
pub(super) fn limit_line(row: &BoardRow, rate: f64) -> String {
    let name = clipped(&row.name, 14);
    let spent = row.highest_percent;
    format!(
        "{name:14} {:7} {rate:>8.1} {:>8} {:>5.1} % {:>6}",
        row.mode,
        words::count(row.denied),
        row.denied_percent(),
        spent.map_or_else(|| "-".into(), |share| format!("{share} %")),
    )
}

/// Returns the number of keys that a limit refused, and the likely cause.
pub(super) fn keys_refused(row: &BoardRow) -> String {
    match &*row.cause {
        "" => String::new(),
        "ban wave" if row.bans > 1 => {
            format!("ban wave: {} keys banned", words::count(row.bans))
        }
        cause => format!("{} ({cause})", words::count(row.distinct_denied)),
    }
}

/// Returns a key of the board, on a line of that width.
pub(super) fn key_line(row: &KeyRow, board: &Board, width: usize) -> String {
    let key = clipped(&words::key(&row.key), KEY_WIDTH);
    let [requests, denied] = [row.requests, row.denied].map(|it| it.each_minute(board.covers_ms));
    let line = format!(
        "{key:KEY_WIDTH$} {:>8} {:>8} {:>6}  {}",
        words::count(requests.count),
        words::count(denied.count),
        format!("+-{}", words::count(requests.error.max(denied.error))),
        note(row, board, width),
    );
    line.trim_end().to_owned()
}

/// Returns how long a key has been refused, and when it may pass again; one of both where there
/// is little room.
fn note(row: &KeyRow, board: &Board, width: usize) -> String {
    let Some(refused) = &row.refused else {
        return String::new();
    };
    let free = match refused.next_free_in_ms {
        Some(0) => "free now".into(),
        Some(millis) => {
            let seconds = Nanos::from_secs(millis.div_ceil(1_000));
            format!("free in {}", words::span(seconds))
        }
        None => "never free".into(),
    };
    let minutes = row.refused_for(board.at_ms).unwrap_or_default().as_nanos() / MINUTE;
    let running = match minutes {
        0 => return free,
        _ if !board.by_minute => return free,
        1..120 => format!("denied {minutes} min running"),
        _ => format!("denied {} h running", minutes / 60),
    };
    if width >= WIDE {
        format!("{running}, {free}")
    } else {
        running
    }
}

const MINUTE: u64 = 60_000_000_000;

/// Returns at most `width` characters of `text`.
pub(super) fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    format!("{kept}..")
}

#[cfg(test)]
mod tests {
    use super::super::row::{Count, RefusedKey};
    use super::*;

    #[test]
    fn a_note_says_how_long_a_key_is_refused() {
        let at_ms = 1_767_225_600_000; // 2026-01-01T00:00:00Z
        let board = |by_minute| Board {
            at_ms,
            covers_ms: 60_000,
            by_minute,
            ..Board::default()
        };
        for (since, free, (by_minute, width), expected) in [
            (None, None, (true, 80), ""),
            (
                Some("2025-12-31T23:59:30Z"),
                Some(41_800),
                (true, 80),
                "free in 42 s",
            ),
            (
                Some("2025-12-31T23:18:59Z"),
                Some(0),
                (true, 80),
                "denied 41 min running",
            ),
            (
                Some("2025-12-31T23:18:59Z"),
                Some(0),
                (true, WIDE),
                "denied 41 min running, free now",
            ),
            (
                Some("2025-12-31T21:00:00Z"),
                None,
                (true, WIDE),
                "denied 3 h running, never free",
            ),
            (
                Some("2025-12-31T21:00:00Z"),
                None,
                (false, WIDE),
                "never free",
            ),
        ] {
            let row = KeyRow {
                refused: since.map(|since| RefusedKey {
                    since: since.to_owned(),
                    next_free_in_ms: free,
                }),
                ..KeyRow::default()
            };
            let note = note(&row, &board(by_minute), width);
            assert_eq!(note, expected, "{since:?}");
        }
        let row = KeyRow {
            key: vec!["k".repeat(99)],
            requests: Count {
                count: 9_999_999,
                error: 99_999,
            },
            refused: Some(RefusedKey {
                since: "2025-12-31T22:01:00Z".into(),
                next_free_in_ms: None,
            }),
            ..KeyRow::default()
        };
        let line = key_line(&row, &board(true), 80);
        assert!(
            line.ends_with("denied 119 min running") && line.len() <= 84,
            "{line}"
        );
    }

    #[test]
    fn a_note_of_a_table_that_is_printed_once_is_not_cut() {
        let note = "the upstream http://127.0.0.1:3000 is down: ".repeat(3);
        let board = Board {
            notes: vec![note.clone()],
            ..Board::default()
        };
        let lines = table(&board);
        assert!(lines.iter().any(|line| line.ends_with(&note)), "{lines:?}");
    }

    #[test]
    fn the_cause_stands_beside_the_limit_if_there_is_room() {
        assert!(key_head("login", "mostly one key").starts_with("KEY OF login (mostly one key) "));
        let long = key_head("a-limit-with-a-long-name", "one key");
        assert!(
            long.starts_with("KEY OF a-limit-with-a-long-name "),
            "{long}"
        );
        assert_eq!(long.find("HITS/MIN"), key_head("a", "").find("HITS/MIN"));
    }
}
