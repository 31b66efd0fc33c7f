//! Claims: the claims of a request's token, which is verified when the first is asked for.
//!
//! ```text
//!   facts --> jwt.plan, jwt:sub asked? --no--> nothing is verified
//!                     |yes
//!             verified already? --no--> Tokens::verify, once
//!                     |yes                  |
//!                     +---------------------+--> the claim, or nothing
//! ```

use std::fmt;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::http::octets::values_of;
use crate::model::client::tokens::Tokens;
use crate::model::keys::stated::{BEARER, tokens};
use crate::{Facts, WallTime};

/// Claims about a request, from a token that has been verified.
pub trait Claims: fmt::Debug + Sync {
    /// Returns the value of a claim; `None` without a valid token, or without this claim.
    fn claim(&self, name: &str) -> Option<&str>;
}

/// The claims of a request whose token is verified when the first of them is asked for.
pub(crate) struct LazyClaims<'a> {
    tokens: &'a Tokens,
    headers: &'a [(&'a str, &'a [u8])],
    wall: WallTime,
    verified: OnceLock<Option<Map<String, Value>>>,
}

impl<'a> LazyClaims<'a> {
    pub(crate) fn new(tokens: &'a Tokens, facts: &Facts<'a>, wall: WallTime) -> Self {
        Self {
            tokens,
            headers: facts.headers,
            wall,
            verified: OnceLock::new(),
        }
    }

    /// Verifies the token: of several, the first that is valid, because the application may read
    /// it, and a request without any might pay nothing.
    fn verify(&self) -> Option<Map<String, Value>> {
        let lines = values_of(self.headers, self.tokens.header());
        let mut found: Vec<&[u8]> = lines.flat_map(|line| tokens(line, BEARER)).collect();
        found.dedup();
        if found.len() > 2 * AT_AN_END {
            found.drain(AT_AN_END..found.len() - AT_AN_END);
        }
        let mut valid = found.iter();
        valid.find_map(|token| self.tokens.verify(token, self.wall))
    }
}

/// Number of tokens at each end of the header that are verified, if there are more: applications
/// read the first or the last.
const AT_AN_END: usize = 2;

impl Claims for LazyClaims<'_> {
    fn claim(&self, name: &str) -> Option<&str> {
        let verified = self.verified.get_or_init(|| self.verify());
        verified.as_ref()?.get(name)?.as_str()
    }
}

/// Shows neither the token nor its claims.
impl fmt::Debug for LazyClaims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyClaims").finish_non_exhaustive()
    }
}
