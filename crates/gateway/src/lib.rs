//! Forwards HTTP requests to upstreams. It knows no limits: the service applies them first, and
//! passes it the requests that are allowed.
//!
//! ```text
//!   request --examine--> well-formed? --forward--> hop-by-hop fields removed, Forwarded added
//!                             |                         |
//!                             '--> Malformed, 400       address in turn --> idle or new connection
//!                                                       |
//!                              response, its body streamed, or a tunnel <--'--> ForwardError
//! ```
//!
//! Clients speak HTTP/1.1 or HTTP/2, and so do upstreams, with TLS or without. Bodies are streamed
//! frame by frame, in both directions, as fast as the receiver reads; the service may have read the
//! beginning of a request's body before. Only addresses of the settings are ever connected to: the
//! target of a request sets the `Host` of the forwarded request, and nothing else.
//!
//! A request is sent again only if no byte of a response has come, and
//!
//! * it was not sent at all, because the connection was refused or had been closed; or
//! * the upstream states by HTTP/2 that it has not processed it, and it has no body; or
//! * its method is idempotent, it has no body, and the budget of retries suffices.

mod absence;
mod address;
mod attempt;
mod connection;
mod counts;
mod download;
mod error;
mod examine;
mod forwarded;
#[cfg(any(test, fuzzing))]
mod fuzzing;
mod gateway;
mod health;
mod hop;
mod idle;
mod noted;
mod outgoing;
mod progress;
mod recent;
mod request_id;
mod room;
mod tunnel;
mod upload;

pub use connection::{TlsTransport, Transport, UpstreamAddress};
pub use counts::{AddressTotals, FailedAttempt, FailureWatch, HEAD_EDGES_MILLIS, UpstreamTotals};
pub use download::{DownloadBody, DownloadError};
pub use error::{ForwardError, UpstreamFailure};
pub use examine::{Malformed, examine};
pub use forwarded::{ClientScheme, GatewayClient, Trust};
#[cfg(any(test, fuzzing))]
pub use fuzzing::check_head;
pub use gateway::{ForwardRequest, Forwarded, Gateway, GatewaySettings, MAX_ADDRESSES};
pub use health::{AddressHealth, HealthCheck};
pub use noted::{InterimReceiver, TakeInterim};
pub use progress::RequestProgress;
pub use recent::{RecentLevels, RecentResponses};
pub use request_id::{RequestIds, X_REQUEST_ID};
pub use tunnel::Tunnel;
pub use upload::ClientBody;
