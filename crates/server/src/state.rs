//! State: the counters and the history of this process, kept in a folder for the next one.
//!
//! ```text
//!   start   counters.state --> the clock goes on --> policy, store --> keys restored --> ready
//!   then    every `state_every`, and at the end:  store --> .counters.state.tmp --> renamed
//! ```
//!
//! * The next process continues the clock of this one: its zero, and at least its last reading.
//!   So states keep their meaning to the bit, and a wall clock that was set back gives no time.
//! * A file is written whole or not at all (see [`file`]). One that cannot be used is moved aside,
//!   and the process starts as without it.
//! * A crash forgives the charges since the last snapshot, and nothing else.

mod file;
pub(crate) mod saving;

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ratekeeper_core::{Nanos, Origin, Time};
use ratekeeper_policy::Settings;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StartError;
use crate::observe::metrics::StateLevels;
use file::SavedFile;

/// The file of the counters.
const COUNTERS: &str = "counters.state";
/// The file of the keys that operators banned or allowed.
const BY_HAND: &str = "by-hand.state";
/// The file of the history.
const HISTORY: &str = "history.state";
/// Time between two snapshots, unless the policy states another.
const EVERY: Nanos = Nanos::from_secs(60);

/// The clock of the process that wrote a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SavedClock {
    /// Position of its zero in Unix time.
    pub(crate) zero: Origin,
    pub(crate) reading: Time,
}

/// The folder.
#[derive(Debug)]
pub(crate) struct StateFolder {
    path: PathBuf,
    every: Duration,
    /// Locked while the process lives: two processes never write one folder.
    _lock: fs::File,
    /// Held while a snapshot is written.
    writing: Mutex<()>,
    pub(crate) levels: Mutex<StateLevels>,
}

impl StateFolder {
    /// Opens the folder that the settings name, relative to `home`; creates it if it is not there.
    ///
    /// # Errors
    /// [`StartError::State`] if it cannot be used, or another process uses it.
    pub(crate) fn open(settings: &Settings, home: &Path) -> Result<Option<Arc<Self>>, StartError> {
        let Some(path) = settings.state.as_ref().map(|path| home.join(path)) else {
            return Ok(None);
        };
        let failed = |what: &str| {
            let text = format!("the folder `{}` cannot be used: {what}", path.display());
            StartError::State(text)
        };
        let mut builder = fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(&path);
        made.map_err(|error| failed(&error.to_string()))?;
        let lock = fs::File::open(&path).map_err(|error| failed(&error.to_string()))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => failed("another process uses it"),
            error => failed(&format!("it cannot be locked: {error}")),
        })?;
        Ok(Some(Arc::new(Self {
            every: settings.state_every.unwrap_or(EVERY).into(),
            path,
            _lock: lock,
            writing: Mutex::new(()),
            levels: Mutex::default(),
        })))
    }

    /// Opens the counters of the last process, if there are any and they can be used.
    pub(crate) fn counters(&self, notices: &mut Vec<String>) -> Option<SavedFile> {
        self.read(COUNTERS, notices)
    }

    fn read(&self, name: &str, notices: &mut Vec<String>) -> Option<SavedFile> {
        match SavedFile::open(&self.path.join(name)) {
            Ok(file) => file,
            Err(error) => {
                notices.push(self.refuse(name, &error));
                None
            }
        }
    }

    /// Moves a file aside, and returns a notice about it.
    fn refuse(&self, name: &str, error: &io::Error) -> String {
        let (path, aside) = (self.path.join(name), format!("{name}.refused"));
        let kept = match fs::rename(&path, self.path.join(&aside)) {
            Ok(()) => format!("kept as {aside}"),
            Err(error) => format!("it cannot be moved aside: {error}"),
        };
        let path = path.display();
        format!("{path} is not used, so this process starts without it: {error} ({kept})")
    }
}
