//! Facts: the facts about a request for a policy, and the address of its client.

use std::net::{IpAddr, SocketAddr};

use http::header;
use ratekeeper_policy::{ClientIp, Facts};
use smallvec::SmallVec;

use super::head::RequestHead;

/// Names and values of all header fields, in their order.
pub(super) type HeaderFields<'a> = SmallVec<[(&'a str, &'a [u8]); 24]>;

/// Attributes of a request, set by the application.
pub(super) type Attributes = Vec<(&'static str, String)>;

#[inline]
pub(super) fn fields(head: RequestHead<'_>) -> HeaderFields<'_> {
    let fields = head.headers.iter();
    let fields = fields.map(|(name, value)| (name.as_str(), value.as_bytes()));
    fields.collect()
}

/// Returns the facts of the request line: method, host, path and query.
pub(super) fn facts(head: RequestHead<'_>) -> Facts<'_> {
    Facts {
        method: head.method.as_str(),
        host: host(head),
        path: head.uri.path(),
        query: head.uri.query().unwrap_or_default(),
        ..Facts::default()
    }
}

/// Returns the address of the client behind trusted proxies.
pub(super) fn client_address(
    head: RequestHead<'_>,
    peer: SocketAddr,
    client_ip: &ClientIp,
) -> IpAddr {
    if !client_ip.trusts(peer.ip()) {
        return peer.ip().to_canonical();
    }
    client_ip.identify(peer.ip(), &fields(head))
}

/// Returns the host of the target, as in HTTP/2, or else the header's.
fn host(head: RequestHead<'_>) -> &str {
    if let Some(authority) = head.uri.authority() {
        // Text before an `@` is no part of the host.
        let text = authority.as_str();
        return text.rsplit_once('@').map_or(text, |(_, host)| host);
    }
    let stated = head.headers.get(header::HOST);
    let stated = stated.and_then(|value| value.to_str().ok());
    stated.unwrap_or_default()
}
