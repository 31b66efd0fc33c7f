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

use crate::http::octets::values_of;
use crate::model::client::tokens::{Tokens, VerifiedClaims};
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
    verified: OnceLock<Option<VerifiedClaims>>,
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

    /// Verifies the token. A request with two headers has none, because the application may read
    /// the other one.
    fn verify(&self) -> Option<VerifiedClaims> {
        let mut values = values_of(self.headers, self.tokens.header());
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let (scheme, token) = value.split_at_checked(BEARER.len()).unwrap_or((b"", value));
        let token = match scheme.eq_ignore_ascii_case(BEARER) {
            true => token.trim_ascii(),
            false if self.tokens.header() == "authorization" => return None,
            false => value,
        };
        self.tokens.verify(token, self.wall)
    }
}

/// Scheme of RFC 6750; the only one of `authorization`, and optional in other headers.
const BEARER: &[u8] = b"Bearer ";

impl Claims for LazyClaims<'_> {
    fn claim(&self, name: &str) -> Option<&str> {
        let verified = self.verified.get_or_init(|| self.verify());
        verified.as_ref()?.claim(name)
    }
}

/// Shows neither the token nor its claims.
impl fmt::Debug for LazyClaims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyClaims").finish_non_exhaustive()
    }
}
