//! Last seen: what a reload compares a policy file with.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ratekeeper_policy::Settings;

/// The text that was read last, good or bad, and the settings of the process.
#[derive(Debug)]
pub(crate) struct LastSeen(Mutex<SeenFile>);

/// What was read.
#[derive(Debug)]
pub(crate) struct SeenFile {
    /// As it was read; none if it could not be.
    pub(crate) last: Option<String>,
    pub(crate) in_force: String,
    pub(crate) started_with: Settings,
    /// Limits that enforce only watch.
    pub(crate) shadow: bool,
}

impl LastSeen {
    pub(crate) fn new(seen: SeenFile) -> Self {
        Self(Mutex::new(seen))
    }

    /// Nobody else reloads meanwhile.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SeenFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
