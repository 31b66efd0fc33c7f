//! Progress: how far a request has come, for its owner, which may drop it or let it go on.
//!
//! ```text
//!   not sent --> sent: the upstream is at work --> head of the response, or a failure
//!                                                   '--> not at work, if it is tried again
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::noted::Notes;

/// The progress of a request of [`Gateway::forward`](crate::Gateway::forward). Clones share it.
#[derive(Clone, Debug, Default)]
pub struct RequestProgress(Arc<ProgressFlags>);

#[derive(Debug, Default)]
struct ProgressFlags {
    is_at_work: AtomicBool,
    was_sent: AtomicBool,
    /// The place of the address of the last attempt, from 1; 0 before.
    place: AtomicUsize,
}

impl RequestProgress {
    /// Returns true if the request was sent, perhaps in part, and no head of a response came.
    pub fn is_at_work(&self) -> bool {
        self.0.is_at_work.load(Ordering::Acquire)
    }

    /// Returns true if a byte of the request was written in an attempt that is over. A request that
    /// a connection of HTTP/2 took counts as written.
    pub fn was_sent(&self) -> bool {
        self.0.was_sent.load(Ordering::Relaxed)
    }

    /// Returns the index of the address of the last attempt.
    pub(crate) fn address(&self) -> Option<usize> {
        self.0.place.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Notes that the request is sent now to the address of this index; dropped, that the attempt is
    /// over. `notes` are those of a connection of HTTP/1.1.
    pub(crate) fn begin(&self, address: usize, notes: Option<Arc<Notes>>) -> AtWork {
        self.0.place.store(address + 1, Ordering::Relaxed);
        self.0.is_at_work.store(true, Ordering::Relaxed);
        let progress = self.clone();
        AtWork { progress, notes }
    }
}

/// An attempt to send a request.
pub(crate) struct AtWork {
    progress: RequestProgress,
    notes: Option<Arc<Notes>>,
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let flags = &self.progress.0;
        if self.notes.as_ref().is_none_or(|it| it.is_written()) {
            flags.was_sent.store(true, Ordering::Relaxed);
        }
        flags.is_at_work.store(false, Ordering::Release); // after it, `was_sent` is known
    }
}
