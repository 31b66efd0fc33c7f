//! Signals: the levels that open and close elastic limits.

use ratekeeper_core::Nanos;
use ratekeeper_store::Store;

use crate::{Clock, Keeper};

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Sets the level of a signal, in parts per million (microseconds for a latency), for this time
    /// from now on. Returns false if no limit of the policy names the signal.
    pub fn set_signal(&self, name: &str, level: u32, lasts: impl Into<Nanos>) -> bool {
        let policy = self.look_at_policy();
        let mut signals = policy.signals();
        let signal = signals.find(|signal| signal.name() == name);
        let wall = self.wall(self.clock().now());
        signal
            .map(|signal| signal.set(level, wall, lasts))
            .is_some()
    }
}
