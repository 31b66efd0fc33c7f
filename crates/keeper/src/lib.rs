//! Rate limits in a program: one limit, one for each key, or several that are charged together.
//!
//! # One limit
//!
//! Three methods ask a [`Limiter`] for permits. They differ in what they do when there are
//! none:
//!
//! | method | when there are none | for |
//! |---|---|---|
//! | [`check`](Limiter::check) | denies, with a retry time | requests that may be refused |
//! | [`acquire`](Limiter::acquire), [`acquire_blocking`](Limiter::acquire_blocking) | waits in line, first come, first served | work that must be done, by a task or a thread |
//! | [`reserve`](Limiter::reserve) | promises a later moment, charged now | work that is planned |
//!
//! **check**: a client can come back.
//!
//! ```
//! use ratekeeper::{Limiter, Refused};
//!
//! let limiter = Limiter::per("100/1m")?;
//! match limiter.check() {
//!     Ok(_grant) => { /* serve it */ }
//!     Err(Refused::Until(wait)) => eprintln!("429, Retry-After: {}", wait.as_millis().div_ceil(1_000)),
//!     Err(Refused::Never) => eprintln!("413: it costs more than the limit ever holds"),
//! }
//! # Ok::<(), ratekeeper::core::Error>(())
//! ```
//!
//! **acquire**: the page must be fetched, and this thread has time. Tasks call
//! `limiter.acquire().await`, with the feature `tokio`; `try_acquire` waits for at most a given
//! span.
//!
//! ```
//! use ratekeeper::Limiter;
//!
//! let pace = Limiter::per("500/1s")?;
//! for _page in 0..3 {
//!     pace.acquire_blocking()?;
//!     // fetch it
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **reserve**: the mail is sent when its turn comes; until then it waits in a queue of the
//! program.
//!
//! ```
//! use std::time::Duration;
//!
//! use ratekeeper::Limiter;
//!
//! let mails = Limiter::per("1/1m")?;
//! let patience = Duration::from_secs(600);
//! let _first = mails.reserve(1, patience);
//! let second = mails.reserve(1, patience);
//! assert!(second.wait().is_some_and(|wait| wait > Duration::from_secs(59)));
//! assert!(mails.cancel(second)); // it is not sent after all
//! # Ok::<(), ratekeeper::core::Error>(())
//! ```
//!
//! If the cost of work is known only afterwards, charge an estimate, then
//! [`settle`](Limiter::settle) the [`Grant`]. A [`KeyedLimiter`] has a limit, and a line, for each
//! key: `limiter.key(user)` has the same methods. A limit of [concurrency](core::Concurrency) lends
//! [`OwnedPermits`], a guard that gives them back when it is dropped. Any algorithm can be used
//! with these methods: see the module [`limiter`]. Callers that come from Guava find its limiter as
//! [`SmoothRateLimiter`]. The other side, clients that wait and retry, is the crate
//! `ratekeeper-resilience`.
//!
//! # Several limits, and Redis
//!
//! [`Limits`] are charged together: all of them or, if one refuses, none. They are counted in the
//! memory of this process or, by `Limits::redis` of the feature `redis`, in a Redis or Valkey
//! server that any number of processes share.
//!
//! ```
//! use ratekeeper::core::Quota;
//! use ratekeeper::{Limits, at_once};
//!
//! let limits = Limits::in_memory();
//! let requests = limits.token_bucket("requests", Quota::per_minute(60))?;
//! let tokens = limits.token_bucket("tokens", Quota::per_hour(100_000))?;
//! // Beside Redis: `limits.check(..).await?`.
//! let grant = at_once(limits.check(&[requests.of("ann"), tokens.of("ann").cost(800)]))?;
//! at_once(limits.settle(grant.used(&tokens, 350)))?; // the actual cost
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In the repository, `docs/guide/algorithms.md` asks five questions, draws the answers and states
//! the worst case of each algorithm, `COMPARE.md` compares it with other limiters, and `examples`
//! has a program for each task.
//!
//! # In a server
//!
//! With the feature `tower`, the module `tower` puts limiters around the services of axum, tonic
//! and hyper; with the feature `actix`, around services of actix-web too. With the feature `policy`,
//! the module `engine` decides about requests by a text of many limits, and `tower` puts such
//! policies around services.

mod at_once;
#[macro_use]
mod by_fields;
pub mod clock;
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
mod counter;
#[cfg(feature = "policy")]
pub mod engine;
#[cfg(any(feature = "policy", feature = "tower"))]
pub mod headers;
pub mod keyed;
mod latest;
pub mod limiter;
pub mod limits;
#[cfg(any(feature = "metrics", feature = "tracing"))]
pub mod observe;
#[cfg(feature = "policy")]
mod parsed;
#[cfg(any(feature = "policy", feature = "tower"))]
mod permit;
#[cfg(any(feature = "policy", feature = "tower"))]
pub mod problem;
#[cfg(any(feature = "policy", feature = "tower"))]
mod report;
pub mod smooth;
#[cfg(feature = "tracing")]
pub mod spans;
#[cfg(feature = "tower")]
pub mod tower;

#[doc(inline)]
pub use keyed::KeyedLimiter;
#[doc(inline)]
pub use limiter::{Limiter, Refused};
#[doc(inline)]
pub use limits::Limits;
pub use ratekeeper_core as core;
#[doc(inline)]
pub use ratekeeper_core::Quota;
#[cfg(any(feature = "policy", feature = "tower"))]
pub use ratekeeper_policy as policy;
pub use ratekeeper_store as store;

// Short paths; each module has the documentation of its items.
#[doc(hidden)]
pub use clock::*;
#[cfg(feature = "policy")]
#[doc(hidden)]
pub use engine::*;
#[doc(hidden)]
pub use keyed::{ByHash, KeyLimit, KeyedReservation, LimitKey, MostWaiting};
#[doc(hidden)]
pub use limiter::{Grant, OwnedPermits, Reservation, Settlement, WaitError};
#[doc(hidden)]
pub use limits::*;
#[cfg(any(feature = "metrics", feature = "tracing"))]
#[doc(hidden)]
pub use observe::*;
#[doc(hidden)]
pub use smooth::SmoothRateLimiter;
#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use spans::Traced;
#[cfg(any(feature = "policy", feature = "tower"))]
#[doc(hidden)]
pub use {
    permit::{NoPermit, Permit},
    report::{LimitReport, LimitReports},
};

/// Idioms that would serve a request that a limit refuses. None of them compiles; the form
/// beside it does.
///
/// A result is no condition:
/// ```compile_fail,E0308
/// let limiter = ratekeeper::Limiter::per("1/1h").unwrap();
/// if limiter.check() {}
/// ```
/// ```
/// let limiter = ratekeeper::Limiter::per("1/1h").unwrap();
/// if limiter.check().is_ok() {}
/// ```
/// A wait that does not exist is no grant:
/// ```compile_fail,E0599
/// let limiter = ratekeeper::Limiter::per("1/1h").unwrap();
/// match limiter.check().retry_after() { None => println!("served"), Some(_wait) => {} }
/// ```
/// ```compile_fail,E0004
/// use ratekeeper::{Limiter, Refused};
/// let limiter = Limiter::per("1/1h").unwrap();
/// match limiter.check() { Ok(_) => println!("served"), Err(Refused::Until(_wait)) => {} }
/// ```
/// ```
/// use ratekeeper::{Limiter, Refused};
/// let limiter = Limiter::per("1/1h").unwrap();
/// match limiter.check() {
///     Ok(_) => println!("served"),
///     Err(Refused::Until(_wait)) => {}
///     Err(Refused::Never) => {}
/// }
/// if let Err(refused) = limiter.check() { println!("{refused}") }
/// fn handler(limiter: &Limiter) -> Result<u64, Refused> { Ok(limiter.check()?.remaining()) }
/// assert!(handler(&limiter).is_err());
/// ```
/// An answer is looked at:
/// ```compile_fail
/// #![deny(unused_must_use)]
/// let limiter = ratekeeper::Limiter::per("1/1h").unwrap();
/// limiter.check();
/// ```
/// ```
/// #![deny(unused_must_use)]
/// let limiter = ratekeeper::Limiter::per("1/1h").unwrap();
/// let _ = limiter.check();
/// ```
/// Nothing is settled that was not granted, and no grant twice:
/// ```compile_fail,E0599
/// let limiter = ratekeeper::Limiter::per("1/1h").unwrap();
/// limiter.settle(limiter.check_n(2).used(1));
/// ```
/// ```compile_fail,E0382
/// let limiter = ratekeeper::Limiter::per("2/1h").unwrap();
/// let grant = limiter.check_n(2).unwrap();
/// limiter.settle(grant.used(1));
/// limiter.settle(grant.used(1));
/// ```
/// ```
/// let limiter = ratekeeper::Limiter::per("2/1h").unwrap();
/// let grant = limiter.check_n(2).unwrap();
/// limiter.settle(grant.used(1));
/// ```
/// A zero quota and a call that an algorithm lacks are found by the compiler:
/// ```compile_fail,E0080
/// const _NONE: ratekeeper::core::Quota = ratekeeper::core::Quota::per_second(0);
/// ```
/// ```compile_fail,E0277
/// use ratekeeper::{Limiter, core::Log};
/// let log = Limiter::new(Log::sliding("1/1h".parse().unwrap()).unwrap());
/// let _ = log.reserve(1, std::time::Duration::ZERO);
/// ```
/// ```
/// const _ONE: ratekeeper::core::Quota = ratekeeper::core::Quota::per_second(1);
/// use ratekeeper::{Limiter, core::Log};
/// let log = Limiter::new(Log::sliding("1/1h".parse().unwrap()).unwrap());
/// let _ = log.check();
/// ```
#[cfg(doctest)]
struct FailOpenIdioms;

/// The code of the READMEs and the guides compiles, and most of it runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../docs/guide/in-a-program.md")]
#[cfg_attr(feature = "actix", doc = include_str!("../middleware.md"))]
#[cfg_attr(feature = "tokio", doc = include_str!("../governor.md"))]
#[cfg_attr(
    all(feature = "policy", feature = "redis"),
    doc = include_str!("../../../docs/guide/redis.md")
)]
#[cfg_attr(
    all(feature = "metrics", feature = "tracing"),
    doc = include_str!("../../../docs/guide/metrics.md")
)]
struct Guides;
