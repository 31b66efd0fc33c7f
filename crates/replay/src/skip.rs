//! Skip: the lines that are no requests, and why.

use std::fmt;
use std::path::{Path, PathBuf};

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
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SkippedLines {
    pub(crate) count: u64,
    pub(crate) path: PathBuf,
    /// Number of the line, from 1.
    pub(crate) line: u64,
    /// Its beginning.
    pub(crate) text: String,
}

impl SkippedLines {
    pub(crate) fn first(path: &Path, line: u64, text: &str) -> Self {
        Self {
            count: 0,
            path: path.to_owned(),
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
