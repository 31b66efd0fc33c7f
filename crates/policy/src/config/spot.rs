//! Spot: a place in a text, and the findings about it.
//!
//! A spot knows the findings of its text, so a reader of a value needs no list of findings beside
//! it: it reports them where the value stands.

use std::cell::RefMut;
use std::ops::Range;

use super::diagnostic::{Diagnostic, Findings, Severity};
use crate::ValueError;

/// Maximum length of a value that an edit repeats: it is repeated whole or not at all.
const MAX_REPEATED: usize = 240;

/// A spot of a text, where findings are reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot<'a> {
    /// Those of its text.
    pub(crate) findings: &'a Findings<'a>,
    start: usize,
    end: usize,
}

impl<'t> Findings<'t> {
    /// Returns a place of the text.
    pub(crate) fn at(&'t self, range: Range<usize>) -> Spot<'t> {
        Spot {
            findings: self,
            start: range.start,
            end: range.end,
        }
    }
}

impl<'a> Spot<'a> {
    /// Returns another place of the same text.
    pub(crate) fn of(self, range: Range<usize>) -> Self {
        self.findings.at(range)
    }

    /// Returns the place from here to the end of another one.
    pub(crate) fn to(self, last: Self) -> Self {
        self.of(self.start..last.end.max(self.end))
    }

    /// Returns its line, from 1.
    pub(crate) fn line(self) -> usize {
        self.findings.line(self.start)
    }

    pub(crate) fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// Returns its text for an edit, if it is not long and is written on one line.
    pub(crate) fn source(self) -> Option<&'a str> {
        let source = self.findings.text.get(self.range())?;
        (!source.is_empty() && source.len() <= MAX_REPEATED && !source.contains(char::is_control))
            .then_some(source)
    }

    /// Returns the place of `part` within it; itself if it is not written like that.
    pub(crate) fn within(self, part: &str) -> Self {
        let source = self.findings.text.get(self.range());
        source
            .and_then(|source| source.find(part))
            .map_or(self, |found| {
                let start = self.start + found;
                self.of(start..start + part.len())
            })
    }
}

impl From<Spot<'_>> for Range<usize> {
    fn from(place: Spot<'_>) -> Self {
        place.range()
    }
}

/// Reports an error; a help can be added to the returned finding.
pub(crate) fn error<'a>(
    code: &'static str,
    at: Spot<'a>,
    message: impl Into<String>,
    label: impl Into<String>,
) -> RefMut<'a, Diagnostic> {
    let severity = Severity::Error;
    at.findings.push(code, severity, at.range(), message, label)
}

/// Reports an error with its reason, which is the label and the help.
pub(crate) fn refuse<'a>(
    code: &'static str,
    at: Spot<'a>,
    message: impl Into<String>,
    reason: ValueError,
) -> RefMut<'a, Diagnostic> {
    let mut found = error(code, at, message, reason.reason);
    found.help(reason.help);
    found
}

/// Reports a value that its type refuses.
pub(crate) fn invalid(
    code: &'static str,
    at: Spot<'_>,
    value: ValueError,
    label: impl Into<String>,
) {
    error(code, at, value.reason, label).help(value.help);
}

/// Reports a lint.
pub(crate) fn warning<'a>(
    code: &'static str,
    at: Spot<'a>,
    message: impl Into<String>,
    label: impl Into<String>,
) -> RefMut<'a, Diagnostic> {
    let severity = Severity::Warning;
    at.findings.push(code, severity, at.range(), message, label)
}
