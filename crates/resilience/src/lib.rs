//! The client side of rate limits: when to try, when to wait, when to stop.
//!
//! A server that refuses is protected only if its clients take no for an answer. Each piece
//! here answers one question of a client, without a clock, a socket or a task of its own:
//! it takes `now`, and a source of [`Random`] numbers where clients must not act alike.
//!
//! ```text
//!   may I try at all?        breaker
//! ```
//!
//! The pieces are independent: take one, or all of them in this order.

pub mod breaker;
mod error;
pub mod random;
mod sync;
mod tally;

pub use breaker::{Breaker, BreakerSettings, BreakerState, Permit, Refused};
pub use error::Error;
pub use random::{Random, SplitMix};
