//! File: one file of the state folder, whole or refused.
//!
//! ```text
//!   "ratekeeper state" | version 4 | zero of the clock 8 | its reading 8 | body | SHA-256 32
//! ```
//!
//! A file is written beside its place, synced, and renamed over the last one. It is read if it is a
//! regular file of this user that no other user may write, has this version, and its sum is right;
//! the sum is computed before the body is used. Bodies hold keys, which may be personal data, so
//! that only this user may read the file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek as _, SeekFrom, Take, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use ratekeeper_core::{Origin, Time};
use rustix::fs::OFlags;

use super::SavedClock;

const MAGIC: &[u8; 16] = b"ratekeeper state";
/// Version of the format of all files; another one is refused.
const VERSION: u32 = 1;
const HEAD_BYTES: usize = MAGIC.len() + 4 + 8 + 8;
/// Permission of other users to write, as in the mode of a file.
const OTHERS_WRITE: u32 = 0o022;

/// A file that can be used.
#[derive(Debug)]
pub(crate) struct SavedFile {
    pub(crate) clock: SavedClock,
    pub(crate) body: Take<BufReader<File>>,
}

impl SavedFile {
    /// Opens a file and verifies it; `None` if it is not there.
    pub(crate) fn open(path: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(io::Error::other("it is a symbolic link"));
            }
            file => file?,
        };
        let metadata = file.metadata()?;
        let fault = if !metadata.is_file() {
            "it is not a regular file"
        } else if metadata.uid() != rustix::process::geteuid().as_raw() {
            "it belongs to another user"
        } else if metadata.mode() & OTHERS_WRITE != 0 {
            "other users may write it"
        } else {
            ""
        };
        if !fault.is_empty() {
            return Err(io::Error::other(fault));
        }
        let body = (HEAD_BYTES + SHA256_OUTPUT_LEN) as u64;
        let Some(body) = metadata.len().checked_sub(body) else {
            return Err(io::Error::other("it is too short"));
        };
        let mut reader = BufReader::new(file);
        let (clock, mut sum) = head(&mut reader)?;
        verify(&mut reader, body, &mut sum)?;
        reader.seek(SeekFrom::Start(HEAD_BYTES as u64))?;
        let body = reader.take(body);
        Ok(Some(Self { clock, body }))
    }
}

fn head(reader: &mut impl Read) -> io::Result<(SavedClock, Context)> {
    let mut head = [0; HEAD_BYTES];
    reader.read_exact(&mut head)?;
    let mut sum = Context::new(&SHA256);
    sum.update(&head);
    let (magic, numbers) = head.split_at(MAGIC.len());
    let (version, clock) = numbers.split_at(4);
    if magic != MAGIC {
        return Err(io::Error::other("it is no state of ratekeeper"));
    }
    let version = u32::from_le_bytes(version.try_into().unwrap_or_default());
    if version != VERSION {
        let text = format!("it has the format {version}, and this version reads {VERSION}");
        return Err(io::Error::other(text));
    }
    let number = |at: usize| {
        let bytes = clock[at..at + 8].try_into().unwrap_or_default();
        u64::from_le_bytes(bytes)
    };
    let clock = SavedClock {
        zero: Origin::from_unix_nanos(number(0)),
        reading: Time::from_nanos(number(8)),
    };
    Ok((clock, sum))
}

fn verify(reader: &mut impl Read, body: u64, sum: &mut Context) -> io::Result<()> {
    let mut left = reader.take(body);
    let mut bytes = vec![0; 64 << 10];
    loop {
        match left.read(&mut bytes)? {
            0 => break,
            read => sum.update(&bytes[..read]),
        }
    }
    let mut written = [0; SHA256_OUTPUT_LEN];
    left.into_inner().read_exact(&mut written)?;
    if sum.clone().finish().as_ref() != written {
        return Err(io::Error::other("it is damaged: its checksum is wrong"));
    }
    Ok(())
}

/// Writes a file in place of the last one; returns its size in bytes. If that fails, the last one
/// stays.
pub(super) fn write(
    folder: &Path,
    name: &str,
    clock: SavedClock,
    body: impl FnOnce(&mut Summed<BufWriter<File>>) -> io::Result<()>,
) -> io::Result<u64> {
    let temporary = folder.join(format!(".{name}.tmp"));
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {} // of a process that crashed
    }
    let written = write_new(&temporary, clock, body);
    let renamed = written.and_then(|bytes| {
        fs::rename(&temporary, folder.join(name))?;
        File::open(folder)?.sync_all()?;
        Ok(bytes)
    });
    if renamed.is_err() {
        let _ = fs::remove_file(&temporary); // it may not be there
    }
    renamed
}

fn write_new(
    path: &Path,
    clock: SavedClock,
    body: impl FnOnce(&mut Summed<BufWriter<File>>) -> io::Result<()>,
) -> io::Result<u64> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    let mut to = Summed {
        inner: BufWriter::with_capacity(64 << 10, file),
        sum: Context::new(&SHA256),
        bytes: 0,
    };
    to.write_all(MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    to.write_all(&clock.zero.as_unix_nanos().to_le_bytes())?;
    to.write_all(&clock.reading.as_nanos().to_le_bytes())?;
    body(&mut to)?;
    let sum = to.sum.clone().finish();
    to.write_all(sum.as_ref())?;
    let file = to
        .inner
        .into_inner()
        .map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    Ok(to.bytes)
}

/// Writes bytes, and computes their checksum.
pub(super) struct Summed<W> {
    inner: W,
    sum: Context,
    bytes: u64,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const CLOCK: SavedClock = SavedClock {
        zero: Origin::from_unix_nanos(1_700_000_000_000_000_000),
        reading: Time::from_nanos(7),
    };

    fn written(folder: &Path) -> Vec<u8> {
        let bytes = write(folder, "file", CLOCK, |to| to.write_all(b"body")).unwrap();
        let all = fs::read(folder.join("file")).unwrap();
        assert_eq!(all.len() as u64, bytes);
        all
    }

    #[test]
    fn a_file_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        assert!(SavedFile::open(&path).unwrap().is_none());
        fs::write(folder.path().join(".file.tmp"), "of a crash").unwrap();
        written(folder.path());
        let mut file = SavedFile::open(&path).unwrap().unwrap();
        assert_eq!(file.clock, CLOCK);
        assert_eq!(io::read_to_string(&mut file.body).unwrap(), "body");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let failed = write(folder.path(), "file", CLOCK, |_| {
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err());
        assert!(
            SavedFile::open(&path).unwrap().is_some(),
            "the last one stays"
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_bytes_and_other_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let all = written(folder.path());
        let path = folder.path().join("other");
        let refused = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            SavedFile::open(&path).unwrap_err().to_string()
        };
        for at in 0..all.len() {
            for flipped in [1, 0x80, 0xff] {
                let mut bytes = all.clone();
                bytes[at] ^= flipped;
                refused(&bytes);
            }
            refused(&all[..at]);
        }
        refused(&[&all[..], b"?"].concat());
        let mut newer = all.clone();
        newer[16] = 2;
        assert_eq!(
            refused(&newer),
            "it has the format 2, and this version reads 1"
        );
        fs::write(&path, &all).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let shared = SavedFile::open(&path).unwrap_err().to_string();
        assert_eq!(shared, "other users may write it");
        let link = folder.path().join("link");
        symlink("file", &link).unwrap();
        let link = SavedFile::open(&link).unwrap_err().to_string();
        assert_eq!(link, "it is a symbolic link");
        let directory = SavedFile::open(folder.path()).unwrap_err().to_string();
        assert_eq!(directory, "it is not a regular file");
    }
}
