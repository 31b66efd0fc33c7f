//! Rate limiting: policies, algorithms with proven bounds, and stores behind one call.
//!
//! # One limit
//!
//! ```
//! use ratekeeper::Limiter;
//!
//! let limiter = Limiter::per("100/1m")?;
//! let decision = limiter.check();
//! if let Some(wait) = decision.verdict.retry_after() {
//!     eprintln!("come back in {wait}");
//! }
//! # Ok::<(), ratekeeper::core::Error>(())
//! ```
//!
//! Three verbs ask a [`Limiter`] for permits. They differ in what they do when there are
//! none:
//!
//! | verb | when there are none | for |
//! |---|---|---|
//! | [`check`](Limiter::check) | says no, and when to come back | requests that may be refused |
//! | [`acquire`](Limiter::acquire), [`acquire_blocking`](Limiter::acquire_blocking) | waits in line, first come, first served | work that must be done, by a task or a thread |
//! | [`reserve`](Limiter::reserve) | promises a later moment, charged now | work that is planned |
//!
//! [`KeyedLimiter`] has a limit for each key. `try_acquire` waits for no longer than it is told. See the module [`limiter`]. Callers that
//! come from Guava find its limiter as [`SmoothRateLimiter`].
//!
//! # A policy
//!
//! A request flows one way: facts, policy, store, answer.
//!
//! ```
//! use ratekeeper::core::{Nanos, Origin};
//! use ratekeeper::policy::{Facts, config};
//! use ratekeeper::store::{MemoryConfig, MemoryStore};
//! use ratekeeper::{Keeper, ManualClock, Scope};
//!
//! let policy = r#"
//!     version = 1
//!     [[limit]]
//!     name  = "per-user"
//!     key   = ["attr:user"]
//!     limit = "2/1s"
//!     algorithm = "gcra"
//! "#;
//! let clock = ManualClock::at(Origin::UNIX);
//! let loaded = config::parse(policy, config::Context { origin: Origin::UNIX }).unwrap();
//! let keeper = Keeper::new(loaded.policy, MemoryStore::new(MemoryConfig::default()), clock);
//!
//! let ann = Facts { attributes: &[("user", "ann")], ..Facts::default() };
//! assert!(keeper.check_now(&ann, Scope::All).allowed());
//! assert!(keeper.check_now(&ann, Scope::All).allowed());
//! let third = keeper.check_now(&ann, Scope::All);
//! assert!(!third.allowed());
//! assert_eq!(third.retry_after(), Some(Nanos::from_millis(500)));
//! ```

mod answer;
mod call;
mod clock;
mod counter;
pub mod headers;
mod keeper;
mod keyed;
pub mod limiter;
mod loan;
mod permit;
pub mod problem;
mod rate_limit;
mod smooth;
#[cfg(feature = "tower")]
pub mod tower;

pub use answer::{Answer, Outcome};
pub use call::{Act, Answers, Asked};
pub use clock::{Block, Clock, ManualClock, SystemClock, Timer};
pub use keeper::{Keeper, MAX_REPLACED, Scope};
pub use keyed::{KeyedLimiter, KeyedReservation, MostWaiting};
pub use limiter::{Limiter, Reservation, WaitError};
pub use permit::{NoPermit, Permit};
pub use rate_limit::RateLimitError;
pub use ratekeeper_core as core;
pub use ratekeeper_policy as policy;
pub use ratekeeper_store as store;
pub use smooth::SmoothRateLimiter;
