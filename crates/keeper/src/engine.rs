//! Engine: the limits of a request, as a text of many limits describes them.
//!
#![doc = include_str!("policy.md")]

mod answer;
mod call;
pub(crate) mod decision_id;
mod denials;
pub(crate) mod keeper;
mod loan;
#[cfg(feature = "redis")]
mod open;
mod outcome;
mod policy_files;
#[cfg(any(feature = "redis", feature = "tower"))]
pub(crate) mod policy_text;
mod rate_limit;
#[cfg(feature = "redis")]
mod redis_settings;
pub(crate) mod reporting;
pub(crate) mod reservations;
mod response;
mod scope;

pub use crate::permit::{NoPermit, Permit};
pub use crate::report::{LimitReport, LimitReports};
pub use answer::Answer;
pub use call::{Act, Answers, Asked};
pub use decision_id::{DecisionId, NoDecisionId};
pub use keeper::{Keeper, MAX_REPLACED};
#[cfg(feature = "redis")]
pub use open::OpenError;
pub use outcome::Outcome;
pub use policy_files::read_policy_files;
pub use rate_limit::RateLimitError;
pub use ratekeeper_policy::Report;
#[cfg(feature = "redis")]
pub use redis_settings::{read_secret, redis_config};
pub use reporting::Reported;
pub use reservations::{ExpiredReservations, ReservationCounts, Reservations};
pub use scope::Scope;
