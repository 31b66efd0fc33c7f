//! Tower: limits as a layer for HTTP services of axum, tonic, actix-web and plain hyper.
//!
//! ```text
//!   request --> gate --allowed--> service --> answer + RateLimit fields
//!                |                              |
//!                |                              body: holds what concurrency lends
//!                |
//!                '--refused--> 429 or 503, Retry-After, RateLimit, problem+json
//!                              gRPC: RESOURCE_EXHAUSTED or UNAVAILABLE, with RetryInfo
//!                              no key: 400 or 500, gRPC: INVALID_ARGUMENT or INTERNAL
//! ```
//!
//! | limit | made by |
//! |---|---|
//! | one limit for all requests, refusing or with a line | [`RateLimitLayer::new`], [`queue`](RateLimitLayer::queue) |
//! | a limit for each user, token, address | [`RateLimitLayer::keyed`], with a [`KeySource`]: [`by_address`], [`by_header`] |
//! | several of these, charged together, also on Redis | [`RateLimitLayer::together`], with [`Limits`](crate::Limits) |
//! | a policy, with the feature `policy` | [`RateLimitLayer::policy`], [`policy_text`](RateLimitLayer::policy_text), [`policy_file`](RateLimitLayer::policy_file) |
//! | requests at work at once | [`RateLimitLayer::in_flight`]; `concurrency` in a policy or a [`KeyedLimiter`](crate::KeyedLimiter) |
//! | the same, adapted to the capacity of the server | [`RateLimitLayer::adaptive`] |
//!
//! * A front end that renders responses itself, such as a proxy, asks by [`ByPolicy::decide`].
//! * The same layer is a middleware of actix-web: `for_actix`, with the feature `actix`.
//! * Everything is shared by clones: a layer may be cloned for each route, a service for each
//!   connection.
//! * `poll_ready` is the inner service's: it neither sleeps nor takes anything. Decisions
//!   are made by `call`, where the request is known; in memory, at once.
//! * A client's address is its connection's. Behind proxies it is the one that a *trusted*
//!   proxy reports, read from the right; `X-Forwarded-For` of other peers is ignored.
//! * Refusals are responses, never errors: the error type is the inner service's.
//! * A layer inside a nested router sees the remaining path.
//!
//! ```
//! use ratekeeper::KeyedLimiter;
//! use ratekeeper::tower::{Peer, RateLimitLayer, by_address};
//! use tower_layer::Layer;
//!
//! # fn my_service() {}
//! let address = by_address::<Peer>(); // in axum: by_address::<ConnectInfo<SocketAddr>>()
//! let layer = RateLimitLayer::keyed(KeyedLimiter::per("100/1m")?, address).named("per-address");
//! let service = layer.layer(my_service()); // or, in axum: router.layer(layer)
//! # Ok::<(), ratekeeper::core::Error>(())
//! ```

#[cfg(feature = "actix")]
mod actix;
mod body;
mod denial;
mod described;
mod future;
mod gate;
mod grpc;
mod head;
mod hold;
mod key_source;
mod layer;
mod ledger;
mod pass;
#[cfg(feature = "policy")]
mod policy;
#[cfg_attr(not(feature = "policy"), path = "no_reporter.rs")]
mod reporter;
mod service;
mod settle;
mod shown;

#[cfg(feature = "actix")]
pub use actix::{ActixBody, ActixLimited, ForActix};
pub use body::LimitedBody;
pub use denial::Denial;
pub use future::ResponseFuture;
pub use gate::Gate;
pub use gate::adaptive::Adaptive;
pub use gate::counted::Counted;
pub use gate::in_flight::InFlight;
pub use gate::keyed::Keyed;
pub use gate::single::Single;
pub use gate::together::{LimitBy, Together};
pub use grpc::grpc_failure;
pub use head::RequestHead;
pub use key_source::by_address::{ByAddress, address_key, by_address, by_address_from};
pub use key_source::by_part::{ByExtension, ByHeader, ByPath, by_extension, by_header, by_path};
pub use key_source::no_key::NoKey;
pub use key_source::peer::Peer;
pub use key_source::{KeyOr, KeyOrShared, KeySource};
pub use layer::RateLimitLayer;
#[cfg(feature = "policy")]
pub use policy::*;
pub use service::RateLimited;
pub use settle::Counts;

/// The parts of an [adaptive](RateLimitLayer::adaptive) limit.
pub use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Bounds, End, Error as AdaptiveError, Gradient,
    Law, Vegas,
};
