//! No tokens: stands for `tokens.rs` without the feature `jwt`, so that `[jwt]` is refused.

use std::convert::Infallible;

use serde_json::{Map, Value};

use super::TokenSettings;
use crate::WallTime;

/// The tokens that are valid: `[jwt]`. There is no value without the feature `jwt`.
#[derive(Clone, Debug)]
pub struct Tokens(Infallible);

impl Tokens {
    pub(crate) fn new(_settings: TokenSettings, _text: &str) -> Result<Self, String> {
        Err("this program was built without the feature `jwt`".into())
    }

    pub(crate) fn header(&self) -> &str {
        match self.0 {}
    }

    pub(crate) fn verify(&self, _token: &[u8], _wall: WallTime) -> Option<Map<String, Value>> {
        match self.0 {}
    }
}
