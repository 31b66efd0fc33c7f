//! Overrides file: overrides from a table that another program writes (CSV, RFC 4180), or in the
//! form that they have in the policy, if its name ends in `.toml`.
//!
//! ```text
//!   limit,key,set,until,reason
//!   api-minute,acme,20000/1m,2026-12-31T00:00:00Z,"contract 4711, signed"
//!   api-model,api_key=acme;attr:model=large,50/1m,,
//! ```
//!
//! The first line of a table names the columns, in any order; `until` and `reason` may be left
//! out. If the key of a limit has several parts, a key names them, separated by `;` (`key_text.rs`).
//!
//! Errors stand at the field of the policy that names the file, with line and column of the file.

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use super::key_text::key_pairs;
use super::overrides::{OverridePlace, OverrideReader, OverrideText};
use crate::KeyPart;
use crate::config::fields::{MAX_OVERRIDES, OVERRIDES};
use crate::config::{
    At, Draft, Findings, PolicyFiles, Table, Text, ValueError, check, codes, error, first_reason,
    refuse, shown, syntax,
};

/// Names of the columns; the first three must be there.
pub(super) const COLUMNS: [&str; 5] = ["limit", "key", "set", "until", "reason"];
/// Number of columns that must be there.
const REQUIRED: usize = 3;

/// Label of a file without the names of its columns, and the help.
const NO_HEADING: &str = "the first line names the columns";
const HEADING: &str = "begin the file with the line: limit,key,set,until,reason";

/// Reads the file that `overrides` names, if it names one.
pub(crate) fn read(root: Table<'_>, files: &PolicyFiles, overrides: &mut OverrideReader<'_, '_>) {
    let Some(path) = root.text("overrides") else {
        return;
    };
    let name = shown(path.value);
    let text = match files.text(path.value) {
        Ok(text) => text,
        Err(reason) => {
            let message = format!("cannot read the overrides `{name}`: {reason}");
            let label = "a path relative to the policy file";
            error(codes::OVERRIDES_FILE, path.at, message, label)
                .help("write the path of a CSV or TOML file: overrides = \"overrides.csv\"");
            return;
        }
    };
    let findings = Findings::new(text);
    if is_toml(path.value) {
        tables(text, overrides, &findings);
    } else {
        rows(text, overrides, &findings);
    }
    for found in findings.finish() {
        let message = format!("{name}:{}:{}: {}", found.line, found.column, found.message);
        let (of, at) = (path.at.findings, path.at.range());
        of.push(found.code, found.severity, at, message, found.label)
            .help(found.help.unwrap_or_default());
    }
}

/// Returns true if a file of this name has the form of the policy.
pub(super) fn is_toml(name: &str) -> bool {
    let extension = Path::new(name).extension();
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// Reads `[[override]]`.
fn tables(text: &str, overrides: &mut OverrideReader<'_, '_>, out: &Findings<'_>) {
    let document = syntax::parsed(text, out);
    let root = document.get_ref();
    if root.is_empty() && out.is_whole() {
        // It may be half written.
        let message = "the file is empty";
        let label = "expected [[override]]";
        error(codes::OVERRIDES_FILE, out.at(0..0), message, label)
            .help("write override = [] for a file without overrides");
        return;
    }
    let root = Table::root(root, &OVERRIDES, out);
    check(root, OVERRIDES.what);
    overrides.tables(root, OverridePlace::FileTable);
}

/// Reads the lines.
fn rows(text: &str, overrides: &mut OverrideReader<'_, '_>, out: &Findings<'_>) {
    let mut records = Records::new(text);
    let Some(head) = records.next() else {
        return heading("the file is empty", out);
    };
    let Some(columns) = columns(&head, out) else {
        return;
    };
    let names = |draft: &Draft<'_>| draft.rule.key.iter().map(KeyPart::to_string).collect();
    let parts: Vec<Vec<String>> = overrides.drafts.iter().map(names).collect();
    for (count, record) in records.enumerate() {
        let spot = |cell: &CsvCell<'_>| out.at(cell.at.clone());
        let [first, last] = [record.cells.first(), record.cells.last()]
            .map(|cell| cell.map_or_else(|| out.at(0..0), spot));
        if count == MAX_OVERRIDES {
            let message = format!("more than {MAX_OVERRIDES} overrides");
            error(codes::TOO_MANY, first, message, "one more than allowed")
                .help("give the keys plans, or raise the numbers of the limit itself");
            return;
        }
        if let Some(fault) = record.fault {
            let label = "not valid CSV";
            error(codes::OVERRIDES_FILE, spot(&fault), fault.value, label)
                .help("put a value with commas or quotes in quotes, and write each quote twice");
            continue;
        }
        let cell = |column: usize| {
            let cell = record.cells.get(columns[column]?)?;
            (!cell.value.is_empty()).then(|| At::new(&*cell.value, spot(cell)))
        };
        let (Some(limit), Some(key), Some(set)) = (cell(0), cell(1), cell(2)) else {
            let message = "an override without a limit, a key or numbers";
            error(
                codes::OVERRIDES_FILE,
                first,
                message,
                "expected limit,key,set",
            )
            .help("write for example: api-minute,acme,20000/1m");
            continue;
        };
        if record.cells.len() > columns.iter().flatten().count() {
            let message = "a line with more cells than columns";
            error(codes::OVERRIDES_FILE, last, message, "has no column")
                .help("put a value with commas in quotes");
            continue;
        }
        let Some(index) = overrides.limit(&limit) else {
            continue;
        };
        let text = OverrideText {
            key: key_of(&parts[index], &key),
            at: key.at,
            limit,
            set: borrowed(set),
            until: cell(3).map(borrowed),
            reason: cell(4).map_or("", |reason| reason.value),
            line: record.line,
            stands: OverridePlace::FileLine,
        };
        overrides.add(&text);
    }
    overrides.count_ended(out);
}

fn borrowed(cell: Text<'_>) -> At<'_, Cow<'_, str>> {
    At::new(cell.value.into(), cell.at)
}

/// Returns the parts of a key and their values.
fn key_of<'t>(parts: &'t [String], key: &Text<'t>) -> Vec<(Text<'t>, Text<'t>)> {
    if let [one] = parts {
        return vec![(At::new(one, key.at), *key)];
    }
    let at = |text: &'t str| At::new(text, key.at);
    let pairs = key_pairs(key.value);
    pairs.map(|(part, value)| (at(part), at(value))).collect()
}

/// Returns the index of each column in the file; `None` if they are reported as wrong.
pub(super) fn columns(
    head: &OverrideRecord<'_>,
    out: &Findings<'_>,
) -> Option<[Option<usize>; COLUMNS.len()]> {
    let mut found = [None; COLUMNS.len()];
    for (index, cell) in head.cells.iter().enumerate() {
        let name = cell.value.trim();
        let known = COLUMNS.iter().position(|column| *column == name);
        let Some(known) = known.filter(|known| found[*known].is_none()) else {
            let message = format!("`{}` is not a column, or comes twice", shown(name));
            let at = cell.at.clone();
            let reason = first_reason! {
                name.contains([';', '\t']) => "columns are separated by commas",
                    "write commas between the values: limit,key,set,until,reason";
                name.starts_with(['[', '{']) =>
                    "expected a CSV file, or a TOML file with a name that ends in .toml", HEADING;
            };
            let reason = reason.unwrap_or_else(|| ValueError::new(NO_HEADING, HEADING));
            refuse(codes::OVERRIDES_FILE, out.at(at), message, reason);
            return None;
        };
        found[known] = Some(index);
    }
    for (name, index) in COLUMNS.iter().zip(found).take(REQUIRED) {
        if index.is_none() {
            heading(&format!("the column `{name}` is missing"), out);
            return None;
        }
    }
    Some(found)
}

/// Reports the first line.
fn heading(message: &str, out: &Findings<'_>) {
    error(codes::OVERRIDES_FILE, out.at(0..0), message, NO_HEADING).help(HEADING);
}

/// The records of a text, without empty lines.
pub(super) struct Records<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

/// One record.
pub(super) struct OverrideRecord<'t> {
    pub(super) cells: Vec<CsvCell<'t>>,
    pub(crate) line: usize,
    pub(super) fault: Option<CsvCell<'static>>,
}

/// A text with its place in a record: a cell, or a fault.
pub(super) struct CsvCell<'t> {
    pub(super) value: Cow<'t, str>,
    pub(super) at: Range<usize>,
}

impl<'t> Iterator for Records<'t> {
    type Item = OverrideRecord<'t>;

    fn next(&mut self) -> Option<OverrideRecord<'t>> {
        let rest = &self.text[self.at..];
        let empty = rest.len() - rest.trim_start_matches(['\n', '\r']).len();
        self.line += rest[..empty].matches('\n').count();
        self.at += empty;
        (self.at < self.text.len()).then(|| self.record())
    }
}

impl<'t> Records<'t> {
    pub(crate) const fn new(text: &'t str) -> Self {
        // Spreadsheets begin a file with a byte order mark.
        let at = match text.as_bytes() {
            [0xef, 0xbb, 0xbf, ..] => 3,
            _ => 0,
        };
        Self { text, at, line: 1 }
    }

    fn record(&mut self) -> OverrideRecord<'t> {
        let mut record = OverrideRecord {
            cells: Vec::with_capacity(COLUMNS.len()),
            line: self.line,
            fault: None,
        };
        loop {
            let start = self.at;
            let cell = if self.text[start..].starts_with('"') {
                self.quoted(&mut record.fault)
            } else {
                self.plain()
            };
            let at = start..self.at;
            record.cells.push(CsvCell { value: cell, at });
            let rest = &self.text[self.at..];
            let Some(next) = rest.chars().next() else {
                return record;
            };
            let message = match next {
                ',' if record.cells.len() <= COLUMNS.len() => {
                    self.at += 1;
                    continue;
                }
                '\n' | '\r' => return record,
                ',' => "a line has more cells than columns",
                _ => "a quote ends inside a cell",
            };
            // The rest of the line is skipped.
            let (value, at) = (message.into(), start..self.at);
            record.fault = Some(CsvCell { value, at });
            self.at += rest.find('\n').unwrap_or(rest.len());
            return record;
        }
    }

    fn plain(&mut self) -> Cow<'t, str> {
        let rest = &self.text[self.at..];
        let length = rest.find([',', '\n', '\r']).unwrap_or(rest.len());
        self.at += length;
        Cow::Borrowed(rest[..length].trim())
    }

    fn quoted(&mut self, fault: &mut Option<CsvCell<'static>>) -> Cow<'t, str> {
        let start = self.at;
        let mut cell = Cow::Borrowed("");
        self.at += 1;
        loop {
            let rest = &self.text[self.at..];
            let Some(length) = rest.find('"') else {
                let at = start..self.text.len();
                let value = "a quote has no end".into();
                *fault = Some(CsvCell { value, at });
                self.at = self.text.len();
                return cell;
            };
            self.line += rest[..length].matches('\n').count();
            cell += &rest[..length];
            self.at += length + 1;
            if !self.text[self.at..].starts_with('"') {
                return cell;
            }
            cell += "\"";
            self.at += 1;
        }
    }
}
