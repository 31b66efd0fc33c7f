//! Import: other services' limits as a native policy, and a list of unsupported features.
//!
//! ```text
//!   files --load--> rules --one by one--> [[limit]] --parse--> kept, or a comment
//!                                 |
//!                                 +--> unsupported: each lost feature, and its place
//! ```
//!
//! Every limit is read by the parser of the language before it is written, so the output is a
//! valid policy.

mod limitador;
mod limits;
mod ratelimit;

pub use limitador::limitador;
pub use ratelimit::ratelimit;

/// A policy made of another service's limits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Imported {
    /// The policy: TOML, with comments.
    pub text: String,
    /// Number of limits in it.
    pub limits: usize,
    /// Features that could not be expressed: one line each, which is a comment in the text too.
    pub unsupported: Vec<String>,
}
