//! What is known of the client of a request: its address, country and token.

pub(crate) mod claims;
pub(crate) mod geo;
#[cfg_attr(not(feature = "jwt"), path = "no_tokens.rs")]
pub(crate) mod tokens;
