//! Outgoing: a request as the upstream receives it, and a response as the client does.

use http::header::{CONTENT_LENGTH, COOKIE, EXPECT, HOST, TRANSFER_ENCODING, VIA};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri, Version};

use crate::forwarded::{self, Client};
use crate::hop::{self, Hop};
use crate::request_id::X_REQUEST_ID;

/// Changes the head of a request for the upstream, which knows it by `id`. Returns the properties
/// of the connection from which it came.
pub(crate) fn prepare(parts: &mut Parts, client: &Client, id: HeaderValue) -> Hop {
    let host = host(parts);
    let via = match parts.version {
        Version::HTTP_2 => "2.0 ratekeeper",
        Version::HTTP_10 => "1.0 ratekeeper",
        _ => "1.1 ratekeeper",
    };
    let headers = &mut parts.headers;
    let hop = hop::remove(headers);
    forwarded::remove_own(headers);
    // The client has its `100 Continue` as soon as the upstream reads the body.
    headers.remove(EXPECT);
    forwarded::put(client, host.as_ref(), headers);
    forwarded::append(headers, VIA, via);
    headers.insert(X_REQUEST_ID, id);
    match host {
        Some(host) => drop(headers.insert(HOST, host)),
        None => drop(headers.remove(HOST)),
    }
    if parts.version == Version::HTTP_2 {
        join_cookies(headers);
    }
    hop::put(hop, headers);
    let target = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from(target.unwrap_or(PathAndQuery::from_static("/")));
    parts.version = Version::HTTP_11;
    parts.extensions.clear();
    hop
}

/// Changes the head of a response for the client. Returns the properties of
/// the connection from which it came.
pub(crate) fn prepare_response(headers: &mut HeaderMap) -> Hop {
    if headers.contains_key(TRANSFER_ENCODING) {
        // The coding has decided where the body ends (RFC 9112, section 6.3).
        headers.remove(CONTENT_LENGTH);
    }
    hop::remove(headers)
}

/// Returns the host of the target, or else that of the header.
fn host(parts: &Parts) -> Option<HeaderValue> {
    let authority = parts.uri.authority();
    let authority = authority.and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
    authority.or_else(|| parts.headers.get(HOST).cloned())
}

/// Joins cookies that HTTP/2 may send in several fields (RFC 9113, section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    if headers.get_all(COOKIE).iter().nth(1).is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    // The crumbs were values, so the whole is one.
    if let Ok(whole) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trust;
    use http::Request;

    fn prepared(version: Version, target: &str, fields: &[(&str, &str)]) -> (String, HeaderMap) {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        let client = Client {
            peer: [192, 0, 2, 1].into(),
            trust: Trust::Nothing,
            address_field: None,
        };
        prepare(&mut parts, &client, HeaderValue::from_static("id-1"));
        (parts.uri.to_string(), parts.headers)
    }

    #[test]
    fn the_target_supplies_the_host_only() {
        let fields = [("host", "a.example"), ("x-ratekeeper-decision", "x")];
        let (target, headers) = prepared(Version::HTTP_11, "http://b.example/p?q=1", &fields);
        assert_eq!(
            (&*target, &headers["host"]),
            ("/p?q=1", &HeaderValue::from_static("b.example"))
        );
        assert!(!headers.contains_key("x-ratekeeper-decision"));
        assert_eq!(headers["via"], "1.1 ratekeeper");
        assert_eq!(headers["x-request-id"], "id-1");
        assert_eq!(prepared(Version::HTTP_11, "*", &fields).0, "*");
        assert_eq!(
            prepared(Version::HTTP_11, "http://b.example", &fields).0,
            "/"
        );
    }

    #[test]
    fn a_request_of_http2_becomes_one_of_http1() {
        let fields = [
            ("cookie", "a=1"),
            ("via", "1.1 cdn"),
            ("cookie", "b=2"),
            ("te", "trailers"),
        ];
        let (target, headers) = prepared(Version::HTTP_2, "http://b.example:8080/p", &fields);
        assert_eq!(
            (&*target, &headers["cookie"]),
            ("/p", &HeaderValue::from_static("a=1; b=2"))
        );
        assert_eq!(headers["via"], "1.1 cdn, 2.0 ratekeeper");
        assert_eq!(headers["host"], "b.example:8080");
        assert_eq!(headers["te"], "trailers");
    }
}
