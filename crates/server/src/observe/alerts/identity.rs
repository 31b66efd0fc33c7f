//! Identity: names an alert by its limit, its key and its start.
//!
//! ```text
//!   id = HMAC-SHA256(secret, limit, key, start / `for`), the first 16 bytes
//! ```
//!
//! A key cannot start twice within `for`, so that no two alerts of a process have one id. Processes
//! with the same secret that share a store, and found the key above within the same span of `for`,
//! give its alert the same id: receivers may drop the second. A start at the border of two spans
//! has two ids.
//!
//! The hash is keyed, because an address could otherwise be found from its hash in the log by
//! trying all of them.

use std::fmt::Write as _;
use std::sync::Arc;

use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key};

use crate::StartError;

/// Bytes of an id: two of them are equal by chance once in 2^64 alerts.
const ID_BYTES: usize = 16;

/// Bytes of the hash of a value: two of a million values are equal by chance once in 10^7 cases.
pub(crate) const HASH_BYTES: usize = 8;

/// Names alerts, and hashes values of keys.
#[derive(Debug)]
pub(crate) struct Identity(Key);

impl Identity {
    /// Creates the names of processes with that key; of this process alone without one.
    pub(crate) fn new(shared: Option<&Key>) -> Result<Self, StartError> {
        if let Some(key) = shared {
            return Ok(Self(key.clone()));
        }
        let mut own = [0; 32];
        getrandom::fill(&mut own).map_err(|why| StartError::Alerts(why.to_string()))?;
        Ok(Self(Key::new(HMAC_SHA256, &own)))
    }

    pub(super) fn id(&self, limit: &str, key: &[u8], span: u64) -> Arc<str> {
        let mut context = Context::with_key(&self.0);
        // Names have no zero byte and the span has eight bytes, so no two triples are one text.
        for part in [
            b"alert\0",
            limit.as_bytes(),
            b"\0",
            &span.to_le_bytes(),
            key,
        ] {
            context.update(part);
        }
        hex(context, ID_BYTES).into()
    }

    /// Returns a hash of a value of a key.
    pub(crate) fn key_hash(&self, value: &str) -> String {
        let mut context = Context::with_key(&self.0);
        context.update(b"key\0");
        context.update(value.as_bytes());
        hex(context, HASH_BYTES)
    }
}

fn hex(context: Context, bytes: usize) -> String {
    let mut text = String::with_capacity(2 * bytes);
    for byte in context.sign().as_ref().iter().take(bytes) {
        let _ = write!(text, "{byte:02x}"); // a string takes everything
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_depends_on_secret_limit_key_and_span() {
        let identity = |secret: &[u8]| Identity(Key::new(HMAC_SHA256, secret));
        let id = identity(b"s").id("l", b"k", 7);
        assert_eq!(id.len(), 2 * ID_BYTES);
        assert_eq!(id, identity(b"s").id("l", b"k", 7));
        for other in [
            identity(b"t").id("l", b"k", 7),
            identity(b"s").id("m", b"k", 7),
            identity(b"s").id("l", b"j", 7),
            identity(b"s").id("l", b"k", 8),
            Identity::new(None).unwrap().id("l", b"k", 7),
        ] {
            assert_ne!(id, other);
        }
    }
}
