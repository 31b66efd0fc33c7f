//! Policy text: a policy and its store in memory, from a text or a file.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use ratekeeper_policy::Policy;
use ratekeeper_policy::config::{self, Colour, Context};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use super::policy_files::read_policy_files;
use crate::Clock;

/// Maximum bytes of a policy file, as in the language.
const MAX_BYTES: u64 = config::MAX_BYTES as u64;

/// The text of a policy, with its name in findings, and the folder of the files that it names.
pub(crate) struct PolicyText {
    name: String,
    text: String,
    pub(super) home: PathBuf,
}

impl PolicyText {
    pub(crate) fn new(text: &str) -> Self {
        Self {
            name: "policy".into(),
            text: text.into(),
            home: PathBuf::new(),
        }
    }

    /// Reads the text of a file.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let mut text = String::new();
        let file = File::open(path)?;
        file.take(MAX_BYTES + 1).read_to_string(&mut text)?; // one more is too long for the parser
        Ok(Self {
            name: path.display().to_string(),
            text,
            home: path.parent().map_or_else(PathBuf::new, Path::to_owned),
        })
    }

    /// Returns the policy, or the findings about it.
    pub(crate) fn load(&self, clock: &impl Clock) -> Result<Policy, String> {
        let Self { name, text, home } = self;
        let (files, context) = (read_policy_files(text, home), Context::from(clock.origin()));
        let loaded = config::parse_file(text, &files, context, clock.now());
        let loaded =
            loaded.map_err(|findings| config::render(name, text, &findings, Colour::Never))?;
        Ok(loaded.policy)
    }
}

/// Returns a store in memory with the budget of the policy.
pub(crate) fn memory_of(policy: &Policy) -> MemoryStore {
    let budget_bytes = policy.settings.memory_budget;
    let budget_bytes = budget_bytes.unwrap_or(MemoryConfig::default().budget_bytes);
    MemoryStore::new(MemoryConfig { budget_bytes })
}
