//! Policy text: the texts that a policy is made of, its own and those of the files that it names.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratekeeper_policy::config::{self, PolicyFiles};

use crate::regular_file::open_regular;

/// The texts of a policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyText {
    pub(crate) text: String,
    pub(crate) files: PolicyFiles,
    /// Databases by name, as they were on the disk before they were read.
    seen: BTreeMap<String, SeenDatabase>,
}

/// By their content.
impl PartialEq for PolicyText {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text && self.files == other.files
    }
}

/// A database on the disk.
#[derive(Clone, Copy, Debug)]
struct SeenDatabase {
    stamp: FileStamp,
    /// True if two looks, one after the other, saw this stamp. The times of a file have steps of
    /// some milliseconds, so a look may miss a change in the same step; the next look reads.
    is_settled: bool,
}

/// Properties of a file of which one differs after a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileStamp {
    device_and_inode: [u64; 2],
    size: u64,
    /// Of the content and of the inode, in seconds and nanoseconds.
    changed: [(i64, i64); 2],
}

impl FileStamp {
    pub(super) fn of(path: &Path) -> Option<Self> {
        let data = std::fs::metadata(path).ok()?;
        Some(Self {
            device_and_inode: [data.dev(), data.ino()],
            size: data.size(),
            changed: [
                (data.mtime(), data.mtime_nsec()),
                (data.ctime(), data.ctime_nsec()),
            ],
        })
    }
}

impl PolicyText {
    /// Reads the policy at `path`. The texts read before save parsing a policy that has not
    /// changed, to find the files that it names, and reading databases that have not.
    pub(crate) fn read(path: &Path, before: Option<&Arc<Self>>) -> Result<Self, String> {
        let text = read(path, config::MAX_BYTES)?;
        let text = String::from_utf8(text).map_err(|_| "the file is not text in UTF-8")?;
        if text.len() > config::MAX_BYTES {
            let most = config::MAX_BYTES;
            return Err(format!("the file is longer than {most} bytes"));
        }
        if text.trim().is_empty() {
            return Err("the file is empty".into());
        }
        let mut seen = BTreeMap::new();
        let is_same = |name: &str| {
            let Some(stamp) = FileStamp::of(&beside(path, name)) else {
                return false;
            };
            let last = before.and_then(|before| before.seen.get(name));
            let last = last.filter(|last| last.stamp == stamp);
            let is_settled = last.is_some();
            seen.insert(name.to_owned(), SeenDatabase { stamp, is_settled });
            last.is_some_and(|last| last.is_settled)
        };
        let beside = |name: &str, most| read(&beside(path, name), most);
        let files = match before {
            Some(before) if before.text == text => before.files.read_again(is_same, beside),
            Some(before) => before.files.read_changed(&text, is_same, beside),
            None => PolicyFiles::default().read_changed(&text, is_same, beside),
        };
        Ok(Self { text, files, seen })
    }

    /// Returns the same texts, with another one of the file of overrides.
    pub(crate) fn with_overrides(&self, text: String) -> Self {
        Self {
            text: self.text.clone(),
            files: self.files.clone().with_overrides(text),
            seen: self.seen.clone(),
        }
    }

    /// Returns the paths of the files that the policy at `path` names.
    pub(crate) fn paths(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        self.files.names().map(move |name| beside(path, name))
    }
}

/// Returns the path of a file that the policy at `path` names.
pub(crate) fn beside(path: &Path, name: &str) -> PathBuf {
    path.parent().unwrap_or(Path::new("")).join(name)
}

/// Reads a file; of one that is too long, one byte more than `most`.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let file = open_regular(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    file.take(most as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The database is not valid, and so is read at each look; its stamps are kept in any case.
    #[test]
    fn a_database_is_unchanged_after_two_equal_looks() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ratekeeper.toml");
        let database = directory.path().join("c.mmdb");
        fs::write(&path, "version = 1\n[geo]\ncountry_db = \"c.mmdb\"\n").unwrap();
        fs::write(&database, "one").unwrap();
        let look = |before: Option<&Arc<PolicyText>>| {
            let text = Arc::new(PolicyText::read(&path, before).unwrap());
            let is_settled = text.seen.get("c.mmdb").map(|seen| seen.is_settled);
            (text, is_settled)
        };
        let (first, is_settled) = look(None);
        assert_eq!(is_settled, Some(false));
        let (second, is_settled) = look(Some(&first));
        assert_eq!(is_settled, Some(true));
        assert_eq!(second, first, "stamps are no content");
        // Replaced by a file of the same size.
        let next = directory.path().join("next");
        fs::write(&next, "two").unwrap();
        fs::rename(&next, &database).unwrap();
        let (third, is_settled) = look(Some(&second));
        assert_eq!(is_settled, Some(false));
        fs::remove_file(&database).unwrap();
        assert_eq!(look(Some(&third)).1, None);
    }
}
