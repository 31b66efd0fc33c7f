//! The layer around a service of our own, in virtual time: what passes, what is refused and
//! how, who waits, and what is given back.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

mod adaptive;
mod holds;
mod lines;
mod policies;
mod readiness;
mod refusals;
mod stage;
mod stores;
