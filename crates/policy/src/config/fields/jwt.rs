//! Fields of `[jwt]`: the tokens that are valid.

use super::MAX_ALGORITHMS;
use crate::config::document::shape::{List, TEXT, fields, pattern};

fields! {
    pub(super) JWT = "`[jwt]`" {
        required keys: pattern("^file:.+$"), "\"file:jwks.json\"",
            "File with the keys: a JWK set, a public key in PEM, or a shared secret; read again \
             when it changes.";
        required algorithms: List(MAX_ALGORITHMS), "[\"ES256\"]",
            "Algorithms of valid signatures: RS256, RS384, RS512, PS256, PS384, PS512, ES256, \
             ES384, EdDSA, or HS256, HS384, HS512 with a shared secret.";
        optional issuer: TEXT, "\"https://issuer.example\"",
            "Value of `iss` that a token must have (default: any).";
        optional audience: TEXT, "\"api\"",
            "Value that `aud` of a token must be or contain (default: any).";
        optional header: TEXT, "\"x-token\"",
            "Header with the token (default authorization, behind Bearer).";
    }
}
