//! What is known of the client of a request: its address, country and token.

pub(crate) mod claims;
pub(crate) mod geo;
#[cfg_attr(not(feature = "jwt"), path = "no_tokens.rs")]
pub(crate) mod tokens;

/// `[jwt]`, as written.
#[derive(Clone, Debug, Default)]
#[cfg_attr(
    not(feature = "jwt"),
    expect(dead_code, reason = "read by `Tokens` with the feature")
)]
pub(crate) struct TokenSettings {
    pub(crate) algorithms: Vec<String>,
    pub(crate) issuer: Option<String>,
    pub(crate) audience: Option<String>,
    /// In lower case.
    pub(crate) header: String,
}
