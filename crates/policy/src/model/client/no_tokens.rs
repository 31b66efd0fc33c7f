//! No tokens: stands for `tokens.rs` without the feature `jwt`, so that `[jwt]` is refused.

use super::TokenSettings;
use crate::WallTime;

/// The tokens that are valid: `[jwt]`. There is no value without the feature `jwt`.
#[derive(Clone, Debug)]
pub struct Tokens(Absent);

/// Has no value.
#[derive(Clone, Copy, Debug)]
enum Absent {}

/// The claims of a valid token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VerifiedClaims {}

impl VerifiedClaims {
    pub(crate) fn claim(&self, _name: &str) -> Option<&str> {
        match *self {}
    }
}

impl Tokens {
    pub(crate) fn new(_settings: TokenSettings, _text: &str) -> Result<Self, String> {
        Err("this program was built without the feature `jwt`".into())
    }

    pub(crate) fn header(&self) -> &str {
        match self.0 {}
    }

    pub(crate) fn verify(&self, _token: &[u8], _wall: WallTime) -> Option<VerifiedClaims> {
        match self.0 {}
    }
}
