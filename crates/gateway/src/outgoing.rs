//! Outgoing: a request as the upstream receives it, and a response as the client does.
//!
//! ```text
//!              prepare                    fit, for each connection that it is sent on
//!   GET /p --> Host, Forwarded, Via --.-> HTTP/1.1: Connection, Transfer-Encoding
//!                                     '-> HTTP/2:   :scheme, :authority
//! ```

use http::header::{CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, HOST, TRANSFER_ENCODING, VIA};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Uri, Version};
use http_body::Body;

use crate::error::UpstreamFailure;
use crate::forwarded::{self, GatewayClient};
use crate::hop::{self, Hop};
use crate::request_id::X_REQUEST_ID;
use crate::upload::UploadBody;

/// Number of fields that are added to a request.
const ADDED: usize = 7;

/// The form of requests on a connection to an upstream.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Http1,
    /// HTTP/2, with the value of `:scheme`, and the `:authority` of requests without a host.
    Http2(Scheme, Option<Authority>),
}

/// Changes the head of a request for the upstream, which knows it by `id` and may switch to these
/// protocols. Returns the properties of the connection from which it came.
pub(crate) fn prepare<B>(
    request: &mut Request<B>,
    client: &GatewayClient,
    id: HeaderValue,
    upgrades: &[HeaderValue],
) -> Hop {
    let authority = request.uri().authority();
    let authority = authority.and_then(|it| HeaderValue::from_str(it.as_str()).ok());
    let host = authority
        .clone()
        .or_else(|| request.headers().get(HOST).cloned());
    let via = match request.version() {
        Version::HTTP_2 => HeaderValue::from_static("2.0 ratekeeper"),
        Version::HTTP_10 => HeaderValue::from_static("1.0 ratekeeper"),
        _ => HeaderValue::from_static("1.1 ratekeeper"),
    };
    let headers = request.headers_mut();
    headers.reserve(ADDED);
    let hop = hop::remove(headers, upgrades);
    // The client has its `100 Continue` as soon as the upstream reads the body.
    headers.remove(EXPECT);
    forwarded::put(client, host.as_ref(), headers);
    forwarded::append(headers, VIA, via);
    headers.insert(X_REQUEST_ID, id);
    if let Some(authority) = authority {
        headers.insert(HOST, authority); // before any that the request states
    }
    join_cookies(headers);
    if !is_origin_form(request.uri()) {
        *request.uri_mut() = Uri::from(target(request.uri()));
    }
    hop
}

/// Gives a prepared request the form of a connection, whatever form it had for another.
pub(crate) fn fit<B: Body>(request: &mut Request<B>, form: &Form, hop: &Hop) {
    match form {
        Form::Http1 => {
            let authority = request.uri().authority();
            let host = authority.and_then(|it| HeaderValue::from_str(it.as_str()).ok());
            if let Some(host) = host {
                request.headers_mut().insert(HOST, host);
            }
            hop::put(hop, request.headers_mut());
            if !request.body().is_end_stream() && !request.headers().contains_key(CONTENT_LENGTH) {
                // Else hyper drops the body of a GET, whose length it does not know.
                let chunked = HeaderValue::from_static("chunked");
                request.headers_mut().insert(TRANSFER_ENCODING, chunked);
            }
            if !is_origin_form(request.uri()) {
                *request.uri_mut() = Uri::from(target(request.uri()));
            }
            *request.version_mut() = Version::HTTP_11;
        }
        Form::Http2(scheme, own) => {
            let host = request.headers_mut().remove(HOST);
            let host = host.and_then(|host| Authority::try_from(host.as_bytes()).ok());
            hop::put_http2(hop, request.headers_mut());
            let mut parts = http::uri::Parts::default();
            parts.scheme = Some(scheme.clone());
            parts.authority = host
                .or_else(|| request.uri().authority().cloned())
                .or_else(|| own.clone());
            parts.path_and_query = Some(target(request.uri()));
            // All three are there, unless the address of the upstream is no authority.
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
            *request.version_mut() = Version::HTTP_2;
        }
    }
}

/// Returns true for a target that is sent as it is.
fn is_origin_form(uri: &Uri) -> bool {
    uri.scheme().is_none() && uri.authority().is_none()
}

/// Returns the target in origin form. Of `http://host#x` a parser leaves an empty one, which is
/// read as `/` and would be written as nothing.
fn target(uri: &Uri) -> PathAndQuery {
    let target = uri.path_and_query().filter(|it| it.as_str() != "/");
    target.cloned().unwrap_or(PathAndQuery::from_static("/"))
}

/// Changes the head of a response for the client. Returns the properties of
/// the connection from which it came.
///
/// # Errors
/// Returns an error if the body is compressed for its transfer. The gateway does not ask for that,
/// and the client could not know. Likewise if its length is not one number.
pub(crate) fn prepare_response(
    headers: &mut HeaderMap,
    upgrades: &[HeaderValue],
) -> Result<Hop, UpstreamFailure> {
    let found = hop::found(headers);
    if found.contains(&TRANSFER_ENCODING) {
        let is_known = |it: &str| hop::is(it, "chunked") || hop::is(it, "identity");
        if !hop::tokens(headers, &TRANSFER_ENCODING).all(is_known) {
            return Err(UpstreamFailure::BadResponse);
        }
        // The coding has decided where the body ends (RFC 9112, section 6.3).
        headers.remove(CONTENT_LENGTH);
    } else if !hop::join_lengths(headers) {
        return Err(UpstreamFailure::BadResponse);
    }
    if found.contains(&CONNECTION) {
        hop::remove_named(headers);
    }
    Ok(hop::remove_found(found, headers, upgrades))
}

/// Joins cookies that HTTP/2 may send in several fields (RFC 9113, section 8.2.3). In HTTP/1.1, too,
/// because servers join them by a comma, which makes two cookies one.
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

/// Returns the same request, which has no body.
pub(crate) fn copy(request: &Request<UploadBody>) -> Request<UploadBody> {
    let mut copy = Request::new(UploadBody::default());
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    *copy.headers_mut() = request.headers().clone();
    copy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClientScheme, Trust};

    fn prepared(version: Version, target: &str, fields: &[(&str, &str)]) -> (String, HeaderMap) {
        let mut request = Request::builder().version(version).uri(target);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(String::new()).unwrap();
        let client = GatewayClient {
            peer: [192, 0, 2, 1].into(),
            trust: Trust::Nothing,
            address_field: None,
            scheme: ClientScheme::Http,
        };
        let hop = prepare(&mut request, &client, HeaderValue::from_static("id-1"), &[]);
        fit(&mut request, &Form::Http1, &hop);
        let once = request.headers().clone();
        // A request that was offered to a connection of HTTP/2 before has the same form.
        let own = Authority::from_static("app.internal:443");
        fit(&mut request, &Form::Http2(Scheme::HTTPS, Some(own)), &hop);
        fit(&mut request, &Form::Http1, &hop);
        if once.contains_key(HOST) {
            assert_eq!(*request.headers(), once);
        }
        (request.uri().to_string(), once)
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
        let cut = prepared(Version::HTTP_11, "http://b.example#x", &fields);
        assert_eq!(cut.0, "/");
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

    #[test]
    fn a_request_for_http2_has_an_authority_and_no_fields_of_a_connection() {
        let own = || Some(Authority::from_static("app.internal:443"));
        let hop = Hop {
            trailers: true,
            upgrade: Some(HeaderValue::from_static("websocket")),
        };
        for (host, authority) in [
            (Some("shop.example:8443"), "shop.example:8443"),
            (Some(""), "app.internal:443"),
            (Some("a:b:c"), "app.internal:443"),
            (None, "app.internal:443"),
        ] {
            let mut request = Request::builder()
                .uri("/p?q=1")
                .body(String::new())
                .unwrap();
            if let Some(host) = host {
                let host = HeaderValue::from_static(host);
                request.headers_mut().insert(HOST, host);
            }
            fit(&mut request, &Form::Http1, &hop);
            fit(&mut request, &Form::Http2(Scheme::HTTPS, own()), &hop);
            assert_eq!(
                request.uri().to_string(),
                format!("https://{authority}/p?q=1")
            );
            let fields: Vec<_> = request.headers().iter().collect();
            let trailers = HeaderValue::from_static("trailers");
            assert_eq!(fields, [(&http::header::TE, &trailers)]);
        }
    }
}
