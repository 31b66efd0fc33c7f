//! Import: the limits of nginx as a native policy, and a list of unsupported features.
//!
//! ```text
//!   nginx --read--> areas, limits --> [[limit]], [[exempt]] --parse--> kept, or a comment
//!             |
//!             +--> unsupported: each lost feature, and its place
//! ```
//!
//! Every table is read by the parser of the language before it is written, so the output is a
//! valid policy.

mod areas;
mod limits;
mod nginx;

pub use nginx::nginx;

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
