//! Kept: a request that goes on when its client leaves, because the upstream goes on too.
//!
//! ```text
//!   not sent --> sent: the upstream is at work --> head of the response, or a failure
//!                                                   '--> not sent, if it is tried again
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The state of a request of [`Gateway::forward`](crate::Gateway::forward), whose future is kept
/// while the upstream is at work. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct KeptRequest(Arc<AtomicBool>);

impl KeptRequest {
    /// Returns true if the request was sent, perhaps in part, and no head of a response came.
    pub fn is_at_work(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Notes that the request is sent now; dropped, that the attempt is over.
    pub(crate) fn begin(&self) -> AtWork {
        self.0.store(true, Ordering::Relaxed);
        AtWork(Self::clone(self))
    }
}

/// An attempt to send a request.
pub(crate) struct AtWork(KeptRequest);

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}
