//! Upgrade: connections after an answer that switches to another protocol.

use std::future::Future;
use std::pin::Pin;

use parking_lot::Mutex;

use super::watched::Watched;

/// Serves the stream of a connection from the first byte after the answer.
pub(crate) type Protocol = Box<dyn FnOnce(Watched) -> Serving + Send>;
/// The future of that.
pub(crate) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The protocol that a connection switches to; usually none.
#[derive(Default, derive_more::Debug)]
#[debug("Upgrade")]
pub(crate) struct Upgrade(Mutex<Option<Protocol>>);

impl Upgrade {
    /// Sets the protocol, before the answer is sent.
    pub(crate) fn set(&self, protocol: Protocol) {
        *self.0.lock() = Some(protocol);
    }

    pub(crate) fn take(&self) -> Option<Protocol> {
        self.0.lock().take()
    }
}
