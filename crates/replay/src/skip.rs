//! Skip: the lines that are no requests, and why.

use std::fmt;
use std::path::Path;

use serde::Serialize;

/// Reason for which a line is no request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SkipReason {
    OtherFormat,
    WrongTime,
    TooLong,
    Remark,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherFormat => "not in the format of the log",
            Self::WrongTime => "without a time that can be read",
            Self::TooLong => "longer than 64 KiB",
            Self::Remark => "empty, or a remark",
        })
    }
}

/// Lines that were skipped for one reason, with the first of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct SkippedLines {
    /// Why they are no requests.
    pub reason: String,
    /// How many they are.
    pub count: u64,
    /// File of the first.
    pub path: String,
    /// Number of the first in its file, from 1.
    pub line: u64,
    /// The beginning of the first.
    pub text: String,
}

impl SkippedLines {
    pub(crate) fn first(reason: SkipReason, path: &Path, line: u64, text: &str) -> Self {
        Self {
            reason: reason.to_string(),
            count: 0,
            path: path.display().to_string(),
            line,
            text: Self::shown(text),
        }
    }

    /// Returns the beginning of a line without control characters.
    pub(crate) fn shown(line: &str) -> String {
        const SHOWN: usize = 80;
        let plain = line.chars().take(SHOWN);
        plain
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect()
    }
}
