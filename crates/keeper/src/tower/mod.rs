//! Tower: limits as a layer for HTTP services, those of axum, tonic and plain hyper.
//!
//! ```text
//!   request --> gate --allowed--> service --> answer + RateLimit fields
//!                |                              |
//!                |                              body: holds what concurrency lends
//!                |
//!                '--refused--> 429 or 503, Retry-After, RateLimit, problem+json
//!                              gRPC: RESOURCE_EXHAUSTED or UNAVAILABLE, with RetryInfo
//! ```
//!
//! | limit | made by |
//! |---|---|
//! | one limit for all requests, refusing or with a line | [`RateLimitLayer::new`], [`queue`](RateLimitLayer::queue) |
//! | a limit for each user, token, address | [`RateLimitLayer::keyed`], [`by_address`] |
//! | a policy | [`RateLimitLayer::policy`], [`policy_text`](RateLimitLayer::policy_text), [`policy_file`](RateLimitLayer::policy_file) |
//! | requests at work at once | [`RateLimitLayer::in_flight`]; `concurrency` in a policy or a [`KeyedLimiter`](crate::KeyedLimiter) |
//! | the same, adapted to the capacity of the server | [`RateLimitLayer::adaptive`] |
//!
//! * Everything is shared by clones: a layer may be cloned for each route, a service for each
//!   connection.
//! * `poll_ready` is that of the service inside: it neither sleeps nor takes anything. Decisions
//!   are made by `call`, where the request is known; in memory, at once.
//! * A client's address is that of its connection. Behind proxies it is the one that a *trusted*
//!   proxy reports, read from the right; `X-Forwarded-For` of other peers is ignored.
//! * Refusals are responses, never errors: the error type is that of the service inside.
//! * A layer inside a nested router sees the remaining path.
//!
//! ```
//! use ratekeeper::KeyedLimiter;
//! use ratekeeper::policy::ClientIp;
//! use ratekeeper::tower::{Peer, RateLimitLayer, by_address};
//! use tower_layer::Layer;
//!
//! # fn my_service() {}
//! let address = by_address(ClientIp::default(), |it| Some(it.get::<Peer>()?.0));
//! let layer = RateLimitLayer::keyed(KeyedLimiter::per("100/1m")?, address).named("per-address");
//! let service = layer.layer(my_service()); // or, in axum: router.layer(layer)
//! # Ok::<(), ratekeeper::core::Error>(())
//! ```

mod adaptive;
mod body;
mod counted;
mod denial;
mod described;
mod facts;
mod future;
mod gate;
mod grpc;
mod hold;
mod in_flight;
mod keyed;
mod layer;
mod ledger;
mod measured;
mod pass;
mod policy;
mod service;
mod settle;
mod shown;
mod single;
mod source;

pub use adaptive::Adaptive;
pub use body::LimitedBody;
pub use counted::Counted;
pub use denial::Denial;
pub use facts::Peer;
pub use future::ResponseFuture;
pub use gate::Gate;
pub use in_flight::InFlight;
pub use keyed::{Keyed, by_address};
pub use layer::RateLimitLayer;
pub use policy::ByPolicy;
pub use service::RateLimited;
pub use settle::Counts;
pub use single::Single;
pub use source::PolicyError;

/// The parts of an [adaptive](RateLimitLayer::adaptive) limit.
pub use ratekeeper_resilience::{
    AdaptiveConcurrency, AdaptiveSettings, Aimd, Bounds, End, Error as AdaptiveError, Gradient,
    Law, Vegas,
};

use settle::GateSettings;
