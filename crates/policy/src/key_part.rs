//! Key part: one word of a limit's `key` list.

use crate::ValueError;

/// Whom a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// `all`: everybody together; adds nothing to the key.
    All,
    /// `ip` (the client's address, IPv6 cut to the prefix), `ip/24`.
    Ip {
        /// Bits of an IPv4 address; none: all 32, and the policy's prefix for IPv6.
        bits: Option<u8>,
    },
    /// `path`: the normalised path.
    Path,
    /// `route`: the pattern of `match.path` that matched, or the path.
    Route,
    /// `method`
    Method,
    /// `host`
    Host,
    /// `header:X`
    Header(String),
    /// `cookie:X`
    Cookie(String),
    /// `query:X`
    Query(String),
    /// `api_key`: header `x-api-key`, else a bearer token; only its hash is kept.
    ApiKey,
    /// `attr:X`
    Attribute(String),
}

impl KeyPart {
    /// Reads `ip`, `ip/24`, `header:x-user-id`, ...
    pub fn parse(_text: &str) -> Result<Self, ValueError> {
        todo!()
    }
}

impl std::fmt::Display for KeyPart {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}
