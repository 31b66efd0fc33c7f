//! Last seen: the state that a reload compares a policy file with.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratekeeper_policy::Settings;

use super::policy_text::PolicyText;

/// The text that was read last, good or bad, and the settings of the process.
#[derive(Debug)]
pub(crate) struct LastSeen(Mutex<SeenFile>);

/// The last text and the state it is compared with.
#[derive(Debug)]
pub(crate) struct SeenFile {
    /// The text as it was read; `None` if it could not be read.
    pub(crate) last: Option<Arc<PolicyText>>,
    pub(crate) in_force: Arc<PolicyText>,
    pub(crate) started_with: Settings,
    /// True if limits that enforce are in shadow mode.
    pub(crate) shadow: bool,
}

impl LastSeen {
    pub(crate) fn new(seen: SeenFile) -> Self {
        Self(Mutex::new(seen))
    }

    /// Locks the state, so that no other thread reloads meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SeenFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
