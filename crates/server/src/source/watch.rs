//! Watch: notices that the policy file changed, however it was changed.
//!
//! ```text
//!   every 200 ms  properties of the files: others than at the last reload, and at rest --> reload
//!   every 5 s     reload: only the texts count
//! ```
//!
//! The properties are those of the file that a path leads to, so a write in place, a rename over the
//! file, and a swap of a symlink or of a parent directory all show there, without events of the
//! system. A file is at rest if two looks find the same. The reload every few seconds finds changes
//! that properties do not show; a reload of a text seen before does nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use super::envoy_files::files_of;
use super::policy_text::FileStamp;
use crate::Trigger;
use crate::background::old_databases::DailyNotice;
use crate::context::ServiceContext;

/// Time between two looks at the properties of the files.
const LOOK: Duration = Duration::from_millis(200);
/// Looks between two reloads of files that seem unchanged: 5 s.
const MAX_LOOKS: usize = 25;
/// How long the stop waits for the thread.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// The thread that watches.
#[derive(Debug)]
pub(crate) struct Watcher {
    /// Disconnected to stop the thread.
    running: mpsc::Sender<()>,
    /// Disconnected when the thread has ended.
    ended: mpsc::Receiver<()>,
}

impl Watcher {
    pub(crate) fn start(shared: Arc<ServiceContext>) -> Self {
        let (running, stop) = mpsc::channel();
        let (alive, ended) = mpsc::channel::<()>();
        let run = move || {
            let _alive = alive;
            let mut notice = DailyNotice::new(shared.unix_seconds());
            loop {
                // Before the reload: a change in between is seen by one of the two.
                let read = stamps(&shared);
                reload(&shared);
                notice.give(&shared);
                if !wait(&shared, &read, &stop) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(run);
        if let Err(error) = thread {
            tracing::error!(event = "watch.failed", %error);
        }
        Self { running, ended }
    }

    /// Ends the thread, and waits a moment for it: a directory that does not answer, on a
    /// network, must not keep the service from ending.
    pub(crate) fn stop(self) {
        drop(self.running);
        let _ = self.ended.recv_timeout(STOP_WITHIN);
    }
}

/// Reloads changed files; a panic ends this reload, but not the thread.
fn reload(shared: &ServiceContext) {
    // The event has the result; state that a panic leaves behind its locks is judged anew.
    let reloaded = catch_unwind(AssertUnwindSafe(|| shared.reload(Trigger::File)));
    if reloaded.is_err() {
        tracing::error!(event = "task.failed", task = "watch");
        shared.observers.metrics.process.task_failures.add(1);
    }
}

/// Waits until files have others than these properties and are at rest, or for the time to reload
/// anyway; returns false if the thread has to stop.
fn wait(shared: &ServiceContext, read: &[Option<FileStamp>], stop: &mpsc::Receiver<()>) -> bool {
    let mut before = read.to_vec();
    for _ in 0..MAX_LOOKS {
        if stop.recv_timeout(LOOK) != Err(RecvTimeoutError::Timeout) {
            return false;
        }
        let now = stamps(shared);
        if now != read && now == before {
            break;
        }
        before = now;
    }
    true
}

/// Returns the properties of the policy file, of the files that it names, and of those of Envoy's
/// rate limit service.
fn stamps(shared: &ServiceContext) -> Vec<Option<FileStamp>> {
    let mut paths: Vec<PathBuf> = shared.source.path.iter().cloned().collect();
    if let (Some(path), Some(seen)) = (&shared.source.path, &shared.source.last_seen.lock().last) {
        paths.extend(seen.paths(path));
    }
    let policy = shared.keeper.policy();
    if let Some(path) = shared.source.envoy_files.path(&policy.settings) {
        // A directory has other properties once a file comes into it.
        paths.extend(files_of(&path).unwrap_or_default());
        paths.push(path);
    }
    paths.iter().map(|path| FileStamp::of(path)).collect()
}
