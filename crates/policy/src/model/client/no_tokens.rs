//! No tokens: stands for `tokens.rs` without the feature `jwt`, so that `[jwt]` is refused.

use crate::WallTime;

/// `[jwt]`, as written.
#[derive(Clone, Debug, Default)]
#[expect(dead_code, reason = "read by `Tokens` with the feature")]
pub(crate) struct TokenSettings {
    pub(crate) algorithms: Vec<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) audience: Option<String>,
    pub(crate) header: String,
}

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
