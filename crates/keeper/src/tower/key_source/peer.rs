//! Peer: the address of the connection, which a server leaves in the extensions of a request.
//!
//! ```text
//!   axum    ConnectInfo<SocketAddr>     found by its type
//!   tonic   TcpConnectInfo              by its method `remote_addr`
//!   actix   Peer                        put there by `for_actix`
//!   hyper   Peer, SocketAddr            put there by your own code
//! ```
//!
//! The types of the frameworks are type parameters, so that the library depends on none of them,
//! and works with each of their versions. (actix-web, whose requests are not those of `http`, is a
//! feature.)

use std::any::type_name;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use http::Extensions;

use super::no_key::NoKey;

/// An extension of a request: the address of the connected peer. A server that accepts connections
/// itself (plain hyper) adds it; axum and tonic have their own, see
/// [`by_address`](crate::tower::by_address).
///
/// ```
/// use ratekeeper::tower::Peer;
///
/// let mut request = http::Request::new(());
/// let accepted: std::net::SocketAddr = "192.0.2.1:4711".parse().unwrap();
/// request.extensions_mut().insert(Peer(accepted));
/// assert_eq!(request.extensions().get::<Peer>().unwrap().port(), 4711);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer(pub SocketAddr);

impl Deref for Peer {
    type Target = SocketAddr;

    fn deref(&self) -> &SocketAddr {
        &self.0
    }
}

/// Finds the address of the peer in the extensions of a request.
#[derive(Clone)]
pub(crate) struct PeerSource {
    find: Arc<PeerOf>,
    /// The extension that it looks for.
    wanted: &'static str,
}

type PeerOf = dyn Fn(&Extensions) -> Option<SocketAddr> + Send + Sync;

impl PeerSource {
    /// By an extension that is an address.
    pub(crate) fn of<T>() -> Self
    where
        T: Deref<Target = SocketAddr> + Send + Sync + 'static,
    {
        Self::from(|extension: &T| Some(**extension))
    }

    /// By an extension, and a function that returns its address.
    pub(crate) fn from<T: Send + Sync + 'static>(
        address: impl Fn(&T) -> Option<SocketAddr> + Send + Sync + 'static,
    ) -> Self {
        Self {
            find: Arc::new(move |extensions| address(extensions.get::<T>()?)),
            wanted: type_name::<T>(),
        }
    }

    pub(crate) fn find(&self, extensions: &Extensions) -> Option<SocketAddr> {
        (self.find)(extensions)
    }

    /// Returns the reason if there is no address.
    #[cold]
    pub(crate) fn missing(&self) -> NoKey {
        let reason = format!(
            "the server put no client address into the extensions of the request (expected: `{}`); \
             hint: serve an axum router by `into_make_service_with_connect_info::<SocketAddr>()`, \
             or name the extension of your server in `by_address` or `peer_in`",
            self.wanted
        );
        NoKey::NotProvided(reason.into())
    }
}

/// By an extension that server code of its own adds.
impl Default for PeerSource {
    fn default() -> Self {
        let find = |extensions: &Extensions| {
            let own = extensions.get().map(|Peer(address)| *address);
            own.or_else(|| extensions.get().copied())
        };
        Self {
            find: Arc::new(find),
            wanted: "ratekeeper::tower::Peer` or `SocketAddr",
        }
    }
}

impl fmt::Debug for PeerSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PeerSource").field(&self.wanted).finish()
    }
}
