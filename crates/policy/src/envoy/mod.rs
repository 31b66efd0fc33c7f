//! Envoy: the rate limit service's configuration files, unchanged, and their semantics.
//!
//! ```text
//!   files --load--> Config --plan(call)--> [ (counter, key, cost), ... ] --store--> decisions
//!                                                                             |
//!                             Answer { overall, statuses, hits } <--answer----+
//! ```
//!
//! The semantics are those of the Go service that Envoy's users run today, not those of the
//! native policy language:
//!
//! * fixed windows only, aligned to 1970; over when the count *after* the call exceeds the limit,
//!   so a look at an exhausted limit passes with nothing remaining;
//! * denied hits are counted;
//! * descriptors of one call are decided and counted each on its own: a call is not all-or-none
//!   here.
//!
//! So the store is only asked to count: every charge goes to a counter of one domain and one unit
//! that is never full, and the answer compares the count with the limit of the rule. That is why
//! an override can share the counter of a rule, and a rule can change its number, without
//! touching a state.
//!
//! Source: envoyproxy/ratelimit (2026), and the protos of Envoy's rate limit service, v3.

mod answer;
mod applies;
mod call;
mod config;
mod counters;
mod grant;
mod load;
mod plan;
mod read;
mod rule;
mod tree;
mod unit;
mod yaml;

pub use answer::{CounterSeries, CurrentLimit, DescriptorAnswer, EnvoyAnswer, EnvoyCode, Hits};
pub use call::{Direction, EnvoyCall, EnvoyCallError, EnvoyDescriptor, MAX_DESCRIPTORS, Override};
use config::Domain;
pub use config::EnvoyConfig;
pub use load::{File, LoadedConfig, load};
pub use plan::{Plan, PlannedCharges};
pub use rule::{EnvoyRateLimit, EnvoyRule, RuleId};
pub use unit::Unit;

pub use crate::model::settings::envoy::EnvoySettings;
