//! Log writer: queues lines of the log, so that writing them blocks no other thread.
//!
//! ```text
//!   any thread --write--> queue, at most 1 MiB --"log" thread--> standard error
//!                  |                                  |
//!                  +-- full: dropped, counted         +-- fails, blocks: only this thread
//! ```
//!
//! A thread that decides must not wait for a terminal, a pipe or a disk. So a write takes a
//! copy and returns; a line that does not fit is dropped and counted.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::counter::Counter;

/// Maximum number of bytes that wait to be written; as many again may be on their way.
const MAX_WAITING: usize = 1 << 20;

/// Minimum time between two reports of a log that cannot be written.
const REPORTED_AGAIN: Duration = Duration::from_secs(60);

/// A writer of log lines that never blocks and never fails.
///
/// Each call of `write` is one line of the log, whole: it is queued or dropped as one.
///
/// # Examples
/// ```
/// use std::io::Write;
///
/// let mut log = ratekeeper_server::LogWriter::new(std::io::sink())?;
/// log.write_all(b"started\n")?;
/// assert!(log.flush_within(std::time::Duration::from_secs(10)));
/// assert_eq!(log.dropped(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogWriter(Arc<LogQueue>);

#[derive(Debug, Default)]
struct LogQueue {
    waiting: Mutex<PendingLines>,
    filled: Condvar,
    emptied: Condvar,
    dropped: Arc<Counter>,
}

#[derive(Debug, Default)]
struct PendingLines {
    bytes: Vec<u8>,
    lines: u64,
    /// True once no more lines come.
    is_closed: bool,
    /// True while lines taken are not written yet.
    writing: bool,
}

impl LogWriter {
    /// Creates a writer to standard error.
    ///
    /// # Errors
    /// When the system refuses a descriptor or a thread.
    pub fn to_stderr() -> io::Result<Self> {
        // A descriptor of its own: a write that blocks holds no lock of the standard library.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        Self::new(File::from(stderr))
    }

    /// Creates a writer to `out`, which a thread of its own writes to for the life of the process.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::counting(out, Arc::default())
    }

    /// Like [`new`](Self::new), and adds the lines that are lost to `dropped`.
    pub(crate) fn counting(
        out: impl Write + Send + 'static,
        dropped: Arc<Counter>,
    ) -> io::Result<Self> {
        let queue = Arc::new(LogQueue {
            dropped,
            ..LogQueue::default()
        });
        let taken = Arc::clone(&queue);
        std::thread::Builder::new()
            .name("log".into())
            .spawn(move || taken.write_to(out))?;
        Ok(Self(queue))
    }

    /// Returns the number of lines lost so far, because the queue was full or writing failed.
    pub fn dropped(&self) -> u64 {
        self.0.dropped.count()
    }

    /// Ends the thread, after the lines that wait.
    pub(crate) fn close(&self) {
        self.0.waiting.lock().is_closed = true;
        self.0.filled.notify_one();
    }

    /// Waits until all lines have been written, for at most `limit`; returns true if they have.
    pub fn flush_within(&self, limit: Duration) -> bool {
        let busy = |waiting: &mut PendingLines| waiting.lines > 0 || waiting.writing;
        let waiting = &mut self.0.waiting.lock();
        let waited = self.0.emptied.wait_while_for(waiting, busy, limit);
        !waited.timed_out()
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogQueue {
    fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.bytes.len() + line.len() > MAX_WAITING {
            self.dropped.add(1);
            return;
        }
        waiting.bytes.extend_from_slice(line);
        waiting.lines += 1;
        drop(waiting);
        self.filled.notify_one();
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "spaces reports, and decides nothing"
    )]
    fn write_to(&self, mut out: impl Write) {
        let mut bytes = Vec::new();
        let mut reported = self.dropped.count();
        // The end of the last line could not be written.
        let mut is_cut = false;
        let mut failed_at: Option<Instant> = None;
        loop {
            let lines = self.take(&mut bytes);
            if lines == 0 {
                return; // it is closed
            }
            if is_cut {
                bytes.insert(0, b'\n');
            }
            let (left, error) = write_some(&mut out, &bytes);
            if let Some(last) = bytes.len().checked_sub(left + 1) {
                is_cut = bytes[last] != b'\n';
            }
            let lost = bytes[bytes.len() - left..].split(|byte| *byte == b'\n');
            let lost = lines.min(lost.count() as u64 - 1);
            bytes.clear();
            self.dropped.add(lost);
            if let Some(error) = error
                && failed_at.is_none_or(|at| at.elapsed() >= REPORTED_AGAIN)
            {
                failed_at = Some(Instant::now());
                tracing::warn!(event = "log.failed", lines = lost, %error);
            }
            self.waiting.lock().writing = false;
            self.emptied.notify_all();
            let dropped = self.dropped.count();
            if lost == 0 && dropped > reported {
                tracing::warn!(event = "log.dropped", lines = dropped - reported);
                reported = dropped;
            }
        }
    }

    /// Waits for lines and moves them to `bytes`, which is empty; returns their number.
    fn take(&self, bytes: &mut Vec<u8>) -> u64 {
        let mut waiting = self.waiting.lock();
        let idle = |waiting: &mut PendingLines| waiting.lines == 0 && !waiting.is_closed;
        self.filled.wait_while(&mut waiting, idle);
        std::mem::swap(&mut waiting.bytes, bytes);
        waiting.writing = waiting.lines > 0;
        std::mem::take(&mut waiting.lines)
    }
}

/// Writes until that fails; returns the number of bytes that are left, and why.
fn write_some(out: &mut impl Write, mut bytes: &[u8]) -> (usize, Option<io::Error>) {
    let mut failure = None;
    while !bytes.is_empty() && failure.is_none() {
        match out.write(bytes) {
            Ok(0) => failure = Some(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => failure = Some(error),
        }
    }
    let _ = out.flush(); // of a file or a descriptor: nothing
    (bytes.len(), failure)
}

/// Returns the first `most` bytes of a text, or less, so that no character is cut.
pub(crate) fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A writer that waits for permission, and returns the result that comes with it.
    struct Gate {
        allowed: Receiver<io::Result<()>>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.allowed.recv().unwrap_or(Ok(()))?;
            let _ = self.written.send(bytes.to_vec()); // the test may be over
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gate() -> (LogWriter, Sender<io::Result<()>>, Receiver<Vec<u8>>) {
        let (allow, allowed) = channel();
        let (written, writes) = channel();
        let log = LogWriter::new(Gate { allowed, written }).unwrap();
        (log, allow, writes)
    }

    #[test]
    fn a_stalled_reader_loses_lines_but_delays_no_writer() {
        let (mut log, allow, writes) = gate();
        let mut line = [b'x'; 1 << 10];
        line[(1 << 10) - 1] = b'\n';
        let lines = 2 * (MAX_WAITING >> 10) + 100;
        log.write_all(&line).unwrap();
        while !log.0.waiting.lock().writing {
            std::thread::yield_now(); // so that the others are a second batch
        }
        for _ in 1..lines {
            log.write_all(&line).unwrap();
        }
        assert!(!log.flush_within(Duration::from_millis(1)));
        let dropped = log.dropped();
        assert!(dropped >= 100, "{dropped}");
        drop(allow); // it reads again
        assert!(log.flush_within(PATIENCE));
        let bytes: usize = writes.try_iter().map(|bytes| bytes.len()).sum();
        assert_eq!(
            bytes as u64,
            (lines as u64 - dropped) << 10,
            "only whole lines are lost"
        );
    }

    #[test]
    fn a_write_that_fails_is_counted_and_the_next_is_tried() {
        let (mut log, allow, writes) = gate();
        allow.send(Err(io::ErrorKind::StorageFull.into())).unwrap();
        log.write_all(b"lost\n").unwrap();
        assert!(log.flush_within(PATIENCE));
        assert_eq!(log.dropped(), 1);
        allow.send(Ok(())).unwrap();
        log.write_all(b"kept\n").unwrap();
        assert_eq!(writes.recv_timeout(PATIENCE).unwrap(), b"kept\n");
        assert!(log.flush_within(PATIENCE));
        assert_eq!(log.dropped(), 1);
    }

    /// A disk with little room.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(usize, Vec<u8>)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (room, written) = &mut *self.0.lock();
            let fits = bytes.len().min(*room);
            if fits == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= fits;
            written.extend_from_slice(&bytes[..fits]);
            Ok(fits)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_cut_is_counted_and_spoils_no_other() {
        let (disk, dropped) = (Disk::default(), Arc::<Counter>::default());
        let mut log = LogWriter::counting(disk.clone(), Arc::clone(&dropped)).unwrap();
        let mut write = |room, lines: &[u8]| {
            disk.0.lock().0 = room;
            log.write_all(lines).unwrap();
            assert!(log.flush_within(PATIENCE));
            dropped.count()
        };
        assert_eq!(write(8, b"whole\n"), 0);
        assert_eq!(write(2, b"cut\n"), 1);
        assert_eq!(write(0, b"lost\n"), 2);
        assert_eq!(write(100, b"next\n"), 2);
        assert_eq!(write(100, b"last\n"), 2);
        assert_eq!(disk.0.lock().1, b"whole\ncu\nnext\nlast\n");
    }
}
