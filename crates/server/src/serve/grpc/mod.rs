//! gRPC: calls over HTTP/2, as few steps from the socket to the answer as can be.
//!
//! ```text
//!   socket --h2--> every request that has arrived --> served where it stands --> one write
//!                                                 \-> has to wait: a task of its own
//! ```
//!
//! A decision of the memory store needs no waiting, so the task that reads a connection answers
//! most of its calls: no task is made for a call, and the answers to all calls of one read leave
//! in one write.
//!
//! # Speed
//!
//! Processor time of the service for each decision, one key, `h2load -c10 -m10`, on a
//! two-core machine that was busy with other work (`ratekeeper-benches -- grpc --quick`):
//!
//! ```text
//!   allowed 5.0 us, refused 5.3 us; a bare tonic service that answers a constant 10.0 us
//! ```
//!
//! * Source: "gRPC over HTTP2" (grpc/grpc, `doc/PROTOCOL-HTTP2.md`); RFC 9113.

mod call;
mod connection;
mod frame;
mod status;
mod timeout;

pub(crate) use call::GrpcCall;
pub(crate) use connection::{ServeCalls, lingered, serve};
pub(crate) use status::{Code, GrpcStatus};
