//! The client side of rate limits: when to try, when to wait, when to stop.
//!
//! A server that refuses is protected only if its clients obey. Each piece here answers one
//! question of a client, without a clock, a socket or a task of its own: it takes `now`, and a
//! source of [`Random`] numbers where clients must not act alike.
//!
//! ```text
//!   before the call     is there time left?           Deadline
//!                       is too much at work?          AdaptiveConcurrency
//!                       is it worth trying?           Throttle, or Breaker
//!                       is the server near its end?   Pacing
//!   it failed           may it be done twice?         Failure, Effect
//!                       did the server say when?      RetryAfter
//!                       may this call go again?       Attempts
//!                       may all calls together?       Budget
//!   work that can wait  refused requests              Requeue
//!                       what takes long               Polling, PollPace
//!                       what runs every hour          schedule
//! ```
//!
//! The pieces are independent: take one, or all of them in this order. With a runtime of tokio
//! they are composed already: `retry` for any future, `tower` for HTTP clients.
//!
//! The layer reuses other crates: it implements the traits of `tower` for the types of `http`,
//! sleeps with `tokio`, and wraps `hyper-util` or `reqwest`. The pieces are our own, because each
//! must run in virtual time: `backon` and `reqwest-middleware` sleep by themselves, `reqwest-retry`
//! ignores `Retry-After`, tower's budget loops over the time that it was idle, and `failsafe` is no
//! longer maintained.
//!
//! ```
//! use std::time::Duration;
//! use ratekeeper_resilience::*;
//!
//! let budget = Budget::new(BudgetSettings::default()).unwrap(); // one for all calls
//! let mut random = SplitMix::seeded();
//! let mut now = Time::ZERO; // your clock: Time::ZERO + started.elapsed().into()
//!
//! let deadline = Deadline::within(now, Duration::from_secs(30));
//! let mut attempts = Backoff::default().attempts();
//! budget.deposit(now);
//! // The first attempt is answered with 429 and this:
//! let hints = Hints { retry_after: Some("2"), ..Hints::default() };
//! let rules = RetryAfter::default();
//! let wait = match rules.parse(hints, now, Origin::UNIX) {
//!     ServerWait::Wait(wait) => attempts.next_after(rules.spread(wait, &mut random)),
//!     ServerWait::Beyond(_) => None, // it does not want to be asked again soon
//!     ServerWait::Nothing => attempts.next_wait(&mut random),
//! };
//! let wait = wait.filter(|&wait| deadline.allows(now, wait, Typical::default()));
//! if let Some(wait) = wait && budget.withdraw(now) {
//!     now = now + wait; // sleep; then the second attempt
//! }
//! assert!(now >= Time::ZERO + Nanos::from_secs(2));
//! ```

pub mod adaptive;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod deadline;
mod error;
mod http_date;
pub mod idempotency;
pub mod pacing;
pub mod polling;
pub mod random;
pub mod rate_limit;
pub mod requeue;
#[cfg(feature = "tokio")]
pub mod retry;
pub mod retry_after;
pub mod schedule;
mod sync;
mod tally;
pub mod throttle;
#[cfg(feature = "tower")]
pub mod tower;

pub use adaptive::{
    AdaptiveConcurrency, AdaptivePermit, AdaptiveSettings, Aimd, Bounds, End, Gradient, Law, Level,
    Sample, Vegas,
};
pub use backoff::{Attempts, Backoff, Jitter};
pub use breaker::{Breaker, BreakerSettings, BreakerState, CallPermit, Refused};
pub use budget::{Budget, BudgetSettings};
pub use deadline::{Deadline, Typical};
pub use error::Error;
pub use idempotency::{Effect, Failure};
pub use pacing::Pacing;
pub use polling::{PollPace, Polling};
pub use random::{Random, SplitMix};
pub use rate_limit::{RateLimit, RateLimitPolicy};
pub use ratekeeper_core::{Nanos, Origin, Time};
pub use requeue::{Next, Requeue, Ticket};
#[cfg(feature = "tokio")]
pub use retry::{CallError, CallSettings, Guard, Retry, retry, retry_if};
pub use retry_after::{Hints, RetryAfter, ServerWait};
pub use throttle::{Throttle, ThrottleSettings};

/// The code of the guide compiles and runs.
#[cfg(all(doctest, feature = "reqwest"))]
#[doc = include_str!("../clients.md")]
struct Guide;
