//! The client side of rate limits: when to try, when to wait, when to stop.
//!
//! A server that refuses is protected only if its clients take no for an answer. Each piece
//! here answers one question of a client, without a clock, a socket or a task of its own:
//! it takes `now`, and a source of [`Random`] numbers where clients must not act alike.
//!
//! ```text
//!   may I try at all?        throttle, or breaker
//!   it failed: again?        budget (all calls), backoff (this call)
//!   when?                    backoff
//! ```
//!
//! The pieces are independent: take one, or all of them in this order.

pub mod backoff;
pub mod breaker;
pub mod budget;
mod error;
pub mod random;
mod sync;
mod tally;
pub mod throttle;

pub use backoff::{Attempts, Backoff, Jitter};
pub use breaker::{Breaker, BreakerSettings, BreakerState, Permit, Refused};
pub use budget::{Budget, BudgetSettings};
pub use error::Error;
pub use random::{Random, SplitMix};
pub use throttle::{Throttle, ThrottleSettings};
