//! By hand: the table of the keys that operators banned or allowed, kept for all processes.
//!
//! ```text
//!   an act of an operator --replaces--> rk:{#by-hand}, one value: a version, and bytes of the caller
//!   each process, once a second ------> the bytes, if the version is another
//! ```

use ratekeeper_core::Nanos;
use redis::Value;

use super::RedisStore;
use super::name;
use super::servers::node::ScriptCall;
use super::slot::slot_of;
use crate::StoreError;

impl RedisStore {
    /// Returns the table unless its version is `known`; no bytes if there is none. The version is
    /// in its first eight bytes, and zero without a table.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] if the server does not answer; [`StoreError::Misconfigured`] if
    /// it refuses.
    pub async fn by_hand(&self, known: u64) -> Result<Option<Vec<u8>>, StoreError> {
        self.run_by_hand(vec![version(known)]).await
    }

    /// Replaces the table of version `known` by one that is kept for a time; returns false if the
    /// version is another.
    ///
    /// # Errors
    /// As [`by_hand`](Self::by_hand).
    pub async fn set_by_hand(
        &self,
        known: u64,
        table: Vec<u8>,
        keep: Nanos,
    ) -> Result<bool, StoreError> {
        let keep = keep.as_millis_ceil().to_string().into_bytes();
        let found = self.run_by_hand(vec![version(known), table, keep]).await?;
        Ok(found.is_none())
    }

    async fn run_by_hand(&self, arguments: Vec<Vec<u8>>) -> Result<Option<Vec<u8>>, StoreError> {
        let name = name::by_hand(&self.config.prefix);
        let keys = [&*name];
        let call = ScriptCall::new(&self.scripts.by_hand, &keys, &arguments);
        match self.servers.run(slot_of(&name), call).await? {
            Value::BulkString(table) => Ok(Some(table)),
            Value::Nil => Ok(None),
            _ => Err(StoreError::Misconfigured(
                "unexpected reply to a table".into(),
            )),
        }
    }
}

fn version(known: u64) -> Vec<u8> {
    let bytes = known.to_le_bytes().to_vec();
    if known == 0 { Vec::new() } else { bytes }
}
