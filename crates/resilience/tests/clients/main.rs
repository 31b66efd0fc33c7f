//! Clients of a limited service: calls, retries, the layer, adaptive concurrency, a herd.
#![cfg(not(loom))]

mod adaptive;
mod calls;
mod herd;
mod layer;
mod retry;
