//! Which limits a request must pass: the policy language, and what it compiles to.
//!
//! ```text
//!   text --config--> Policy --charges(facts)--> [ (limit, key, cost, mode), ... ]
//!            |
//!            +--> diagnostics: every error at once, with line, caret and hint
//! ```
//!
//! Pure: no I/O, no clock.

pub mod calendar;
pub mod config;
mod facts;
mod identify;
mod policy;
mod rule;

pub use facts::Facts;
pub use identify::ClientIp;
pub use policy::{Charges, Entry, Policy};
pub use rule::{
    Body, Cost, Exemption, Field, HeaderStyle, KeyPart, Listen, Matcher, MissingKey, Pattern,
    Refusal, Rule, RuleMode, Settings, ValueError,
};
