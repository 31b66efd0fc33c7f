//! The layer in real servers on loopback: axum, tonic, actix-web and plain hyper, under load of many
//! connections, and with clients that go away in the middle of an answer.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actix_server;
mod addresses;
mod axum_server;
mod both_sides;
mod client;
mod grpc;
mod hyper_server;
mod limits;
mod load;
#[path = "../../../../store/tests/redis/ports.rs"]
mod ports;
mod queues;
mod redis;
mod reports;
mod slow;
