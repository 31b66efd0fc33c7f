//! The layer around a service of our own, in virtual time: requests that pass, that are refused,
//! or that wait, and permits that are given back; and the layer in real servers.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod adaptive;
mod allocations;
mod bodies;
mod goodput;
mod holds;
mod keys;
mod lines;
mod policies;
mod readiness;
mod refusals;
mod reports;
mod servers;
mod stage;
mod stores;
mod together;
