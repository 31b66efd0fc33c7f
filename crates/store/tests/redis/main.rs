//! The Redis store against real servers.
#![cfg(feature = "redis")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stdout,
    reason = "skipped tests and the number of comparisons are printed"
)]

mod bans;
mod calls;
#[path = "../../../core/tests/algorithms/cases.rs"]
mod cases;
mod chains;
mod changes;
mod clock;
mod cluster_faults;
mod conforms;
mod crowds;
mod equality;
mod exact;
mod expiry;
mod faults;
mod hints;
mod load;
mod logins;
mod lowered;
mod ports;
mod punctual;
mod relay;
mod sentinel;
mod server;
mod spread;
mod tls;
mod together;
mod under_load;
