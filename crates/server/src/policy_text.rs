//! Policy text: the texts that a policy is made of, its own and those of the files that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratekeeper_policy::config::{self, PolicyFiles};

use crate::regular_file::open_regular;

/// The texts of a policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct PolicyText {
    pub(crate) text: String,
    pub(crate) files: PolicyFiles,
}

impl PolicyText {
    /// Reads the policy at `path`. The texts read before save parsing a policy that has not
    /// changed, to find the files that it names.
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
        let beside = |name: &str, most| read(&beside(path, name), most);
        let files = match before.filter(|before| before.text == text) {
            Some(before) => before.files.read_again(beside),
            None => PolicyFiles::read(&text, beside),
        };
        Ok(Self { text, files })
    }

    /// Returns the paths of the files that the policy at `path` names.
    pub(crate) fn paths(&self, path: &Path) -> impl Iterator<Item = PathBuf> {
        self.files.names().map(move |name| beside(path, name))
    }
}

/// Returns the path of a file that the policy at `path` names.
fn beside(path: &Path, name: &str) -> PathBuf {
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
