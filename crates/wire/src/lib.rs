//! Wire: the messages of Envoy's rate limit service, of gRPC health and reflection, and of OTLP.
//!
//! ```text
//!   proto/**/*.proto --tests/generated.rs--> src/generated/*.rs   messages
//!                                        \-> src/descriptors.bin  for reflection
//! ```
//!
//! The protos hold only the messages that the service reads or writes. The generated code
//! is checked in, so building needs neither `protoc` nor a build script. After a change of a proto,
//! `UPDATE=1 cargo test -p ratekeeper-wire --test generated` writes both anew; without `UPDATE` the
//! same test fails where they differ.
//!
//! Only the gRPC door and the exporter of OpenTelemetry ([`otlp`]) use these types.

mod bounds;
#[expect(
    missing_docs,
    unreachable_pub,
    clippy::pedantic,
    reason = "generated code; modules and enumerations of the protos have no comments"
)]
#[rustfmt::skip]
mod generated;

pub use bounds::{MAX_DESCRIPTORS, MAX_ENTRIES, MAX_REQUEST_BYTES, WireRefusal, read_request};
pub use generated::envoy::config::core::v3::HeaderValue;
pub use generated::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
pub use generated::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response,
};
pub use generated::envoy::r#type::v3::RateLimitUnit;
pub use generated::grpc::health::v1 as health;
pub use generated::grpc::reflection::v1 as reflection;

/// The OpenTelemetry protocol: metrics and log records.
pub mod otlp {
    pub use super::generated::opentelemetry::proto::collector::logs::v1 as logs_service;
    pub use super::generated::opentelemetry::proto::collector::metrics::v1 as metrics_service;
    pub use super::generated::opentelemetry::proto::common::v1 as common;
    pub use super::generated::opentelemetry::proto::logs::v1 as logs;
    pub use super::generated::opentelemetry::proto::metrics::v1 as metrics;
    pub use super::generated::opentelemetry::proto::resource::v1 as resource;
}

/// The proto files of the gRPC door and their imports, as an encoded `FileDescriptorSet` without
/// comments.
pub const DESCRIPTORS: &[u8] = include_bytes!("descriptors.bin");
