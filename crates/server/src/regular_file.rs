//! Regular file: reads files that lie on a disk, and never waits for any other.
//!
//! ```text
//!   FIFO, device, socket, directory --> refused by its name, nothing is waited for
//!   network mount that hangs        --> given up after 5 s; its thread ends when the mount does
//! ```

use std::fs::{File, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use rustix::fs::OFlags;

/// Maximum time to read the files of a policy, or to write one.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// Opens a file for reading; anything but a regular file is an error, at once.
///
/// # Errors
/// The error of the system, or the kind of file that it is instead.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    // Without this flag the opening of a FIFO waits for a writer.
    let no_wait = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(no_wait)
        .open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(file);
    }
    let text = format!("it is {}, not a regular file", name(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Reads and writes by a thread of its own, one at a time, and gives up on one that takes too long.
#[derive(Debug, Default)]
pub(crate) struct FileReader {
    busy: Arc<AtomicBool>,
}

impl FileReader {
    /// Returns the result of `read`, if it comes within [`READ_WITHIN`].
    pub(crate) fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        self.read_within(READ_WITHIN, read)
    }

    fn read_within<T: Send + 'static>(
        &self,
        limit: Duration,
        read: impl FnOnce() -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        if self.busy.swap(true, Ordering::Relaxed) {
            return Err("an earlier call has not ended yet".into());
        }
        let busy = Arc::clone(&self.busy);
        let (sender, done) = sync_channel(1);
        let run = move || {
            let result = read();
            busy.store(false, Ordering::Relaxed);
            let _ = sender.send(result); // too late: it has been given up
        };
        let thread = std::thread::Builder::new().name("read".into()).spawn(run);
        if let Err(error) = thread {
            self.busy.store(false, Ordering::Relaxed);
            return Err(format!("cannot start a thread: {error}"));
        }
        done.recv_timeout(limit)
            .unwrap_or_else(|_| Err(format!("it took longer than {limit:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_not_regular_are_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RUSR).unwrap();
        let refused = |path: &Path| open_regular(path).unwrap_err().to_string();
        assert_eq!(refused(&fifo), "it is a FIFO, not a regular file");
        assert_eq!(
            refused(Path::new("/dev/zero")),
            "it is a device, not a regular file"
        );
        assert_eq!(
            refused(directory.path()),
            "it is a directory, not a regular file"
        );
        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        assert_eq!(
            io::read_to_string(open_regular(&file).unwrap()).unwrap(),
            "text"
        );
    }

    #[test]
    fn a_read_that_hangs_is_given_up_and_later_reads_succeed() {
        let reader = FileReader::default();
        let (finish, hangs) = std::sync::mpsc::channel::<()>();
        let hung = reader.read_within(Duration::from_millis(1), move || {
            let _ = hangs.recv();
            Ok(())
        });
        assert_eq!(hung, Err("it took longer than 1ms".into()));
        let second = reader.read(|| Ok(()));
        assert_eq!(second, Err("an earlier call has not ended yet".into()));
        drop(finish);
        let again = (0..1_000_000).find_map(|_| {
            std::thread::yield_now();
            reader.read(|| Ok(7)).ok()
        });
        assert_eq!(again, Some(7));
    }
}
