//! The policy language, and the policy that it compiles to: the limits that a request must pass.
//!
//! ```text
//!   text --config--> Policy --charges(facts, wall)--> [ (limit, key, cost, mode), ... ]
//!            |
//!            +--> diagnostics: every error at once, with line, caret and hint
//! ```
//!
//! Pure: no I/O, no clock.

pub mod config;
pub mod envoy;
mod http;
pub mod import;
mod model;
mod nginx_part;

pub use http::client_ip::{ClientIp, SocketTrust};
pub use http::header_style::HeaderStyle;
pub use http::network::network;
pub use http::path::{PathCase, normal_path};
pub use http::refusal::{Body, Refusal};
pub use http::unit::Unit;
pub use http::value_error::ValueError;
pub use model::*;
