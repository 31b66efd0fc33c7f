//! Log: the requests of files in the order of their times.
//!
//! ```text
//!   batches --> lines that wait, sorted by time --> those that no later line can precede
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};

use jiff::tz::TimeZone;
use ratekeeper_core::Nanos;
use serde::Serialize;

use crate::format::LogFormat;
use crate::input::{self, MAX_FILES, Message};
use crate::record::{Batch, Record, SkipReason};

/// How a log is read.
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Form of the lines; `None` to find it from the first lines of each file.
    pub format: Option<LogFormat>,
    /// Zone of times that state none.
    pub zone: TimeZone,
    /// Time by which a line may come late and is still put in order.
    pub reorder: Nanos,
    /// Maximum number of bytes of lines that wait to be put in order.
    pub waiting_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            format: None,
            zone: TimeZone::UTC,
            reorder: Nanos::from_secs(60),
            waiting_bytes: 256 << 20,
        }
    }
}

/// An error that ends the reading of a log.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// A file cannot be opened or read.
    #[error("cannot read `{path}`: {reason}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        reason: String,
    },
    /// No format reads half of the first lines.
    #[error("no known format reads the lines of `{path}`, which begin `{line}`", path = path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
        /// The beginning of its first line.
        line: String,
    },
    /// No file has a line.
    #[error("`{path}` has no lines", path = .0.display())]
    Empty(PathBuf),
    /// A file is named twice, so that its lines would count twice.
    #[error("`{path}` is named twice", path = .0.display())]
    Twice(PathBuf),
    /// More files than are opened together.
    #[error("{0} files are more than {MAX_FILES}")]
    TooManyFiles(usize),
    /// The lines that wait to be put in order take more than this number of bytes.
    #[error("the lines that wait to be put in order do not fit into {0} bytes")]
    Waiting(usize),
}

impl LogError {
    pub(crate) fn file(path: &Path, why: &io::Error) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: why.to_string(),
        }
    }
}

/// What was read of a log so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogSummary {
    /// Lines, with the skipped ones.
    pub(crate) lines: u64,
    pub(crate) bytes: u64,
    pub(crate) out_of_order: u64,
    /// In nanoseconds.
    pub(crate) resolution: u64,
    /// True if a time states no zone.
    pub(crate) lacks_zone: bool,
    pub(crate) skipped: BTreeMap<SkipReason, SkippedLines>,
    pub(crate) formats: Vec<(PathBuf, LogFormat)>,
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
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        line.chars().take(SHOWN).map(plain).collect()
    }
}

/// The requests of a log in the order of their times; those of one time in the order of the files
/// and lines.
#[derive(Debug)]
pub struct RequestLog {
    batches: Receiver<Message>,
    pub(crate) summary: LogSummary,
    /// Sorted by time; the first `ready` of them can be given out.
    waiting: VecDeque<Record>,
    ready: usize,
    waiting_bytes: usize,
    /// Batches of which a line may wait.
    held: Vec<Weak<Batch>>,
    /// Time of the last request that was given out.
    last: u64,
    pub(crate) late: u64,
    is_over: bool,
}

impl RequestLog {
    /// Opens the files; `-` is standard input.
    ///
    /// # Errors
    /// Returns an error if a file cannot be opened, or if its format is not found.
    pub fn open(paths: &[PathBuf], options: &LogOptions) -> Result<Self, LogError> {
        Ok(Self {
            batches: input::read(paths, options)?,
            summary: LogSummary::default(),
            waiting: VecDeque::new(),
            ready: 0,
            waiting_bytes: options.waiting_bytes,
            held: Vec::new(),
            last: 0,
            late: 0,
            is_over: false,
        })
    }

    /// Returns the number of lines that were read so far.
    pub fn lines(&self) -> u64 {
        self.summary.lines
    }

    /// Returns the number of lines that were skipped so far, because they are no requests.
    pub fn skipped(&self) -> u64 {
        self.summary.skipped.values().map(|lines| lines.count).sum()
    }

    /// Returns the number of bytes that were read so far, as they are in the files.
    pub fn bytes(&self) -> u64 {
        self.summary.bytes
    }

    /// Takes the next batch among the waiting lines.
    fn take(&mut self, batch: Batch) -> Result<(), LogError> {
        let safe_until = batch.safe_until;
        let batch = Arc::new(batch);
        let added = (0..).zip(&batch.rows).map(|(index, row)| Record {
            at: row.at,
            file: batch.file,
            row: index,
            batch: Arc::clone(&batch),
        });
        let first = batch.rows.iter().map(|row| (row.at, batch.file)).min();
        let place = |record: &Record| (record.at, record.file);
        let before = |record: &Record| first.is_none_or(|first| place(record) <= first);
        let mut later = self.waiting.split_off(self.waiting.partition_point(before));
        later.extend(added);
        self.held.push(Arc::downgrade(&batch));
        drop(batch);
        // Stable, so that lines of one time in one file keep their order.
        later.make_contiguous().sort_by_key(place);
        self.waiting.append(&mut later);
        self.ready = self
            .waiting
            .partition_point(|record| record.at < safe_until);
        self.held.retain(|batch| batch.strong_count() > 0);
        let held = self.held.iter().filter_map(Weak::upgrade);
        let bytes: usize = held.map(|batch| batch.bytes()).sum();
        if bytes > self.waiting_bytes && self.ready == 0 {
            return Err(LogError::Waiting(self.waiting_bytes));
        }
        Ok(())
    }
}

impl Iterator for RequestLog {
    type Item = Result<Record, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready == 0 {
            if self.is_over {
                return None;
            }
            let taken = match self.batches.recv() {
                Ok(Ok((batch, summary))) => {
                    self.summary = summary;
                    self.take(batch)
                }
                Ok(Err(error)) => Err(error),
                Err(_) => {
                    self.is_over = true;
                    self.ready = self.waiting.len();
                    Ok(())
                }
            };
            if let Err(error) = taken {
                self.is_over = true;
                self.ready = 0;
                return Some(Err(error));
            }
        }
        let mut record = self.waiting.pop_front()?;
        self.ready -= 1;
        self.late += u64::from(record.at < self.last);
        record.at = record.at.max(self.last);
        self.last = record.at;
        Some(Ok(record))
    }
}
