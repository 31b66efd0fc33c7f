//! Input: the files of a log as batches of rows, read by a thread of their own.
//!
//! ```text
//!   access.log.2.gz --+
//!   access.log.1    --+--> the file that has come least far is read next --> batches
//!   access.log      --+
//! ```
//!
//! So the files of several servers, or rotated ones in any order, are merged, and little more than
//! a batch of each is in memory.

use std::fs::File;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::format::LogFormat;
use crate::log::{LogError, LogOptions, LogSummary, SkippedLines};
use crate::record::{Batch, SkipReason};
use crate::timestamp::TimeReader;
use crate::unpack::{BLOCK, unpacked};

/// Maximum length of a line. A longer one is skipped.
const MAX_LINE: usize = 64 << 10;
/// Batches that wait for the reader's caller.
const WAITING: usize = 4;
/// Lines from which a format is found.
const FIRST_LINES: usize = 50;
/// Maximum number of files that are open together.
pub(crate) const MAX_FILES: usize = 256;

/// A batch, with the summary up to its end.
pub(crate) type Message = Result<(Batch, LogSummary), LogError>;

/// Starts to read the files.
///
/// # Errors
/// Returns an error for a file that cannot be opened, or whose format is not found.
pub(crate) fn read(paths: &[PathBuf], options: &LogOptions) -> Result<Receiver<Message>, LogError> {
    if paths.len() > MAX_FILES {
        return Err(LogError::TooManyFiles(paths.len()));
    }
    let mut summary = LogSummary::default();
    let (mut files, bytes) = (Vec::new(), Arc::default());
    let mut known = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let place = path.canonicalize().unwrap_or_else(|_| path.clone());
        if known.contains(&place) {
            return Err(LogError::Twice(path.clone()));
        }
        known.push(place);
        if let Some(file) = LogFile::open(path, index, options, &bytes)? {
            summary.formats.push((path.clone(), file.format.clone()));
            files.push(file);
        }
    }
    if files.is_empty() {
        return Err(LogError::Empty(paths.first().cloned().unwrap_or_default()));
    }
    let (sender, receiver) = sync_channel(WAITING);
    let window = options.reorder.as_nanos();
    thread::spawn(move || send(files, summary, window, &sender));
    Ok(receiver)
}

/// Sends all batches; returns early if the receiver is gone.
fn send(mut files: Vec<LogFile>, mut summary: LogSummary, window: u64, to: &SyncSender<Message>) {
    while let Some(index) = (0..files.len()).min_by_key(|index| files[*index].latest) {
        let is_last = files[index].is_read;
        let read = files[index].batch(&mut summary);
        if is_last {
            files.remove(index);
        }
        let latest = files.iter().map(|file| file.latest.saturating_sub(window));
        let safe_until = latest.min().unwrap_or(u64::MAX);
        let message = read.map(|mut batch| {
            batch.safe_until = safe_until;
            (batch, summary.clone())
        });
        let failed = message.is_err();
        if to.send(message).is_err() || failed {
            return;
        }
    }
}

/// One file of the log.
struct LogFile {
    path: PathBuf,
    index: u32,
    reader: Box<dyn BufRead + Send>,
    /// Bytes that were taken out of the files, as they are stored.
    stored: Arc<AtomicU64>,
    format: LogFormat,
    times: TimeReader,
    /// Latest time of a line.
    latest: u64,
    lines: u64,
    /// Bytes that were read and belong to no batch yet.
    rest: Vec<u8>,
    /// True while the rest of a line that is too long is left out.
    skips: bool,
    /// True if the reader has no more bytes.
    is_read: bool,
}

struct Counted<R>(R, Arc<AtomicU64>);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(into)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl LogFile {
    /// Opens a file; `None` if it is empty.
    fn open(
        path: &Path,
        index: usize,
        options: &LogOptions,
        stored: &Arc<AtomicU64>,
    ) -> Result<Option<Self>, LogError> {
        let failed = |why: io::Error| LogError::file(path, &why);
        let raw: Box<dyn Read + Send> = if path == Path::new("-") {
            Box::new(io::stdin())
        } else {
            if path.is_dir() {
                return Err(failed(io::ErrorKind::IsADirectory.into()));
            }
            Box::new(File::open(path).map_err(failed)?)
        };
        let mut file = Self {
            path: path.to_owned(),
            index: u32::try_from(index).unwrap_or(u32::MAX),
            reader: unpacked(Counted(raw, Arc::clone(stored))).map_err(failed)?,
            stored: Arc::clone(stored),
            format: options.format.clone().unwrap_or_default(),
            times: TimeReader::new(options.zone.clone()),
            latest: 0,
            lines: 0,
            rest: Vec::new(),
            skips: false,
            is_read: false,
        };
        file.fill()?;
        if file.rest.is_empty() {
            return Ok(None);
        }
        if options.format.is_none() {
            file.format = file.detected()?;
        }
        Ok(Some(file))
    }

    fn detected(&self) -> Result<LogFormat, LogError> {
        let text = String::from_utf8_lossy(&self.rest);
        let lines = text.lines().filter(|line| !is_remark(line));
        let lines: Vec<&str> = lines.take(FIRST_LINES).collect();
        let Some(first) = lines.first() else {
            return Err(LogError::Empty(self.path.clone()));
        };
        LogFormat::detect(&lines).ok_or_else(|| LogError::UnknownFormat {
            path: self.path.clone(),
            line: SkippedLines::shown(first),
        })
    }

    /// Reads a block behind the rest.
    fn fill(&mut self) -> Result<(), LogError> {
        let before = self.rest.len();
        self.rest.reserve(BLOCK);
        let mut block = (&mut self.reader).take(BLOCK as u64);
        let read = block.read_to_end(&mut self.rest);
        read.map_err(|why| LogError::file(&self.path, &why))?;
        self.is_read = self.rest.len() == before;
        if self.skips {
            let end = memchr::memchr(b'\n', &self.rest[before..]);
            self.skips = end.is_none();
            self.rest
                .drain(before..end.map_or(self.rest.len(), |end| before + end));
        }
        Ok(())
    }

    /// Reads the next lines.
    fn batch(&mut self, summary: &mut LogSummary) -> Result<Batch, LogError> {
        let end = if self.is_read {
            self.rest.len() // the last line may have no end
        } else {
            memchr::memrchr(b'\n', &self.rest).map_or(0, |at| at + 1)
        };
        let rest = self.rest.split_off(end);
        let text = String::from_utf8(std::mem::replace(&mut self.rest, rest));
        let text = text.unwrap_or_else(|why| String::from_utf8_lossy(why.as_bytes()).into_owned());
        if self.rest.len() > MAX_LINE {
            self.rest.truncate(MAX_LINE + 1); // enough to see that it is too long
            self.skips = true;
        }
        let mut batch = self.lines(text, summary);
        batch.file = self.index;
        if !self.is_read {
            self.fill()?;
        }
        summary.bytes = self.stored.load(Ordering::Relaxed);
        summary.resolution = summary.resolution.max(self.times.resolution);
        summary.lacks_zone |= self.times.lacks_zone;
        Ok(batch)
    }

    fn lines(&mut self, text: String, summary: &mut LogSummary) -> Batch {
        Batch::read(text, &mut self.times, |line, row| {
            self.lines += 1;
            summary.lines += 1;
            let read = if line.len() > MAX_LINE {
                Err(SkipReason::TooLong)
            } else if is_remark(line) {
                Err(SkipReason::Remark)
            } else {
                self.format.read(line, row)
            };
            match read {
                Ok(row) => {
                    summary.out_of_order += u64::from(row.at < self.latest);
                    self.latest = self.latest.max(row.at);
                    Some(row)
                }
                Err(reason) => {
                    let skipped = summary.skipped.entry(reason);
                    let first = || SkippedLines::first(reason, &self.path, self.lines, line);
                    skipped.or_insert_with(first).count += 1;
                    None
                }
            }
        })
    }
}

/// Returns true for a line that is empty or a remark, as `#Fields` of W3C logs.
fn is_remark(line: &str) -> bool {
    line.starts_with('#') || line.trim().is_empty()
}
