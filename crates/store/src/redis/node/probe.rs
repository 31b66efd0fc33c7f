//! Probe: whether a server that is left alone is back.
//!
//! ```text
//!   a call fails over  rk:{ada}:daily  three times in a row
//!   write              rk:{ada}:daily?   every PROBE --refused, no answer--> later again
//!                                                    \-> written, or another's slot: back
//! ```
//!
//! A server that is out of memory, or may not write, answers a PING like any other. So it is
//! asked to write, beside a key of a call that failed: that is of the same slot.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{Manner, REST, RedisNode, ScriptCall};
use crate::redis::script::Script;
use crate::redis::trouble::Trouble;

/// How often a server that is left alone is asked.
const PROBE: Duration = Duration::from_millis(100);
/// Ends the name that it is asked to write; no limit's key ends so.
const MARK: &[u8] = b"?";

/// A server that is left alone, and what it is asked to write.
pub(super) struct Probed {
    node: Weak<RedisNode>,
    name: Option<Vec<u8>>,
}

impl Probed {
    /// A server that has failed over this key.
    pub(super) fn new(node: &Arc<RedisNode>, key: Option<&[u8]>) -> Self {
        Self {
            node: Arc::downgrade(node),
            name: key.map(|key| [key, MARK].concat()),
        }
    }

    /// Asks until it is back, or nobody needs it.
    pub(super) async fn until_back(self) {
        let script = Script::ping();
        loop {
            tokio::time::sleep(PROBE).await;
            let Some(node) = self.node.upgrade() else {
                return;
            };
            let answer = match &self.name {
                Some(name) => {
                    let write = ScriptCall {
                        script: &script,
                        keys: &[name],
                        arguments: &[],
                    };
                    node.send_to(write, Manner::Plain).await
                }
                None => node.query(&redis::cmd("PING")).await,
            };
            let mut health = node.health.lock();
            match answer {
                Ok(_) => health.decides = Some(true),
                // Others hold the slot by now; it is there.
                Err(Trouble::Moved { .. } | Trouble::Ask { .. }) => health.decides = None,
                Err(_) => {
                    health.rests_until = Some(Instant::now() + REST);
                    continue;
                }
            }
            health.is_well();
            return;
        }
    }
}

impl Drop for Probed {
    fn drop(&mut self) {
        if let Some(node) = self.node.upgrade() {
            node.health.lock().is_probed = false;
        }
    }
}
