//! Saving: the files are read at the start, and written regularly and at the end.

use std::collections::HashMap;
use std::io::{self, BufReader, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper::Clock;
use ratekeeper_core::Limit;
use ratekeeper_policy::HandTable;

use super::file::{self, SavedFile};
use super::{BY_HAND, COUNTERS, HISTORY, SavedClock, StateFolder};
use crate::background::bans::list_restored;
use crate::background::history::record;
use crate::context::ServiceContext;
use crate::observe::changes::{ChangeKind, NOT_SAVED};

/// Maximum number of bytes that are read of a file beside the counters: the history of 256 limits
/// takes 9 MiB at most, and 10,000 keys set by hand take 14 MiB.
const MAX_BYTES: u64 = 16 << 20;
/// A snapshot that takes long is followed by a pause of so many times its duration, so that
/// snapshots take a tenth of a processor at most.
const PAUSES: u32 = 9;

/// Adds the saved keys to the store; the file is of the clock that the service continues.
pub(crate) fn restore(
    shared: &ServiceContext,
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
    if shared.keeper.store().shared().is_none()
        && let Some(file) = folder.read(BY_HAND, notices)
        && let Err(error) = restore_by_hand(shared, file)
    {
        notices.push(folder.refuse(BY_HAND, &error));
    }
}

fn restore_by_hand(shared: &ServiceContext, file: SavedFile) -> io::Result<()> {
    let mut bytes = Vec::new();
    file.body.take(MAX_BYTES).read_to_end(&mut bytes)?;
    let by_hand = &shared.keeper.policy().by_hand;
    by_hand.replace(&by_hand.table(), HandTable::from_bytes(&bytes));
    Ok(())
}

fn restore_counters(
    shared: &ServiceContext,
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
    list_restored(shared);
    tracing::info!(event = "state.restored", keys = restored.keys);
    Ok(())
}

fn restore_history(shared: &ServiceContext, file: SavedFile) -> io::Result<()> {
    let body = BufReader::new(file.body.take(MAX_BYTES));
    let saved = serde_json::from_reader(body)?;
    let policy = shared.keeper.policy();
    let limits = policy.rules.iter().map(|rule| &rule.limit);
    let history = &shared.observers.history;
    history.restore(saved, shared.unix_seconds(), limits);
    Ok(())
}

/// Returns the limits in force, whose keys are saved.
fn limits(shared: &ServiceContext) -> Vec<Limit> {
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
pub(crate) async fn save_regularly(shared: Arc<ServiceContext>) {
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
pub(crate) async fn save(shared: &Arc<ServiceContext>) -> Duration {
    let begun = Instant::now();
    let save = |shared: &Arc<ServiceContext>| {
        if let Some(folder) = shared.state.as_deref() {
            folder.save(shared);
        }
    };
    shared.apart(save).await;
    begun.elapsed()
}

impl StateFolder {
    fn save(&self, shared: &ServiceContext) {
        let _one = self.writing.lock();
        let failed = self.levels.lock().failed;
        self.write(shared);
        let is_failing = self.levels.lock().failed > failed;
        let was_failing = std::mem::replace(&mut self.levels.lock().is_failing, is_failing);
        if is_failing && !was_failing {
            shared.note(ChangeKind::Error, NOT_SAVED);
        } else if was_failing && !is_failing {
            shared.note_change("the state is saved again");
        }
    }

    fn write(&self, shared: &ServiceContext) {
        let clock = || SavedClock {
            zero: shared.origin(),
            reading: shared.now(),
        };
        record(shared);
        let history = file::write(&self.path, HISTORY, clock(), |to| {
            let policy = shared.keeper.policy();
            let limits = policy.rules.iter().map(|rule| &rule.limit);
            let history = &shared.observers.history;
            let saved = history.saved(shared.unix_seconds(), limits);
            Ok(serde_json::to_writer(to, &saved)?)
        });
        if let Err(error) = history {
            self.note_failure(HISTORY, &error);
        }
        if shared.keeper.store().shared().is_some() {
            return; // the counters are in the shared store
        }
        let by_hand = shared.keeper.policy().by_hand.table();
        let by_hand = file::write(&self.path, BY_HAND, clock(), |to| {
            to.write_all(&by_hand.to_bytes())
        });
        if let Err(error) = by_hand {
            self.note_failure(BY_HAND, &error);
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
                let mut levels = self.levels.lock();
                levels.saved += 1;
                levels.bytes = bytes;
                levels.at_seconds = shared.unix_seconds();
                tracing::debug!(event = "state.saved", keys, bytes);
            }
            Err(error) => self.note_failure(COUNTERS, &error),
        }
    }

    fn note_failure(&self, file: &str, error: &io::Error) {
        self.levels.lock().failed += 1;
        tracing::warn!(event = "state.failed", file, %error);
    }
}
