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

use std::collections::HashMap;
use std::fs;
use std::future::Future;
use std::io::{self, BufReader, Read as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper::Clock;
use ratekeeper_core::{Limit, Nanos, Origin, Time};
use ratekeeper_policy::Settings;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::StartError;
use crate::context::ServiceContext;
use crate::history::record_now;
use crate::metrics::StateLevels;
use crate::standing_bans;
use file::SavedFile;

/// The file of the counters.
const COUNTERS: &str = "counters.state";
/// The file of the history.
const HISTORY: &str = "history.state";
/// Maximum number of bytes of the history that are read: 256 limits take 9 MiB at most.
const MAX_HISTORY: u64 = 16 << 20;
/// Time between two snapshots, unless the policy states another.
const EVERY: Nanos = Nanos::from_secs(60);
/// A snapshot that takes long is followed by a pause of so many times its duration, so that
/// snapshots take a tenth of a processor at most.
const PAUSES: u32 = 9;

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
    counts: StateCounts,
}

/// Snapshots of the counters.
#[derive(Debug, Default)]
struct StateCounts {
    saved: AtomicU64,
    /// Of the history, too.
    failed: AtomicU64,
    /// Size of the last one.
    bytes: AtomicU64,
    /// Second since 1970 at which it was written.
    at: AtomicU64,
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
            counts: StateCounts::default(),
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

/// Adds the saved keys to the store; the file is of the clock that the service continues.
pub(crate) fn restore<C: Clock>(
    shared: &ServiceContext<C>,
    counters: Option<SavedFile>,
    notices: &mut Vec<String>,
) {
    let Some(folder) = shared.state.as_deref() else {
        return;
    };
    if let Some(mut file) = counters
        && let Err(error) = restore_counters(shared, &mut file, notices)
    {
        notices.push(folder.refuse(COUNTERS, &error));
    }
    if let Some(file) = folder.read(HISTORY, notices)
        && let Err(error) = restore_history(shared, file)
    {
        notices.push(folder.refuse(HISTORY, &error));
    }
}

fn restore_counters<C: Clock>(
    shared: &ServiceContext<C>,
    file: &mut SavedFile,
    notices: &mut Vec<String>,
) -> io::Result<()> {
    let (clock, limits) = (shared.keeper.clock(), limits(shared));
    if clock.origin() != file.clock.zero || clock.now() < file.clock.reading {
        return Err(io::Error::other("it is of another clock"));
    }
    let named: HashMap<&str, &Limit> = limits.iter().map(|it| (&*it.name, it)).collect();
    let store = shared.keeper.store().local();
    let restored = store.restore(&mut file.body, clock.now(), |name| named.get(name).copied())?;
    if let Some(first) = restored.dropped.first() {
        let count = restored.dropped.len();
        notices.push(format!(
            "the policy has no limit `{first}` any more: the keys of {count} such limits are dropped"
        ));
    }
    standing_bans::list_restored(shared);
    tracing::info!(event = "state.restored", keys = restored.keys);
    Ok(())
}

fn restore_history<C: Clock>(shared: &ServiceContext<C>, file: SavedFile) -> io::Result<()> {
    let body = BufReader::new(file.body.take(MAX_HISTORY));
    let saved = serde_json::from_reader(body)?;
    let policy = shared.keeper.policy();
    let limits = policy.rules.iter().map(|rule| &rule.limit);
    shared.history.restore(saved, shared.unix_seconds(), limits);
    Ok(())
}

/// Returns the limits in force, whose keys are saved.
fn limits<C: Clock>(shared: &ServiceContext<C>) -> Vec<Limit> {
    let mut rules = shared.keeper.policy().rules.clone();
    let mut limits: Vec<Limit> = rules.limits_mut().map(|limit| limit.clone()).collect();
    if let Some(envoy) = shared.keeper.envoy() {
        let mut envoy = (*envoy).clone();
        limits.extend(envoy.limits_mut().map(|limit| limit.clone()));
    }
    limits.sort_by_key(|limit| limit.id);
    limits.dedup_by_key(|limit| limit.id); // records of reports share a limit
    limits
}

/// Writes the files until the service ends.
pub(crate) async fn save_regularly<C: Clock + 'static>(shared: Arc<ServiceContext<C>>) {
    let Some(every) = shared.state.as_ref().map(|folder| folder.every) else {
        return;
    };
    let mut pause = every;
    loop {
        tokio::time::sleep(pause).await;
        let took = save(&shared).await;
        pause = every.max(took * PAUSES);
    }
}

/// Writes the files now, on a thread of its own; returns how long that took.
#[expect(
    clippy::disallowed_methods,
    reason = "measures a pause, and decides nothing"
)]
async fn save<C: Clock + 'static>(shared: &Arc<ServiceContext<C>>) -> Duration {
    let begun = Instant::now();
    let shared = Arc::clone(shared);
    let saved = tokio::task::spawn_blocking(move || {
        if let Some(folder) = shared.state.as_deref() {
            folder.save(&shared);
        }
    });
    let _ = saved.await; // an error: it panicked, which is logged
    begun.elapsed()
}

/// Writes the files a last time. If the operator asks again for the end, the last snapshot stays.
pub(crate) async fn save_at_the_end<C: Clock + 'static>(
    shared: &Arc<ServiceContext<C>>,
    again: impl Future<Output = ()>,
) {
    tokio::select! {
        _ = save(shared) => {}
        () = again => {}
    }
}

impl StateFolder {
    /// Returns the values of the metrics.
    pub(crate) fn levels(&self) -> StateLevels {
        let counts = &self.counts;
        StateLevels {
            saved: counts.saved.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            bytes: counts.bytes.load(Ordering::Relaxed),
            at_seconds: counts.at.load(Ordering::Relaxed),
        }
    }

    fn save<C: Clock>(&self, shared: &ServiceContext<C>) {
        let _one = self.writing.lock();
        let clock = || SavedClock {
            zero: shared.origin(),
            reading: shared.keeper.clock().now(),
        };
        record_now(shared);
        let history = file::write(&self.path, HISTORY, clock(), |to| {
            let policy = shared.keeper.policy();
            let limits = policy.rules.iter().map(|rule| &rule.limit);
            let saved = shared.history.saved(shared.unix_seconds(), limits);
            Ok(serde_json::to_writer(to, &saved)?)
        });
        if let Err(error) = history {
            self.counts.failed.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(event = "state.failed", file = HISTORY, %error);
        }
        if shared.keeper.store().shared().is_some() {
            return; // the counters are in the shared store
        }
        let limits = limits(shared);
        let clock = clock();
        let mut keys = 0;
        let written = file::write(&self.path, COUNTERS, clock, |mut to| {
            let store = shared.keeper.store().local();
            keys = store.save(&limits, clock.reading, &mut to)?;
            Ok(())
        });
        match written {
            Ok(bytes) => {
                self.counts.saved.fetch_add(1, Ordering::Relaxed);
                self.counts.bytes.store(bytes, Ordering::Relaxed);
                self.counts
                    .at
                    .store(shared.unix_seconds(), Ordering::Relaxed);
                tracing::debug!(event = "state.saved", keys, bytes);
            }
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(event = "state.failed", file = COUNTERS, %error);
            }
        }
    }
}
