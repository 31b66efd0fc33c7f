//! Idle: connections of HTTP/1.1 that wait for their next request.

use std::thread::ThreadId;
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use tokio::time::Instant;

use crate::connection::Http1Sender;

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
/// Maximum number of idle connections to an address.
pub(crate) const MAX_IDLE: usize = 256;
/// How long a connection may be idle, if the server states no shorter time by `Keep-Alive`. Servers
/// close idle connections too, and a connection that is about to be closed costs a retry.
pub(crate) const IDLE: Duration = Duration::from_secs(30);
/// A connection is used for this much less than the server states, because the request travels.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_secs(1);
/// After this time without a request, the end of a connection may have come and not been read.
pub(crate) const QUIET: Duration = Duration::from_millis(100);
/// A request that must not be sent twice takes no connection that was idle for so long: the server
/// may close it just as the request is written. Servers close them after 2 s and more.
pub(crate) const FRESH: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct IdleConnection {
    pub(crate) sender: Http1Sender,
    /// The thread whose runtime serves it: no other needs to be woken for its requests.
    pub(crate) thread: ThreadId,
    pub(crate) since: Instant,
    pub(crate) until: Instant,
}

impl IdleConnection {
    pub(crate) fn is_usable(&self, now: Instant) -> bool {
        now < self.until && !self.sender.sender.is_closed()
    }
}

/// Returns how long a connection may be idle after a response, as its server keeps it open (RFC
/// 9112, appendix C.2.2).
pub(crate) fn kept_open(headers: &HeaderMap) -> Duration {
    let stated = headers.get(&KEEP_ALIVE).and_then(|it| it.to_str().ok());
    let mut stated = stated.into_iter().flat_map(|text| text.split(','));
    let seconds = stated.find_map(|it| it.trim().strip_prefix("timeout=")?.parse().ok());
    seconds.map(Duration::from_secs).map_or(IDLE, |stated| {
        let margin = KEEP_ALIVE_MARGIN.min(stated / 2);
        IDLE.min(stated.saturating_sub(margin))
    })
}
