//! Stop signals: when the answers of a listener are its last, and when it accepts no more.
//!
//! A socket that the next process gets too is left late, once the requests from before the stop have
//! ended: until then the next process has not begun, and connections would wait.

use tokio::sync::watch;

/// The signals of a stop.
#[derive(Clone, Debug)]
pub(crate) struct StopSignals {
    /// Each answer from now on is the last of its connection.
    pub(crate) stop: watch::Receiver<bool>,
    /// Sockets that the next process gets are its own from now on.
    pub(crate) leave: watch::Receiver<bool>,
}

impl StopSignals {
    /// Returns the sender of the stop, and the signals before it.
    pub(crate) fn before(leave: &watch::Sender<bool>) -> (watch::Sender<bool>, Self) {
        let (sender, stop) = watch::channel(false);
        let leave = leave.subscribe();
        (sender, Self { stop, leave })
    }
}
