//! Tower: the pieces composed into a layer for HTTP clients.
//!
//! ```text
//!   request --> deadline --> throttle or breaker --> send, cut to the rest --> answer
//!                  ^                                          |
//!                  |                                          | failed
//!                  +-- wait <-- budget <-- attempts <-- may it be done twice?
//!                                          Retry-After
//! ```
//!
//! * A request has a deadline (ten seconds, or the one in its [`CallOptions`]) that all its
//!   attempts share, waits included, until the head of the answer is there; reading the body is
//!   not limited. A call that cannot end in time is not begun: the answer at hand is returned
//!   instead. A deadline that the request carries already is never extended.
//! * A failure is retried if [`Failure`] and [`Effect`](crate::Effect) permit it. Bodies of
//!   answers are not read, so problem types are not known here: a request that is neither
//!   repeatable nor has an `Idempotency-Key` is sent twice only where [`RetryIf`] decides that
//!   the server did nothing, or where the caller sets another effect.
//! * If a server wants to be left alone for longer than
//!   [`RetryAfter::longest`](crate::RetryAfter::longest), its refusal is the answer.
//! * A request that is not sent, because its guard or its deadline forbids it, pays nothing
//!   into the budget.
//! * Connection errors are taken for [`Failure::Unknown`], unless
//!   [`RetryIf::with_errors`] knows better: a connection that was never made carried nothing.
//! * What holds for one call, in this order: its [`CallOptions`], the settings of
//!   [`Resilient::with`], those of the layer. Guard and budget are the client's, and a deadline
//!   in a header field is never extended.
//! * Reports to the breaker: 429 and other 4xx are answers of a server that works; 5xx, errors
//!   and time-outs are failures. Every answer below 500 but 429 is reported to the throttle.
//! * The service inside is asked for readiness anew before each attempt, within the deadline; if
//!   it is late, nothing is reported to the guard.
//! * A client is any service of [`Outgoing`] requests: `http` ones, such as hyper's client
//!   takes, and with the feature `reqwest` a `reqwest::Client` itself.
//! * [`Pacing`](crate::Pacing) is no part of it: a server may count by user or by path, and the
//!   layer does not know by which. Its state is for one server: make a layer for each.
//! * Trade-off: a request is kept for a further attempt, so its body must be `Clone` (bytes,
//!   not a stream). A stream in a request of reqwest is sent once.

mod fields;
mod layer;
mod message;
mod retry_if;
mod service;
mod settings;

pub use layer::ResilienceLayer;
pub use message::{Answered, Outgoing};
pub use retry_if::{FailedAnswer, RetryIf};
pub use service::Resilient;
pub use settings::{CallOptions, HttpSettings, Propagate};

#[cfg(doc)]
use crate::Failure;
