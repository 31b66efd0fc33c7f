//! Diagnostic: one finding about a policy text, and the list that collects them.
//!
//! Nothing stops at the first error: each reader of a part of the file adds its errors to
//! [`Findings`] and goes on. Positions are bytes of the text; line and column are worked out
//! once, at the end.

use std::cell::{Cell, RefCell, RefMut};
use std::ops::Range;

use super::codes;
use super::reason::nearest;
use super::settings::secrets::masked;

/// Maximum number of findings kept of one file; the rest are counted.
const MAX_FINDINGS: usize = 200;
/// Maximum number of bytes of a message, a label or a help, whatever it quotes.
const MAX_WORDS: usize = 2_000;
/// Maximum number of characters of a value that a message quotes.
const MAX_QUOTED: usize = 60;

/// Severity of a finding: an error stops the policy, a warning does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Severity {
    /// The policy is refused.
    Error,
    /// The policy runs.
    Warning,
}

/// One finding about a policy text.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Diagnostic {
    /// `RK0103`; explained by `ratekeeper help RK0103`.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// One sentence, lower case, no full stop.
    pub message: String,
    /// Bytes of the text it points at.
    pub start: usize,
    /// End of those bytes.
    pub end: usize,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Text under the carets.
    pub label: String,
    /// Another part of the text that belongs to the finding, shown without carets.
    pub related: Option<Range<usize>>,
    /// A concrete edit.
    pub help: Option<String>,
}

/// The findings of one text, in the making.
#[derive(Debug, Default)]
pub(crate) struct Findings<'t> {
    pub(super) text: &'t str,
    found: RefCell<Vec<Diagnostic>>,
    /// Number of findings, of which [`MAX_FINDINGS`] are kept.
    count: Cell<usize>,
    /// True if one of them is an error.
    errors: Cell<bool>,
    /// Lines (start of line, in bytes) that the TOML parser could not read. Missing or odd fields
    /// there follow from that.
    unreadable: RefCell<Vec<usize>>,
    /// The position up to which lines were counted, and their number.
    lines: Cell<(usize, usize)>,
}

impl<'t> Findings<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }

    /// Returns a help for a word that is not known: the nearest one as the value of a field, where
    /// there is one, and otherwise the help of `other`.
    pub(crate) fn meant<'k>(
        &self,
        word: &str,
        known: impl IntoIterator<Item = &'k str>,
        field: &str,
        other: impl FnOnce() -> String,
    ) -> String {
        let near = self.nearest(word, known);
        near.map_or_else(other, |near| format!("did you mean {field}\"{near}\"?"))
    }

    /// Records that TOML could not read the line that holds `at`.
    pub(crate) fn unreadable(&self, at: usize) {
        let line = line_start(self.text, at);
        self.unreadable.borrow_mut().push(line);
    }

    /// Returns true if the text was read whole, so that a missing field is really missing.
    pub(crate) fn is_whole(&self) -> bool {
        self.unreadable.borrow().is_empty()
    }

    /// Returns true if any error was found.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors.get()
    }

    /// Returns the known word that was probably meant; `None` once no more findings are kept.
    pub(crate) fn nearest<'k>(
        &self,
        word: &str,
        known: impl IntoIterator<Item = &'k str>,
    ) -> Option<&'k str> {
        (!self.is_full()).then(|| nearest(word, known)).flatten()
    }

    /// Returns true if further findings are only counted.
    pub(crate) fn is_full(&self) -> bool {
        self.count.get() >= MAX_FINDINGS
    }

    /// Returns all findings in the order of the text.
    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        let (text, unreadable) = (self.text, self.unreadable.take());
        let mut found = self.found.take();
        // A value that the parser made up in place of an unreadable one stands nowhere.
        let is_made_up = |found: &Diagnostic| found.code == codes::TYPE && found.start == found.end;
        found.retain(|found| {
            found.code == codes::SYNTAX
                || !(unreadable.contains(&line_start(text, found.start))
                    || !unreadable.is_empty() && is_made_up(found))
        });
        found.sort_by_key(|found| (found.start, found.end));
        found.dedup_by(|next, kept| next.start == kept.start && next.message == kept.message);
        let dropped = self.count.get().saturating_sub(MAX_FINDINGS);
        if dropped > 0 {
            let message = format!("{dropped} more findings are not shown");
            let severity = if self.errors.get() {
                Severity::Error
            } else {
                Severity::Warning
            };
            let end = text.len();
            found.push(finding(
                codes::TOO_MANY_FINDINGS,
                severity,
                end..end,
                message,
                "in the rest of the file".into(),
            ));
        }
        for finding in &mut found {
            let before = line_start(text, finding.start)..finding.start;
            finding.line = self.line(finding.start);
            finding.column = text[before].chars().count() + 1;
        }
        found
    }

    /// Returns the line of a position, from 1. Positions mostly grow: limits stand in the order of
    /// the file.
    pub(super) fn line(&self, position: usize) -> usize {
        let known = self.lines.get();
        let (from, lines) = if position < known.0 { (0, 0) } else { known };
        let passed = self.text.get(from..position).unwrap_or_default();
        let lines = lines + passed.matches('\n').count();
        self.lines.set((position, lines));
        lines + 1
    }

    /// Adds a finding.
    pub(crate) fn push(
        &self,
        code: &'static str,
        severity: Severity,
        at: Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
    ) -> RefMut<'_, Diagnostic> {
        let at = one_line(self.text, at);
        let [message, mut label] = [message.into(), label.into()].map(|words| bounded(&words));
        if severity == Severity::Error
            && at.len() <= MAX_QUOTED
            && let Some(odd) = self.text[at.clone()].chars().find(|c| !c.is_ascii())
        {
            let code = u32::from(odd);
            label = format!("{label}; U+{code:04X} in it is not ASCII");
        }
        self.errors
            .update(|errors| errors || severity == Severity::Error);
        let mut found = self.found.borrow_mut();
        // Beyond the maximum the last is overwritten, and reports the number of those that were lost.
        found.truncate(MAX_FINDINGS - 1);
        found.push(finding(code, severity, at, message, label));
        self.count.update(|count| count + 1);
        RefMut::map(found, |found| {
            found.last_mut().expect("a finding was pushed above")
        })
    }
}

fn finding(
    code: &'static str,
    severity: Severity,
    at: Range<usize>,
    message: String,
    label: String,
) -> Diagnostic {
    Diagnostic {
        code,
        severity,
        message,
        start: at.start,
        end: at.end,
        line: 0,
        column: 0,
        label,
        related: None,
        help: None,
    }
}

impl Diagnostic {
    /// Adds a concrete edit.
    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help = Some(bounded(&help.into()));
        self
    }

    /// Adds another part of the text.
    pub(crate) fn related(&mut self, at: impl Into<Range<usize>>) -> &mut Self {
        self.related = Some(at.into());
        self
    }
}

/// Returns words about a text of any length, without secrets and not longer than [`MAX_WORDS`].
fn bounded(words: &str) -> String {
    let words = masked(words).into_owned();
    if words.len() <= MAX_WORDS {
        return words;
    }
    format!("{}...", &words[..floor(&words, MAX_WORDS)])
}

/// Cuts `at` to the text, to whole characters and to its first line, because carets stand under
/// one line.
fn one_line(text: &str, at: Range<usize>) -> Range<usize> {
    let start = floor(text, at.start);
    let end = floor(text, at.end).max(start);
    let spanned = &text[start..end];
    let first = spanned.lines().next().unwrap_or_default().trim_end();
    start..start + first.len()
}

/// Returns a position within the text, at the start of a character.
pub(super) fn floor(text: &str, mut at: usize) -> usize {
    at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns the start of the line that holds a position.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    let before = &text[..floor(text, at)];
    before.rfind('\n').map_or(0, |newline| newline + 1)
}

/// Formats a number as `4,294,967,295`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<_> = groups.map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// Shortens a value for a message: bounded, without control characters.
pub(crate) fn shown(value: &str) -> String {
    let mut short: String = value.chars().take(MAX_QUOTED).collect();
    if short.len() < value.len() {
        short.push_str("...");
    }
    let clean = |c: char| !c.is_control() && c != '`';
    if short.chars().all(clean) {
        return short;
    }
    let visible = |c: char| {
        if clean(c) {
            c.to_string()
        } else {
            c.escape_default().to_string()
        }
    };
    short.chars().map(visible).collect()
}
