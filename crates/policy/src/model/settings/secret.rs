//! Secret: where the policy says that a secret is.

use std::path::{Path, PathBuf};

/// Place of a secret; never the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// `env:NAME`: in an environment variable.
    Env(String),
    /// `file:PATH`: in a file; a line end at its end does not count.
    File(PathBuf),
}

impl Secret {
    /// Returns the same place, with the path relative to `home`, the directory of the policy.
    #[must_use]
    pub fn at_home(&self, home: &Path) -> Self {
        match self {
            Self::Env(name) => Self::Env(name.clone()),
            Self::File(path) => Self::File(home.join(path)),
        }
    }
}
