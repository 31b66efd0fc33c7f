//! Readiness: whether the service should get requests, and what stands against it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::sync::watch;

/// Whether the service should get requests.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    ready: watch::Sender<bool>,
    /// True while the doors are open and the service is not stopping.
    serving: AtomicBool,
    /// True while the store fails and every limit refuses because of that.
    stuck: AtomicBool,
    /// Number of tasks that panicked and are not running again yet.
    down: AtomicU32,
}

impl Readiness {
    pub(crate) fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Notes that the doors are open.
    pub(crate) fn open(&self) {
        self.serving.store(true, Ordering::Relaxed);
        self.note();
    }

    /// Notes that the service stops.
    pub(crate) fn close(&self) {
        self.serving.store(false, Ordering::Relaxed);
        self.note();
    }

    /// Sets whether the store fails and every limit refuses because of that.
    pub(crate) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
        self.note();
    }

    /// Notes that a task that must go on has ended.
    pub(crate) fn note_down(&self) {
        self.down.fetch_add(1, Ordering::Relaxed);
        self.note();
    }

    /// Notes that the task runs again.
    pub(crate) fn note_up(&self) {
        self.down.fetch_sub(1, Ordering::Relaxed);
        self.note();
    }

    fn note(&self) {
        self.ready.send_if_modified(|ready| {
            let serving = self.serving.load(Ordering::Relaxed);
            let runs = self.down.load(Ordering::Relaxed) == 0;
            let now = serving && runs && !self.stuck.load(Ordering::Relaxed);
            std::mem::replace(ready, now) != now
        });
    }

    /// Returns a receiver that is notified when readiness changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }
}
