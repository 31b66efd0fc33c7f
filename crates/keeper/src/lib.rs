//! Rate limiting: policies, algorithms with proven bounds, and stores behind one call.
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
mod loan;
mod permit;
pub mod problem;
mod rate_limit;

pub use answer::{Answer, Outcome};
pub use call::{Act, Answers, Asked};
pub use clock::{Clock, ManualClock, SystemClock};
pub use keeper::{Keeper, MAX_REPLACED, Scope};
pub use permit::{NoPermit, Permit};
pub use rate_limit::RateLimitError;
pub use ratekeeper_core as core;
pub use ratekeeper_policy as policy;
pub use ratekeeper_store as store;
