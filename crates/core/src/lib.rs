//! The algorithms of rate limiting as pure functions.
//!
//! Every limit is one function: `(state, now, cost) -> (state', decision)`. There is no clock in
//! it, no I/O, no lock and no allocation. Everything else in ratekeeper (the keyed store, the
//! service, simulation, waiting) is an adapter around it.
//!
//! ```
//! use ratekeeper_core::{Algorithm, Gcra, Permits, Quota, Time, Verdict};
//!
//! let quota: Quota = "2/1s".parse().unwrap();
//! let limit = Gcra::token_bucket(quota).unwrap();
//! let mut state = Default::default();
//! let now = Time::from_nanos(0);
//!
//! assert_eq!(limit.decide(&mut state, now, Permits::ONE).verdict, Verdict::Allow);
//! assert_eq!(limit.decide(&mut state, now, Permits::ONE).verdict, Verdict::Allow);
//! let third = limit.decide(&mut state, now, Permits::ONE);
//! assert!(matches!(third.verdict, Verdict::Deny { retry_after } if retry_after.as_millis_ceil() == 500));
//! ```
#![no_std]

extern crate alloc;
#[cfg(any(test, loom, feature = "testing"))]
extern crate std;

mod algorithm;
pub mod algorithms;
mod any;
mod call;
#[cfg(target_has_atomic = "64")]
mod cell;
#[cfg(all(target_has_atomic = "64", not(loom)))]
mod cell_limiter;
mod charge;
mod clock;
mod decision;
mod error;
#[cfg(any(test, feature = "testing"))]
pub mod laws;
mod limit;
#[cfg(any(test, feature = "testing"))]
pub mod oracles;
mod quota;
mod receipt;
mod refused;
#[cfg(feature = "serde")]
mod serde_forms;
mod share;
mod stored_form;
mod time;

pub use algorithm::{Algorithm, Denials, Lend, Refund, Reserve, WordState};
pub use algorithms::balance::{Balance, BalanceState, GrantId, Granted, MAX_GRANTS_KNOWN};
pub use algorithms::bans::{BanState, BanTerms, Banning, MAX_BAN, MAX_STRIKES, WithBans};
pub use algorithms::concurrency::{Concurrency, ConcurrencyState, LeaseId};
pub use algorithms::exponential::{Exponential, ExponentialState};
pub use algorithms::gcra::{Gcra, Paid, Tat};
pub use algorithms::hybrid::{Hybrid, HybridState};
pub use algorithms::interval::{Interval, IntervalState};
pub use algorithms::log::{Log, LogState};
pub use algorithms::quota_reset::{QuotaReset, QuotaResetState};
pub use algorithms::warm_up::{WarmUp, WarmUpState};
pub use algorithms::window::{
    Anchor, Buckets, Calendar, CalendarWindow, Counters, Edge, SubBuckets, Window, WindowState,
};
pub use any::{AlgorithmSet, AnyAlgorithm, AnyState, Listed, Reconfigure, Visitor};
pub use call::{Call, Unsupported};
#[cfg(target_has_atomic = "64")]
pub use cell::Cell;
#[cfg(all(target_has_atomic = "64", not(loom)))]
pub use cell_limiter::{CellGrant, CellLimiter};
pub use charge::{Charge, Key, KeyBuilder, KeySink, Mode};
pub use clock::Clock;
pub use decision::{Decision, Verdict};
pub use error::Error;
pub use limit::{Limit, LimitId, LimitKeys, LimitScope, Outage};
pub use quota::{Permits, Quota};
pub use receipt::Receipt;
#[cfg(all(target_has_atomic = "64", not(loom)))]
pub use receipt::Returns;
pub use refused::Refused;
pub use share::Share;
pub use stored_form::{EXPIRY_STEP_MICROS, KeptValue, LuaTwin, StoredForm, UnixMicros};
pub use time::{Nanos, Origin, Time};

/// The code of the README compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
