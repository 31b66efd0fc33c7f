//! Replace file: a file has its old content or the new one, also after a crash.
//!
//! ```text
//!   .overrides.csv.3f9a.tmp   written, synced
//!   overrides.csv             still as it was read? --> renamed over, directory synced
//!                             changed meanwhile?    --> left alone
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use crate::regular_file::open_regular;

/// The effect of a replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Replaced {
    /// The file has the new content.
    Done,
    /// The file has another content than expected, and keeps it.
    ChangedMeanwhile,
}

/// The contents of a file that is replaced.
#[derive(Clone, Debug)]
pub(crate) struct Contents {
    /// The content that the file must still have.
    pub(crate) old: String,
    pub(crate) new: String,
}

/// Replaces the content of a file. If `path` is a symlink, the file that it leads to is replaced.
/// The new file has the permissions of the old one, and belongs to this process's user.
///
/// # Errors
/// The error of the system; the file keeps its content, unless only the last sync failed.
pub(crate) fn replace(path: &Path, contents: &Contents) -> io::Result<Replaced> {
    let path = fs::canonicalize(path)?;
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let random = u64::from_ne_bytes(random);
    let name = name.to_string_lossy();
    let temporary = directory.join(format!(".{name}.{random:016x}.tmp"));
    let replaced = write(&temporary, &path, contents);
    if replaced.as_ref().ok() != Some(&Replaced::Done) {
        let _ = fs::remove_file(&temporary); // it may not be there
        return replaced;
    }
    File::open(directory)?.sync_all()?;
    replaced
}

fn write(temporary: &Path, path: &Path, contents: &Contents) -> io::Result<Replaced> {
    let permissions = fs::metadata(path)?.permissions();
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(temporary)?;
    file.set_permissions(permissions)?;
    file.write_all(contents.new.as_bytes())?;
    file.sync_all()?;
    // As late as possible. A writer that comes between this line and the next is not seen.
    if io::read_to_string(open_regular(path)?)? != contents.old {
        return Ok(Replaced::ChangedMeanwhile);
    }
    fs::rename(temporary, path)?;
    Ok(Replaced::Done)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn contents(old: &str, new: &str) -> Contents {
        Contents {
            old: old.to_owned(),
            new: new.to_owned(),
        }
    }

    #[test]
    fn the_file_behind_a_link_is_replaced_and_keeps_its_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        let link = directory.path().join("link");
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("file", &link).unwrap();
        assert_eq!(
            replace(&link, &contents("old", "new")).unwrap(),
            Replaced::Done
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o640
        );
        // Changed by another program: kept.
        let replaced = replace(&link, &contents("old", "newer")).unwrap();
        assert_eq!(replaced, Replaced::ChangedMeanwhile);
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(
            fs::read_dir(directory.path()).unwrap().count(),
            2,
            "no file is left behind"
        );
        assert!(replace(&directory.path().join("none"), &contents("", "new")).is_err());
    }

    /// A reader sees one of the contents at any time, never a part.
    #[test]
    fn no_reader_sees_a_part() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let of = |letter: &str| letter.repeat(200_000);
        fs::write(&path, of("a")).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..20 {
                    let [old, new] = if round % 2 == 0 {
                        ["a", "b"]
                    } else {
                        ["b", "a"]
                    };
                    let replaced = replace(&path, &contents(&of(old), &of(new)));
                    assert_eq!(replaced.unwrap(), Replaced::Done);
                }
            });
            while !writer.is_finished() {
                let text = fs::read_to_string(&path).unwrap();
                assert!(text == of("a") || text == of("b"), "{} bytes", text.len());
            }
        });
    }
}
