//! Forwarded: the header fields that describe the client to the upstream. No client can forge them.
//!
//! ```text
//!   peer       X-Forwarded-For        -Host, -Proto        Forwarded          X-Request-Id
//!   trusted    its value, and itself  kept, else added     its value, ..      kept, else made
//!   others     itself                 replaced             replaced           made
//! ```
//!
//! Fields of others whose names differ from these by `_` in place of `-` are removed too, because
//! many applications read both alike; so are all of them in trailers. So is `Content_Length` and its
//! like, of every peer: an application could read another body than was sent.
//!
//! * Source: RFC 7239, "Forwarded HTTP Extension" (2014), sections 4 and 6.

use std::fmt::Write as _;
use std::net::IpAddr;

use bytes::Bytes;
use http::header::Entry;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use strum::IntoStaticStr;

use crate::request_id::{X_REQUEST_ID, is_id};

const FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// Beginning of the names of our own fields, which no client may send.
const OWN: &str = "x-ratekeeper-";
/// Beginning of the names of fields about a client.
const ABOUT: &str = "x-forwarded-";
/// Fields that say how a body is read.
const OF_A_BODY: [HeaderName; 4] = [
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
];
/// Room for an element of `Forwarded`.
const USUAL_ELEMENT: usize = 96;

/// The sender of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GatewayClient {
    /// The address of the connection.
    pub peer: IpAddr,
    /// Trust in its forwarding fields.
    pub trust: Trust,
    /// The field in which trusted proxies name the address of the client, if it is another than
    /// those of the table above; of others it is removed.
    pub address_field: Option<HeaderName>,
    /// The scheme of the listener.
    pub scheme: ClientScheme,
}

/// How clients reach the listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ClientScheme {
    /// Without TLS.
    Http,
    /// By TLS.
    Https,
}

impl GatewayClient {
    /// Returns the id that the client has given to the request, if it is a trusted proxy.
    pub fn request_id(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let stated = headers.get(X_REQUEST_ID)?;
        (self.trust == Trust::Proxy && is_id(stated)).then(|| stated.clone())
    }
}

/// Trust in the forwarding fields of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trust {
    /// It is a trusted proxy: its fields are kept.
    Proxy,
    /// It may be any client: its fields are replaced.
    Nothing,
}

/// Replaces the fields about the client, or continues a trusted proxy's; our own never come
/// from outside. `host` is the host of the request as text of a field.
pub(crate) fn put(client: &GatewayClient, host: Option<&HeaderValue>, headers: &mut HeaderMap) {
    match client.trust {
        Trust::Proxy => remove_all(headers, |name| begins(name, OWN) || is_misspelt(name)),
        Trust::Nothing => remove_invented(client.address_field.as_ref(), headers),
    }
    let peer = client.peer.to_canonical();
    let mut element = String::with_capacity(USUAL_ELEMENT);
    let by_socket = peer.is_unspecified();
    let (before, after) = match peer {
        _ if by_socket => ("for=unknown", ""),
        IpAddr::V4(_) => ("for=", ""),
        IpAddr::V6(_) => ("for=\"[", "]\""),
    };
    element.push_str(before);
    if !by_socket {
        push_address(&mut element, peer);
    }
    let address = before.len()..element.len();
    element.push_str(after);
    if let Some(host) = host.and_then(|host| host.to_str().ok()) {
        element.extend([";host=\"", host, "\""]); // no host has quotes or backslashes
    }
    element.extend([";proto=", client.scheme.into()]);
    let element = Bytes::from(element);
    let address = if by_socket {
        Bytes::from_static(b"unix:") // nginx writes the same
    } else {
        element.slice(address)
    };
    // The parts are values, so the whole is one.
    for (name, value) in [(header::FORWARDED, element), (FOR, address)] {
        if let Ok(value) = HeaderValue::from_maybe_shared(value) {
            append(headers, name, value);
        }
    }
    if let Some(host) = host {
        headers.entry(HOST).or_insert_with(|| host.clone());
    }
    let scheme = HeaderValue::from_static(client.scheme.into());
    headers.entry(PROTO).or_insert(scheme);
}

/// Appends an address: one of IPv4 by its octets, which the formatter makes slow.
fn push_address(text: &mut String, address: IpAddr) {
    let IpAddr::V4(address) = address else {
        let _ = write!(text, "{address}"); // a string takes everything
        return;
    };
    for (index, octet) in address.octets().into_iter().enumerate() {
        if index > 0 {
            text.push('.');
        }
        text.push_str(itoa::Buffer::new().format(octet));
    }
}

/// Removes the fields about the client, and our own: those of a peer that is not a trusted proxy, or
/// of trailers.
pub(crate) fn remove_invented(address_field: Option<&HeaderName>, headers: &mut HeaderMap) {
    let whole = [REAL_IP, X_REQUEST_ID, header::FORWARDED];
    let whole = || whole.iter().chain(address_field);
    remove_all(headers, |name| {
        begins(name, ABOUT)
            || begins(name, OWN)
            || is_misspelt(name)
            || whole().any(|field| is(name, field))
    });
}

fn remove_all(headers: &mut HeaderMap, is_removed: impl Fn(&HeaderName) -> bool) {
    let removed: Vec<HeaderName> = headers
        .keys()
        .filter(|it| is_removed(it))
        .cloned()
        .collect();
    for name in removed {
        headers.remove(name);
    }
}

fn is(name: &HeaderName, field: &HeaderName) -> bool {
    name.as_str().len() == field.as_str().len() && begins(name, field.as_str())
}

/// Returns true for `Content_Length` and its like.
fn is_misspelt(name: &HeaderName) -> bool {
    let is_like = |field: &HeaderName| is(name, field) && name != field;
    OF_A_BODY.iter().any(is_like)
}

/// Returns true for a name with this beginning, `_` taken for `-`.
fn begins(name: &HeaderName, start: &str) -> bool {
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { *byte };
    let name = name.as_str().as_bytes().get(..start.len());
    name.is_some_and(|name| {
        name.iter()
            .map(plain)
            .eq(start.as_bytes().iter().map(plain))
    })
}

/// Appends an element to a field that is a list, in one line.
pub(crate) fn append(headers: &mut HeaderMap, name: HeaderName, element: HeaderValue) {
    match headers.entry(name) {
        Entry::Vacant(entry) => {
            entry.insert(element);
        }
        Entry::Occupied(mut entry) => {
            let mut list = Vec::new();
            for value in entry.iter() {
                list.extend_from_slice(value.as_bytes());
                list.extend_from_slice(b", ");
            }
            list.extend_from_slice(element.as_bytes());
            // The parts are values, so the whole is one.
            if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(list)) {
                entry.insert(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(peer: &str, trust: Trust, before: &[(&'static str, &str)], after: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(*name, HeaderValue::from_str(value).unwrap());
        }
        let peer = peer.parse().unwrap();
        let host = HeaderValue::from_static("a.example");
        let client = GatewayClient {
            peer,
            trust,
            address_field: Some(HeaderName::from_static("cf-connecting-ip")),
            scheme: ClientScheme::Https,
        };
        put(&client, Some(&host), &mut headers);
        let mut found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        found.sort_unstable();
        let mut after = after.to_vec();
        after.sort_unstable();
        assert_eq!(found, after, "{before:?}");
    }

    #[test]
    fn the_fields_of_untrusted_peers_are_replaced() {
        let own = [
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=192.0.2.1;host=\"a.example\";proto=https"),
        ];
        check("192.0.2.1", Trust::Nothing, &[], &own);
        let invented = [
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-host", "b"),
            ("x-forwarded-proto", "http"),
            ("x-real-ip", "10.0.0.1"),
            ("forwarded", "for=10.0.0.1"),
            ("x_forwarded-for", "10.0.0.1"),
            ("x_real_ip", "10.0.0.1"),
            ("x-forwarded-port", "1"),
            ("x_ratekeeper_shadow", "x"),
            ("cf_connecting_ip", "10.0.0.1"),
            ("content_length", "5"),
            ("transfer_encoding", "chunked"),
        ];
        check("::ffff:192.0.2.1", Trust::Nothing, &invented, &own);
        let by_socket = [
            ("x-forwarded-for", "unix:"),
            ("x-forwarded-host", "a.example"),
            ("x-forwarded-proto", "https"),
            ("forwarded", "for=unknown;host=\"a.example\";proto=https"),
        ];
        check("0.0.0.0", Trust::Nothing, &invented, &by_socket);
    }

    #[test]
    fn addresses_are_written_as_the_standard_library_does() {
        for octet in 0..=u8::MAX {
            let address = IpAddr::from([octet, 255 - octet, 0, octet]);
            let mut text = String::new();
            push_address(&mut text, address);
            assert_eq!(text, address.to_string());
        }
    }

    #[test]
    fn those_of_trusted_proxies_are_continued() {
        check(
            "2001:db8::1",
            Trust::Proxy,
            &[
                ("x-forwarded-for", "10.0.0.1"),
                ("x-forwarded-for", "10.0.0.2"),
                ("x-forwarded-proto", "http"),
                ("forwarded", "for=10.0.0.1"),
                ("content_type", "text/plain"),
                ("content_disposition", "inline"),
            ],
            &[
                ("content_disposition", "inline"),
                ("x-forwarded-for", "10.0.0.1, 10.0.0.2, 2001:db8::1"),
                ("x-forwarded-host", "a.example"),
                ("x-forwarded-proto", "http"),
                (
                    "forwarded",
                    "for=10.0.0.1, for=\"[2001:db8::1]\";host=\"a.example\";proto=https",
                ),
            ],
        );
    }
}
