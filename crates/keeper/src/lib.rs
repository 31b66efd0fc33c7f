//! Rate limiting: policies, algorithms with proven bounds, and stores behind one call.
mod answer;
mod clock;
mod keeper;

pub use answer::{Answer, Outcome};
pub use clock::{Clock, ManualClock, SystemClock};
pub use keeper::{Keeper, Scope};
pub use ratekeeper_core as core;
pub use ratekeeper_policy as policy;
pub use ratekeeper_store as store;
