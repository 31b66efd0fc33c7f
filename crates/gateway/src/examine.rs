//! Examine: requests that are refused before anything else is done with them.
//!
//! The rest is refused by the parser: lengths that differ, spaces before a colon, folded lines, a
//! bare CR. A refused request closes its connection, because the next one may not begin where it
//! seems to.
//!
//! * Source: RFC 9112, "HTTP/1.1" (2022), sections 3.2, 5.1 and 6.3; RFC 9113, "HTTP/2" (2022),
//!   section 8.3.1.

use std::net::Ipv6Addr;

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Version};

use crate::hop;

/// Why a request is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// `CONNECT` asks for a tunnel to any address.
    #[error("`CONNECT` is refused, because this is not a forward proxy")]
    Connect,
    /// `TRACE` returns the request, with fields that proxies added.
    #[error("`TRACE` is refused, because its response shows fields that proxies add")]
    Trace,
    /// A host alone, as `CONNECT` has it, or `*`, as `OPTIONS` has it.
    #[error("the target of the request is neither a path nor a URL")]
    Target,
    /// HTTP/1.1 without a `Host`, or any request with several.
    #[error("the request has {0} `Host` lines; expected exactly one")]
    Hosts(usize),
    /// The host is not one.
    #[error("`Host` is not HOST or HOST:PORT")]
    Host,
    /// The target and `Host` name different hosts (HTTP/2).
    #[error("`:authority` and `Host` differ")]
    Authority,
    /// A `Transfer-Encoding` other than `chunked`.
    #[error("`Transfer-Encoding` is not exactly `chunked`")]
    TransferEncoding,
    /// A `Content-Length` that is not one number (HTTP/2).
    #[error("`Content-Length` is not one number")]
    ContentLength,
    /// `Connection` names a field that the upstream relies on.
    #[error("`Connection` may not name `{0}`")]
    Connection(String),
}

/// Refuses requests that an upstream might understand in another way, and removes the fields that
/// `Connection` names, so that limits and routes see no field that the upstream does not see.
/// Otherwise a client could be counted by a made-up key that the application never refuses.
///
/// # Errors
/// [`Malformed`], to be answered with 400 (405 for `CONNECT` and `TRACE`), and the connection closed.
pub fn examine(parts: &mut Parts) -> Result<(), Malformed> {
    if parts.method == Method::CONNECT {
        return Err(Malformed::Connect);
    }
    if parts.method == Method::TRACE {
        return Err(Malformed::Trace);
    }
    let is_star = parts.uri.path() == "*" && parts.method != Method::OPTIONS;
    if is_star || (parts.uri.authority().is_some() && parts.uri.scheme().is_none()) {
        return Err(Malformed::Target);
    }
    let mut hosts = parts.headers.get_all(HOST).iter();
    let (host, second) = (hosts.next(), hosts.next());
    let authority = parts.uri.authority();
    let is_needed = parts.version == Version::HTTP_11;
    if second.is_some() || (host.is_none() && is_needed) {
        return Err(Malformed::Hosts(parts.headers.get_all(HOST).iter().count()));
    }
    if host.is_some_and(|host| !is_host(host.as_bytes()))
        || authority.is_some_and(|authority| !is_host(authority.as_str().as_bytes()))
    {
        return Err(Malformed::Host);
    }
    if let (Some(host), Some(authority), Version::HTTP_2) = (host, authority, parts.version)
        && !host
            .as_bytes()
            .eq_ignore_ascii_case(authority.as_str().as_bytes())
    {
        return Err(Malformed::Authority);
    }
    let mut encodings = parts.headers.get_all(TRANSFER_ENCODING).iter();
    if let Some(encoding) = encodings.next()
        && (!encoding.as_bytes().eq_ignore_ascii_case(b"chunked") || encodings.next().is_some())
    {
        return Err(Malformed::TransferEncoding);
    }
    if !hop::join_lengths(&mut parts.headers) {
        return Err(Malformed::ContentLength);
    }
    if parts.headers.contains_key(CONNECTION) {
        if let Some(name) = hop::wrong_connection(&parts.headers) {
            return Err(Malformed::Connection(name));
        }
        hop::remove_named(&mut parts.headers);
    }
    Ok(())
}

/// Returns true for one name or address in brackets, and a port. A login in front of it is refused,
/// and so is each sign at which some applications end a host (a comma, a second colon) or which
/// some decode (`%`): limits would see another host than they do.
fn is_host(text: &[u8]) -> bool {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(byte);
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let port = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if address.parse::<Ipv6Addr>().is_ok() => port,
            _ => return false,
        },
        None => text
            .trim_start_matches(|letter: char| u8::try_from(letter).is_ok_and(|byte| fits(&byte))),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    digits.is_empty() || port != digits && digits.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    type Fields = [(&'static str, &'static str)];

    fn check(version: Version, target: &str, fields: &Fields) -> Result<(), Malformed> {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        examine(&mut parts)
    }

    #[test]
    fn ambiguous_requests_are_refused() {
        const ONE: Version = Version::HTTP_11;
        const TWO: Version = Version::HTTP_2;
        let host = ("host", "a.example:80");
        let two = ("content-length", "2");
        let connection = |name: &str| Err(Malformed::Connection(name.to_owned()));
        let rows: &[(Version, &str, &Fields, Result<(), Malformed>)] = &[
            (ONE, "/", &[host], Ok(())),
            (ONE, "/", &[("host", "[::1]:80")], Ok(())),
            (ONE, "/", &[("host", "")], Ok(())),
            (ONE, "/", &[], Err(Malformed::Hosts(0))),
            (ONE, "/", &[host, host], Err(Malformed::Hosts(2))),
            (ONE, "/", &[("host", "_a-1.example.:80")], Ok(())),
            (ONE, "/", &[("host", "a.example:")], Ok(())),
            (ONE, "/", &[("host", "[::ffff:192.0.2.1]")], Ok(())),
            (ONE, "/", &[("host", "a b")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "a.example::1")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "a.example:1:1")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "a.example:x")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "a.example,x")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "%61.example")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "%EF%BD%81.a")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "[::1")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "[::1]x")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "[a.example]")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "[::1]:1:1")], Err(Malformed::Host)),
            (TWO, "http://a.example,x/", &[], Err(Malformed::Host)),
            (ONE, "/", &[("host", "a@b")], Err(Malformed::Host)),
            (ONE, "/", &[("host", "a/b")], Err(Malformed::Host)),
            (ONE, "http://u@b.example/", &[host], Err(Malformed::Host)),
            (ONE, "b.example:80", &[host], Err(Malformed::Target)),
            (ONE, "*", &[host], Err(Malformed::Target)),
            (ONE, "http://b.example/", &[host], Ok(())), // the target wins, RFC 9112 section 3.2.2
            (Version::HTTP_10, "/", &[], Ok(())),
            (TWO, "http://a.example/", &[], Ok(())),
            (TWO, "http://a.example/", &[("host", "A.example")], Ok(())),
            (TWO, "http://a.example/", &[host], Err(Malformed::Authority)),
            (ONE, "/", &[host, ("transfer-encoding", "chunked")], Ok(())),
            (
                ONE,
                "/",
                &[host, ("transfer-encoding", "gzip, chunked")],
                Err(Malformed::TransferEncoding),
            ),
            (
                ONE,
                "/",
                &[
                    host,
                    ("transfer-encoding", "chunked"),
                    ("transfer-encoding", "chunked"),
                ],
                Err(Malformed::TransferEncoding),
            ),
            (TWO, "http://a.example/", &[two, two], Ok(())),
            (
                TWO,
                "http://a.example/",
                &[two, ("content-length", "02")],
                Err(Malformed::ContentLength),
            ),
            (ONE, "/", &[host, ("connection", "close")], Ok(())),
            (
                ONE,
                "/",
                &[host, ("connection", "host")],
                connection("host"),
            ),
        ];
        for (version, target, fields, expected) in rows {
            assert_eq!(
                check(*version, target, fields),
                *expected,
                "{target} {fields:?}"
            );
        }
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::CONNECT;
        assert_eq!(examine(&mut parts), Err(Malformed::Connect));
        parts.method = Method::OPTIONS;
        parts.uri = http::Uri::from_static("*");
        parts.version = Version::HTTP_10;
        assert_eq!(examine(&mut parts), Ok(()));
    }
}
