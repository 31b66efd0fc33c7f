//! TLS: of the listeners that have certificates, and of the servers that we call.
//!
//! ```text
//!   connection --handshake, at most 10 s--> stream        fails: closed at once, and counted
//!                  ^
//!   files --look every 5 s--> new certificates; warnings of expiry each day
//! ```
//!
//! The number of handshakes at a time is that of connections: a handshake takes a seat, and gives
//! it up like an idle connection when others need room.

mod certificates;

use std::time::Duration;

use ratekeeper_policy::Tls as TlsSettings;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use self::certificates::Certificates;
pub(crate) use self::certificates::trusting;
use super::pulse::Pulse;
use crate::Door;
use crate::counter::Counter;

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// TLS of a listener.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    pub(crate) door: Door,
    pub(crate) certificates: Certificates,
    pub(crate) failed_handshakes: Counter,
    /// Number of times that changed files were accepted, and refused.
    pub(crate) reloads: [Counter; 2],
}

impl ListenerTls {
    /// Reads the certificates. `protocols` are offered to clients by ALPN.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub(crate) fn read(
        door: Door,
        settings: &[TlsSettings],
        protocols: &'static [&'static [u8]],
    ) -> Result<Self, String> {
        Ok(Self {
            door,
            certificates: Certificates::read(settings, protocols)?,
            failed_handshakes: Counter::default(),
            reloads: Default::default(),
        })
    }

    /// Returns the stream of a connection after its handshake; `None` if that failed, took too
    /// long, or had to make room for other connections.
    pub(crate) async fn accept<S>(&self, stream: S, pulse: &Pulse) -> Option<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let handshake = timeout(HANDSHAKE, self.certificates.acceptor().accept(stream));
        let shaken = tokio::select! {
            shaken = handshake => shaken.ok().and_then(Result::ok),
            () = pulse.closed() => return None,
        };
        if shaken.is_none() {
            self.failed_handshakes.add(1);
        }
        shaken
    }

    /// Reads changed files. Returns the news for an operator.
    pub(crate) fn refresh(&self) -> Option<String> {
        let door = self.door;
        match self.certificates.refresh() {
            Ok(true) => {
                self.reloads[0].add(1);
                Some(format!("the {door} listener has new certificates"))
            }
            Err(why) => {
                self.reloads[1].add(1);
                Some(format!(
                    "the {door} listener keeps its certificates; invalid new ones: {why}"
                ))
            }
            Ok(false) => None,
        }
    }
}
