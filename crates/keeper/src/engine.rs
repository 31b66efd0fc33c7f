//! Engine: the limits of a request, as a text of many limits describes them.
//!
#![doc = include_str!("policy.md")]

pub use crate::answer::Answer;
pub use crate::call::{Act, Answers, Asked};
pub use crate::decision_id::{DecisionId, NoDecisionId};
pub use crate::keeper::{Keeper, MAX_REPLACED};
#[cfg(feature = "redis")]
pub use crate::open::OpenError;
pub use crate::outcome::Outcome;
pub use crate::permit::{NoPermit, Permit};
pub use crate::policy_files::read_policy_files;
pub use crate::rate_limit::RateLimitError;
#[cfg(feature = "redis")]
pub use crate::redis_settings::{read_secret, redis_config};
pub use crate::report::{LimitReport, LimitReports};
pub use crate::reporting::Reported;
pub use crate::reservations::{ExpiredReservations, ReservationCounts, Reservations};
pub use crate::scope::Scope;
pub use ratekeeper_policy::Report;
