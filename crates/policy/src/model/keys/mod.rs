//! Whose requests a limit counts together: keys, and other numbers for some of them.

pub(crate) mod by_hand;
pub(crate) mod key_bytes;
pub(crate) mod key_part;
pub(crate) mod key_share;
pub(crate) mod key_writer;
pub(crate) mod overrides;
pub(crate) mod plan;
pub(crate) mod stated;
pub(crate) mod value;
pub(crate) mod variants;
