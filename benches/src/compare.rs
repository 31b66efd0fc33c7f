//! Compare: the table of speed and memory in `COMPARE.md`, from one run.
//!
//! ```text
//!   library, store, fill, bytes, http, grpc, redis     each notes its pairs: ours and a peer's
//!                       |
//!                       v
//!   one table, the rows in which the peer is furthest ahead first
//! ```
//!
//! `cargo run --release -p ratekeeper-benches -- compare [--server PATH]`, about a quarter of an
//! hour. The tables of the single benchmarks are printed on the way; the last one is Markdown.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::measure::Measured;
use crate::{Effort, bytes, fill, grpc, http, keyed, library, redis, report};

/// Pairs noted so far.
static PAIRS: Mutex<Vec<Pair>> = Mutex::new(Vec::new());

/// One side of a row.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) least: f64,
    /// Shows the spread: `None` where there is one figure only.
    pub(crate) median: Option<f64>,
}

#[derive(Clone, Debug)]
struct Pair {
    what: String,
    ours: Side,
    theirs: Side,
}

impl Pair {
    fn ratio(&self) -> f64 {
        self.ours.least / self.theirs.least
    }
}

impl From<&Measured> for Side {
    fn from(row: &Measured) -> Self {
        Self {
            name: row.name.to_owned(),
            least: row.least,
            median: Some(row.median),
        }
    }
}

/// Notes a pair for the table.
pub(crate) fn note(what: impl Into<String>, ours: Side, theirs: Side) {
    let what = what.into();
    let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    pairs.push(Pair { what, ours, theirs });
}

/// Notes two rows of a table, chosen by name.
pub(crate) fn rows(what: &str, rows: &[Measured], ours: &str, theirs: &str) {
    let find = |name| rows.iter().find(|row| row.name == name);
    if let (Some(ours), Some(theirs)) = (find(ours), find(theirs)) {
        note(what, ours.into(), theirs.into());
    }
}

/// Notes our first row and the fastest peer that reads a clock, as ours does; see
/// [`report::beside`].
pub(crate) fn best(what: &str, rows: &[Measured], (floor, ours): (&str, &str)) {
    let is = |row: &Measured, prefix: &str| row.name.starts_with(prefix);
    let peers = rows
        .iter()
        .filter(|row| !is(row, floor) && !is(row, ours) && !row.name.ends_with('*'));
    let best = peers.min_by(|a, b| a.least.total_cmp(&b.least));
    let mine = rows.iter().find(|row| is(row, ours));
    if let (Some(mine), Some(best)) = (mine, best) {
        note(what, mine.into(), best.into());
    }
}

/// Measures everything and prints the table.
pub(crate) fn run(effort: Effort, redis_server: &str) {
    library::run(effort);
    keyed::run(effort);
    fill::run(effort);
    bytes::run(effort);
    http::run(effort);
    grpc::run(effort);
    redis::run(effort, redis_server);
    let mut pairs = PAIRS.lock().unwrap_or_else(PoisonError::into_inner);
    pairs.sort_by(|a, b| b.ratio().total_cmp(&a.ratio()));
    report::line("\n| what | ratekeeper | peer | ours : theirs |\n|---|---|---|---|");
    for pair in &*pairs {
        report::line(&markdown(pair));
    }
}

fn markdown(pair: &Pair) -> String {
    let figures = |side: &Side| {
        let mut text = number(side.least);
        if let Some(median) = side.median {
            let _ = write!(text, " ({})", number(median));
        }
        text
    };
    let bold = |text: String, is_better| {
        if is_better {
            format!("**{text}**")
        } else {
            text
        }
    };
    let (what, ratio, peer) = (&pair.what, pair.ratio(), &pair.theirs.name);
    let ours = bold(figures(&pair.ours), ratio < 1.0);
    let theirs = bold(figures(&pair.theirs), ratio > 1.0);
    let peer = peer.trim_start_matches("2 threads: ");
    format!("| {what} | {ours} | {peer}: {theirs} | {ratio:.2} |")
}

/// Formats a value with three digits or more.
fn number(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}
