//! The policy language, and the policy that it compiles to: the limits that a request must pass.
//!
//! ```text
//!   text --config--> Policy --charges(facts, wall)--> [ (limit, key, cost, mode), ... ]
//!            |
//!            +--> diagnostics: every error at once, with line, caret and hint
//! ```
//!
//! Pure: no I/O, no clock.
//!
//! Without the feature `language`, only the types remain that a layer of `ratekeeper` needs for
//! limits made in code: [`ClientIp`], [`network`], [`normal_path`], [`Refusal`], [`HeaderStyle`].

#[cfg(feature = "language")]
pub mod config;
#[cfg(feature = "language")]
pub mod envoy;
#[cfg_attr(
    not(feature = "language"),
    expect(
        dead_code,
        reason = "the language reads more of a request than a layer does"
    )
)]
mod http;
#[cfg(feature = "language")]
pub mod import;
#[cfg(feature = "language")]
mod model;
#[cfg(feature = "language")]
mod nginx_part;

pub use http::client_ip::{ClientIp, SocketTrust};
pub use http::header_style::HeaderStyle;
pub use http::network::network;
pub use http::path::{PathCase, normal_path};
pub use http::refusal::{Body, Refusal};
pub use http::unit::Unit;
pub use http::value_error::ValueError;
#[cfg(feature = "language")]
pub use model::*;
