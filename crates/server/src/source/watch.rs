//! Watch: notices that the policy file changed, however it was changed.
//!
//! ```text
//!   in-place write      policy.toml            events of its directory
//!   rename over         tmp -> policy.toml     events of its directory
//!   symlink swap        policy.toml -> v2      events of its directory
//!   swap of a parent    ..data -> ..2026_2     events of the directory that holds ..data
//! ```
//!
//! So directories are watched, never the file: every directory on the way that holds the
//! file or a symlink leading to it. A look every few seconds stands in for events that
//! never come (network file systems, exhausted watches). Only the text counts: a reload
//! of a text seen before does nothing.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode};

use super::envoy_files::files_of;
use crate::Trigger;
use crate::background::old_databases::DailyNotice;
use crate::context::ServiceContext;

/// Silence after which a burst of events is over.
const DEBOUNCE: Duration = Duration::from_millis(200);
/// Maximum number of events that put a look off, however busy the directory is.
const MAX_BURST: usize = 64;
/// How often to look when there are no events.
const LOOK: Duration = Duration::from_secs(5);
/// How long the stop waits for the thread.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Maximum number of symlinks followed on the way to the file, as the system bounds them.
const MAX_SYMLINKS: usize = 40;

/// The thread that watches.
#[derive(Debug)]
pub(crate) struct Watcher {
    wake: SyncSender<()>,
    stopping: Arc<AtomicBool>,
    /// Disconnected when the thread has ended.
    ended: mpsc::Receiver<()>,
}

impl Watcher {
    pub(crate) fn start(shared: Arc<ServiceContext>) -> Self {
        // One pending wake is enough: it stands for all.
        let (wake, woken) = mpsc::sync_channel(1);
        let (alive, ended) = mpsc::channel::<()>();
        let stopping = Arc::new(AtomicBool::new(false));
        let (events, stop) = (wake.clone(), Arc::clone(&stopping));
        let run = move || {
            let _alive = alive;
            let mut directories = Directories::new(events);
            let mut notice = DailyNotice::new(shared.unix_seconds());
            // Armed before the first look: a change in between is seen by one of the two.
            directories.arm(&watched(&shared));
            loop {
                reload(&shared);
                notice.give(&shared);
                changed(&woken);
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                directories.arm(&watched(&shared));
            }
        };
        let thread = std::thread::Builder::new().name("watch".into()).spawn(run);
        if let Err(error) = thread {
            tracing::error!(event = "watch.failed", %error);
        }
        Self {
            wake,
            stopping,
            ended,
        }
    }

    /// Ends the thread, and waits a moment for it: a directory that does not answer, on a
    /// network, must not keep the service from ending.
    pub(crate) fn stop(self) {
        self.stopping.store(true, Ordering::Relaxed);
        let _ = self.wake.try_send(()); // full: it will wake; disconnected: it has ended
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

/// Returns the policy file, the files that it names, and the files of Envoy's rate limit service.
fn watched(shared: &ServiceContext) -> Vec<PathBuf> {
    let mut paths: Vec<_> = shared.source.path.iter().cloned().collect();
    if let (Some(path), Some(seen)) = (&shared.source.path, &shared.source.last_seen.lock().last) {
        paths.extend(seen.paths(path));
    }
    let policy = shared.keeper.policy();
    if let Some(path) = shared.source.envoy_files.path(&policy.settings) {
        if path.is_dir() {
            // If a directory cannot be read, only the way to it is watched.
            paths.extend(files_of(&path).unwrap_or_default());
            paths.push(path.join("new.yaml")); // so that a file that comes into it is seen
        }
        paths.push(path);
    }
    paths
}

/// Waits for the end of a burst of events, or for the time to look anyway.
fn changed(woken: &mpsc::Receiver<()>) {
    if woken.recv_timeout(LOOK).is_ok() {
        let more = || woken.recv_timeout(DEBOUNCE).is_ok();
        let _ = (0..MAX_BURST).all(|_| more());
    }
}

/// The directories watched now.
struct Directories {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Directories {
    fn new(wake: SyncSender<()>) -> Self {
        let heard = move |event: notify::Result<notify::Event>| {
            // An error may hide a change: look.
            if event.is_ok_and(|event| !changes(event.kind)) {
                return;
            }
            let _ = wake.try_send(()); // full: it will wake; disconnected: it has ended
        };
        let watcher = notify::recommended_watcher(heard)
            .inspect_err(|error| tracing::warn!(event = "watch.failed", %error))
            .ok();
        Self {
            watcher,
            watched: BTreeSet::new(),
        }
    }

    /// Watches the directories that lead to `paths` now; symlinks may have moved since.
    fn arm(&mut self, paths: &[PathBuf]) {
        use notify::Watcher as _;
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let wanted: BTreeSet<_> = paths.iter().flat_map(|path| directories_of(path)).collect();
        for gone in self.watched.difference(&wanted) {
            let _ = watcher.unwatch(gone); // it may not exist any more
        }
        for directory in &wanted {
            // Again each time: a directory deleted and made again is another one.
            if let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) {
                tracing::debug!(event = "watch.failed", directory = %directory.display(), %error);
            }
        }
        self.watched = wanted;
    }
}

/// Returns true if an event can mean other bytes. Our own reading of the file is an event too.
fn changes(kind: EventKind) -> bool {
    const WRITTEN: EventKind = EventKind::Access(AccessKind::Close(AccessMode::Write));
    !kind.is_access() || kind == WRITTEN
}

/// Returns every directory that holds the file or a symlink on the way to it.
fn directories_of(path: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut left = MAX_SYMLINKS;
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut todo: Vec<PathBuf> = vec![absolute];
    while let Some(path) = todo.pop() {
        let mut walked = PathBuf::new();
        let mut parts = path.components();
        while let Some(part) = parts.next() {
            if part == Component::ParentDir {
                walked.pop(); // no symlink is left in the walked path
                continue;
            }
            let parent = walked.clone();
            walked.push(part);
            let Ok(target) = std::fs::read_link(&walked) else {
                continue;
            };
            found.insert(parent.clone());
            if left == 0 {
                return found;
            }
            left -= 1;
            // Walk again from where the link leads, with the rest of the way behind it.
            todo.push(parent.join(target).join(parts.as_path()));
            walked = PathBuf::new();
            break;
        }
        if let Some(parent) = walked.parent() {
            found.insert(parent.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn every_symlink_on_the_way_is_watched() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let version = root.join("mount/..v1");
        std::fs::create_dir_all(&version).unwrap();
        std::fs::write(version.join("policy.toml"), "").unwrap();
        symlink("..v1", root.join("mount/..data")).unwrap();
        symlink("..data/policy.toml", root.join("mount/policy.toml")).unwrap();
        symlink("mount", root.join("current")).unwrap();

        let found = directories_of(&root.join("current/policy.toml"));
        let expected = [root.clone(), root.join("mount"), version];
        assert_eq!(found, expected.into_iter().collect());
    }

    #[test]
    fn a_circle_of_symlinks_is_followed_only_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        symlink("b", root.join("a")).unwrap();
        symlink("a", root.join("b")).unwrap();
        assert!(directories_of(&root.join("a/policy.toml")).contains(&root));
    }

    #[test]
    fn reading_a_file_is_not_a_change() {
        use notify::event::{CreateKind, ModifyKind};
        let open = EventKind::Access(AccessKind::Open(AccessMode::Any));
        assert!(!changes(open));
        assert!(changes(EventKind::Create(CreateKind::Any)));
        assert!(changes(EventKind::Modify(ModifyKind::Any)));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        assert!(changes(written));
    }
}
