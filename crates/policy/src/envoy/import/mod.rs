//! Import: other services' limits as a native policy, and a list of what it cannot say.
//!
//! ```text
//!   files --load--> rules --one by one--> [[limit]] --parse--> kept, or a comment
//!                                 |
//!                                 +--> unsaid: what is lost, where
//! ```
//!
//! Every limit is read by the parser of the language before it is written, so what comes
//! out is a policy.

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
    /// How many limits it has.
    pub limits: usize,
    /// What could not be said: one line each, which stands as a comment in the text too.
    pub unsaid: Vec<String>,
}
