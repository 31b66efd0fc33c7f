//! Workloads played against limits, in virtual time or in real time.
//!
//! ```text
//!   Workload ---> play ---> Report ---> rows, plot, svg
//!   (arrivals,      |
//!    clients)    Bench: one limit, many keys
//! ```
//!
//! Everything is a function of the workload, its seed and the limit: the same call gives the
//! same report on every machine, unless real time is asked for.

pub mod arrivals;

mod axis;
mod bench;
pub mod compared;

mod play;

pub mod plot;
mod random;
mod report;
mod series;

pub mod svg;
pub mod workload;

pub use axis::rate;
pub use bench::{Bench, KeyId, MAX_KEYS};
pub use play::{DROUGHT, MAX_DECISIONS, play};
pub use report::{AdmissionCounts, Report, ReportRow, Stop};
pub use series::{Bin, CountSeries};
pub use workload::Workload;
