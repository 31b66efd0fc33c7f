//! By address: the key of a limit for each client address.
//!
//! ```text
//!   extension --> peer --trusted proxy?--> no:  the peer
//!                                      \-> yes: the address that it reports
//!                                               --> IPv6: the prefix of one client
//! ```

use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;

use ratekeeper_policy::ClientIp;
use smallvec::SmallVec;

use super::KeySource;
use super::no_key::NoKey;
use super::peer::PeerSource;
use crate::LimitKey;
use crate::keyed::one_address;
use crate::tower::head::RequestHead;

/// The client's address as a key; made by [`by_address`] and [`by_address_from`].
///
/// A request without an address is refused with 500 and a problem document that names the missing
/// extension, unless another key is set by [`or`](KeySource::or).
///
/// ```
/// use ratekeeper::KeyedLimiter;
/// use ratekeeper::tower::{ByAddress, Keyed, Peer, RateLimitLayer, by_address};
///
/// struct Server {
///     per_address: RateLimitLayer<Keyed<ByAddress>>,
/// }
/// let limiter = KeyedLimiter::per("100/1m")?;
/// let server = Server { per_address: RateLimitLayer::keyed(limiter, by_address::<Peer>()) };
/// assert_eq!(server.per_address.counts().passed, 0);
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ByAddress {
    peer: PeerSource,
    client_ip: Arc<ClientIp>,
}

/// Counts by the client's address, found in the extension `T`: axum's `ConnectInfo<SocketAddr>`, or
/// [`Peer`](crate::tower::Peer).
///
/// It is the address of the connection until proxies are trusted by
/// [`behind`](ByAddress::behind). IPv6 addresses are cut to the prefix that makes one client, 64
/// bits by default.
///
/// ```
/// use ratekeeper::KeyedLimiter;
/// use ratekeeper::tower::{RateLimitLayer, by_address};
/// use axum::{Router, extract::ConnectInfo};
/// use std::net::SocketAddr;
///
/// let key = by_address::<ConnectInfo<SocketAddr>>();
/// let layer = RateLimitLayer::keyed(KeyedLimiter::per("100/1m")?, key);
/// let app: Router = Router::new().layer(layer);
/// // served by `app.into_make_service_with_connect_info::<SocketAddr>()`
/// # Ok::<(), ratekeeper::core::Error>(())
/// ```
pub fn by_address<T>() -> ByAddress
where
    T: Deref<Target = SocketAddr> + Send + Sync + 'static,
{
    ByAddress::new(PeerSource::of::<T>())
}

/// Counts by the client's address, returned by a function of the extension `T`: tonic's
/// `TcpConnectInfo`, or a type of your own.
///
/// ```
/// use ratekeeper::tower::{KeySource, by_address_from};
/// use std::net::SocketAddr;
/// use tonic::transport::server::TcpConnectInfo;
///
/// let key = by_address_from(TcpConnectInfo::remote_addr);
///
/// let plain = by_address_from(|peer: &SocketAddr| Some(*peer));
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(SocketAddr::from(([192, 0, 2, 1], 4711)));
/// assert!(plain.key((&request).into()).is_ok() && key.key((&request).into()).is_err());
/// ```
pub fn by_address_from<T: Send + Sync + 'static>(
    address: impl Fn(&T) -> Option<SocketAddr> + Send + Sync + 'static,
) -> ByAddress {
    ByAddress::new(PeerSource::from(address))
}

impl ByAddress {
    fn new(peer: PeerSource) -> Self {
        let client_ip = Arc::default();
        Self { peer, client_ip }
    }

    /// Sets the trusted proxies, and how many bits of an IPv6 address are one client.
    ///
    /// ```
    /// use ratekeeper::policy::{ClientIp, network};
    /// use ratekeeper::tower::{Peer, by_address};
    ///
    /// let trusted_proxies = vec![network("10.0.0.0/8").unwrap()];
    /// let key = by_address::<Peer>().behind(ClientIp { trusted_proxies, ..ClientIp::default() });
    /// ```
    #[must_use]
    pub fn behind(self, client_ip: ClientIp) -> Self {
        let client_ip = Arc::new(client_ip);
        Self { client_ip, ..self }
    }
}

impl KeySource for ByAddress {
    fn key(&self, head: RequestHead<'_>) -> Result<impl LimitKey, NoKey> {
        let peer = self.peer.find(head.extensions);
        let peer = peer.ok_or_else(|| self.peer.missing())?;
        let address = client_address(head, peer, &self.client_ip);
        Ok(address_key(address, self.client_ip.ipv6_prefix))
    }
}

/// Returns the key of an address; IPv4 addresses are mapped into IPv6.
///
/// ```
/// use ratekeeper::tower::address_key;
/// let key = |address: &str| address_key(address.parse().unwrap(), 64);
/// assert_eq!(key("2001:db8::1"), key("2001:db8::2"), "one client");
/// assert_ne!(key("192.0.2.1"), key("192.0.2.2"));
/// ```
pub fn address_key(address: IpAddr, ipv6_prefix: u8) -> [u8; 16] {
    match one_address(address) {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => {
            let rest = u32::from(128_u8.saturating_sub(ipv6_prefix));
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            (address.to_bits() & mask).to_be_bytes()
        }
    }
}

/// Names and values of all header fields, in their order.
pub(crate) type HeaderFields<'a> = SmallVec<[(&'a str, &'a [u8]); 24]>;

#[inline]
pub(crate) fn fields(head: RequestHead<'_>) -> HeaderFields<'_> {
    let each = head.headers.iter();
    let each = each.map(|(name, value)| (name.as_str(), value.as_bytes()));
    let mut fields = HeaderFields::new(); // not collected, which moves its room
    fields.extend(each);
    fields
}

/// Returns the address of the client behind trusted proxies.
pub(crate) fn client_address(
    head: RequestHead<'_>,
    peer: SocketAddr,
    client_ip: &ClientIp,
) -> IpAddr {
    if !client_ip.trusts(peer.ip()) {
        return peer.ip().to_canonical();
    }
    client_ip.identify(peer.ip(), &fields(head))
}
