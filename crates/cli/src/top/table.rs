//! Table: a board as lines of text.

use ratekeeper_core::Nanos;

use super::board::Board;
use super::row::{Count, KeyRow, LimitRow};
use crate::words;

/// Maximum width of the text of a key.
const KEY_WIDTH: usize = 33;
/// Maximum width of a note; JSON has all of it.
const NOTE_WIDTH: usize = 80;

/// Returns the limits and the keys, as `--once` prints them.
pub(crate) fn table(board: &Board) -> Vec<String> {
    let mut lines = vec![LIMIT_HEAD.to_owned()];
    lines.extend(board.limits.iter().map(|row| limit_line(row, row.rate())));
    if board.more > 0 {
        lines.push(format!(
            "and {} more",
            words::counted(usize_of(board.more), "limit")
        ));
    }
    if let Some(limit) = &board.limit {
        lines.push(String::new());
        lines.push(key_head(limit));
        lines.extend(board.keys.iter().map(key_line));
        if board.unlisted_at_most > 0 {
            let most = words::count(board.unlisted_at_most);
            lines.push(format!("no other key has more than {most}"));
        }
    }
    if !board.notes.is_empty() {
        lines.push(String::new());
        lines.extend(board.notes.iter().map(|note| note_line(note)));
    }
    lines
}

/// Returns a note on one line. It may have text of a policy: no escapes of a terminal.
pub(super) fn note_line(note: &str) -> String {
    let shown: String = note.chars().filter(|c| !c.is_control()).collect();
    clipped(&format!("note: {shown}"), NOTE_WIDTH)
}

pub(super) const LIMIT_HEAD: &str =
    "LIMIT              MODE           /s     DENIED          KEYS REFUSED";
/// Returns the head of the keys of a limit.
pub(super) fn key_head(limit: &str) -> String {
    let key = clipped(&format!("KEY OF {limit}"), KEY_WIDTH);
    format!("{key:KEY_WIDTH$} REQUESTS    DENIED   ERR  NEXT FREE")
}

/// Returns a limit with that number of requests a second.
pub(super) fn limit_line(row: &LimitRow, rate: f64) -> String {
    let name = clipped(&row.name, 18);
    let keys = match row.distinct_denied {
        0 => String::new(),
        keys if keys == row.distinct_at_most => {
            format!("{} ({})", words::count(keys), row.reading())
        }
        keys => {
            let most = words::count(row.distinct_at_most);
            format!("{} to {most} ({})", words::count(keys), row.reading())
        }
    };
    let line = format!(
        "{name:18} {:7} {rate:>9.1} {:>10} {:>5.1} %  {keys}",
        row.mode,
        words::count(row.denied),
        row.denied_percent()
    );
    line.trim_end().to_owned()
}

pub(super) fn key_line(row: &KeyRow) -> String {
    let key = clipped(&row.text(), KEY_WIDTH);
    let Count { count, error } = row.denied;
    let free = match (row.since.is_some(), row.next_free_in_ms) {
        (false, _) => String::new(),
        (true, Some(0)) => "now".into(),
        (true, Some(millis)) => format!(
            "in {}",
            words::span(Nanos::from_secs(millis.div_ceil(1_000)))
        ),
        (true, None) => "never".into(),
    };
    let line = format!(
        "{key:KEY_WIDTH$} {:>8} {:>9} {:>5}  {free}",
        words::count(row.requests.count),
        words::count(count),
        words::count(error.max(row.requests.error)),
    );
    line.trim_end().to_owned()
}

/// Returns at most `width` characters of `text`.
fn clipped(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(2)).collect();
    format!("{kept}..")
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
