//! Ping: whether the servers answer, and what time it is there.

use std::time::Duration;

use ratekeeper_core::UnixMicros;

use super::node::Call;
use super::servers::no_answer;
use super::slot::SLOTS;
use super::{RedisStore, StoreError};
use crate::fallback::Remote;

/// Slots that are asked: with three primaries, one of each.
const ASKED: [u16; 3] = [0, SLOTS / 3 + 1, SLOTS / 3 * 2 + 2];

impl RedisStore {
    /// The server's clock, by the script that reads states: so scripts can be loaded and run,
    /// too. Of a cluster, the last of the nodes that were asked; all of them must answer.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if they do not answer within the deadline.
    pub async fn server_time(&self) -> Result<UnixMicros, StoreError> {
        let deadline = self.config.deadline;
        let asked = if self.servers.has_slots() {
            &ASKED[..]
        } else {
            &ASKED[..1]
        };
        let mut latest = UnixMicros::default();
        for &slot in asked {
            let server_clock = [Vec::new()];
            let call = Call {
                script: &self.scripts.load,
                keys: &[],
                arguments: &server_clock,
            };
            let found = tokio::time::timeout(deadline, self.find(slot, call)).await;
            let found = found.unwrap_or_else(|_| Err(no_answer(deadline)));
            latest = found
                .map_err(|trouble| StoreError::Unavailable(trouble.to_string()))?
                .now;
        }
        Ok(latest)
    }

    /// How long a call may take.
    pub const fn deadline(&self) -> Duration {
        self.config.deadline
    }
}

impl Remote for RedisStore {
    async fn ping(&self) -> Result<(), StoreError> {
        self.server_time().await.map(|_| ())
    }
}
