//! Policy: the limits of a policy around a service, and for a front end of its own.

mod by_policy;
mod decided;
mod facts;
mod inspect;
mod inspected;
mod layer;

pub use by_policy::ByPolicy;
pub use decided::{Decided, RequestGuard, refusal};
pub use facts::target;
pub use inspect::{Inspect, InspectFuture, InspectLayer};
pub use inspected::{InspectedBody, InspectedBytes, MAX_INSPECTED_BODY};
pub use layer::PolicyError;
