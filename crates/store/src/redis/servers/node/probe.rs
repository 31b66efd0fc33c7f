//! Probe: whether a server that rests is back.
//!
//! ```text
//!   a call fails over  rk:{ada}:daily  three times in a row
//!   write              rk:{ada}:daily#   every PROBE --refused, no answer--> later again
//!                                                    \-> written, or another's slot: back
//! ```
//!
//! A server that is out of memory, or may not write, answers a PING like any other. So the
//! probe writes, beside a key of a call that failed, in the same slot.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::{Manner, REST, RedisNode, ScriptCall};
use crate::redis::name::beside;
use crate::redis::script::Script;
use crate::redis::trouble::Trouble;

/// Time between probes of a server that rests.
const PROBE: Duration = Duration::from_millis(100);

/// A server that rests, and the name that probes write.
pub(super) struct Probed {
    node: Weak<RedisNode>,
    name: Option<Vec<u8>>,
}

impl Probed {
    /// Creates the probe of a server that has failed over this key.
    pub(super) fn new(node: &Arc<RedisNode>, key: Option<&[u8]>) -> Self {
        Self {
            node: Arc::downgrade(node),
            name: key.map(beside),
        }
    }

    /// Probes until the server is back, or is dropped.
    pub(super) async fn until_back(self) {
        let script = Script::ping();
        loop {
            tokio::time::sleep(PROBE).await;
            let Some(node) = self.node.upgrade() else {
                return;
            };
            let answer = match &self.name {
                Some(name) => {
                    let keys = [&**name];
                    let write = ScriptCall::new(&script, &keys, &[]);
                    node.send_to(write, Manner::Plain).await
                }
                None => node.query(&redis::cmd("PING")).await,
            };
            let mut health = node.health.lock();
            match answer {
                Ok(_) => health.decides = Some(true),
                // Another node holds the slot by now; this one is there.
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
