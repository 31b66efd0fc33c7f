//! gRPC: a refusal in the form that gRPC clients read, in headers alone (a trailers-only response).
//!
//! ```text
//!   HTTP 200
//!   content-type: application/grpc
//!   grpc-status: 8                       RESOURCE_EXHAUSTED; 14, UNAVAILABLE, for 503, and
//!                                        without the store
//!   grpc-message: Limit per-user ..      percent-encoded
//!   grpc-status-details-bin: CAgS..      google.rpc.Status { 8, message, [RetryInfo { delay }] }
//! ```
//!
//! The details are four messages of two fields each: they are encoded by hand.
//!
//! * Source: the gRPC authors, "gRPC over HTTP2" (2015), for binary headers in base64 without
//!   padding; Google, `google/rpc/error_details.proto` (2016).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use ratekeeper_core::Nanos;

use super::denial::Denial;
use super::key_source::no_key::NoKey;
use crate::keyed::push_varint;

const INVALID_ARGUMENT: u8 = 3;
const DEADLINE_EXCEEDED: u8 = 4;
const RESOURCE_EXHAUSTED: u8 = 8;
const UNIMPLEMENTED: u8 = 12;
const INTERNAL: u8 = 13;
const UNAVAILABLE: u8 = 14;
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const GRPC_DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const GRPC: &[u8] = b"application/grpc";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";
/// Everything but printable ASCII, and the percent sign.
const PERCENT_ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// Returns the content type of the response, if this is a request of gRPC or gRPC-Web.
pub(super) fn content_type(headers: &HeaderMap) -> Option<HeaderValue> {
    let asked = headers.get(header::CONTENT_TYPE)?.as_bytes();
    let (start, rest) = asked.split_at_checked(GRPC.len())?;
    if !start.eq_ignore_ascii_case(GRPC) {
        return None;
    }
    let content_type = match &rest.to_ascii_lowercase()[..] {
        [b'-', b'w', b'e', b'b', b'-', b't', b'e', b'x', b't', ..] => {
            "application/grpc-web-text+proto"
        }
        [b'-', b'w', b'e', b'b', ..] => "application/grpc-web+proto",
        [] | [b'+' | b';' | b' ', ..] => "application/grpc",
        _ => return None,
    };
    Some(HeaderValue::from_static(content_type))
}

/// Returns the response to a call of gRPC or gRPC-Web that cannot be served, in headers alone;
/// `status` is that of HTTP, and `message` the reason. `None` for other requests.
///
/// ```
/// use http::HeaderMap;
/// use ratekeeper::tower::grpc_failure;
///
/// let mut call = HeaderMap::new();
/// assert!(grpc_failure(&call, 503, "the upstream is busy").is_none());
/// call.insert("content-type", "application/grpc".parse()?);
/// let response = grpc_failure(&call, 503, "the upstream is busy").unwrap();
/// assert_eq!(response.headers()["grpc-status"], "14");
/// # Ok::<(), http::header::InvalidHeaderValue>(())
/// ```
pub fn grpc_failure(request: &HeaderMap, status: u16, message: &str) -> Option<Response<Vec<u8>>> {
    let content_type = content_type(request)?;
    let code = match status {
        408 | 504 => DEADLINE_EXCEEDED,
        405 => UNIMPLEMENTED,
        413 | 429 | 431 => RESOURCE_EXHAUSTED,
        400..500 => INVALID_ARGUMENT,
        _ => UNAVAILABLE,
    };
    let mut response = Response::new(Vec::new());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type);
    put_code(headers, code, message);
    Some(response)
}

fn put_code(headers: &mut HeaderMap, code: u8, message: &str) {
    headers.insert(GRPC_STATUS, HeaderValue::from(u16::from(code)));
    // Printable ASCII, so it cannot fail.
    let text = utf8_percent_encode(message, PERCENT_ENCODED).to_string();
    if let Ok(text) = HeaderValue::try_from(text) {
        headers.insert(GRPC_MESSAGE, text);
    }
}

/// Adds the status, its reason, and the retry time of a refused call.
pub(super) fn put_status(headers: &mut HeaderMap, denial: &Denial) {
    let message = denial.detail();
    let is_away = denial.by().is_some_and(|limit| limit.outage.is_some());
    let code = match (denial.no_key(), denial.status()) {
        (Some(NoKey::NotProvided(_)), _) => INTERNAL,
        (Some(_), _) => INVALID_ARGUMENT,
        // A limit that answers 503 protects the service itself from all clients.
        (None, 503) => UNAVAILABLE,
        (None, _) if is_away => UNAVAILABLE,
        (None, _) => RESOURCE_EXHAUSTED,
    };
    put_code(headers, code, &message);
    // Printable ASCII too.
    if let Some(wait) = denial.retry_after() {
        let details = STANDARD_NO_PAD.encode(status(code, &message, wait.into()));
        headers.extend(HeaderValue::try_from(details).map(|text| (GRPC_DETAILS, text)));
    }
}

/// Encodes a google.rpc.Status, with a google.rpc.RetryInfo.
fn status(code: u8, message: &str, wait: Nanos) -> Vec<u8> {
    let second = Nanos::SECOND.as_nanos();
    let mut duration = Vec::new();
    put_number(&mut duration, 1, wait.as_nanos() / second);
    put_number(&mut duration, 2, wait.as_nanos() % second);
    let mut retry_info = Vec::new();
    put_bytes(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    put_bytes(&mut any, 1, RETRY_INFO.as_bytes());
    put_bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    put_number(&mut status, 1, code.into());
    put_bytes(&mut status, 2, message.as_bytes());
    put_bytes(&mut status, 3, &any);
    status
}

/// Adds a field of whole numbers; zero is omitted, because it is the default.
fn put_number(out: &mut Vec<u8>, field: u8, number: u64) {
    if number > 0 {
        out.push(field << 3);
        push_varint(number, |byte| out.push(byte));
    }
}

/// Adds a field of bytes, or of a message.
fn put_bytes(out: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    out.push(field << 3 | 2);
    push_varint(bytes.len() as u64, |byte| out.push(byte));
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_grpc_are_told_by_their_content_type() {
        for (asked, expected) in [
            ("application/grpc", Some("application/grpc")),
            ("application/grpc+proto", Some("application/grpc")),
            ("Application/GRPC;x=y", Some("application/grpc")),
            ("application/grpc-web", Some("application/grpc-web+proto")),
            (
                "application/grpc-web+json",
                Some("application/grpc-web+proto"),
            ),
            (
                "application/grpc-web-text",
                Some("application/grpc-web-text+proto"),
            ),
            ("application/grpcx", None),
            ("application/json", None),
            ("", None),
        ] {
            let request = http::Request::builder().header("content-type", asked);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let found = content_type(&parts.headers);
            let found = found.as_ref().map(|value| value.to_str().unwrap());
            assert_eq!(found, expected, "{asked}");
        }
        let (parts, ()) = http::Request::new(()).into_parts();
        assert_eq!(content_type(&parts.headers), None);
    }

    /// Written out by the wire format, field by field.
    #[test]
    fn details_are_the_bytes_of_the_messages() {
        let wait = Nanos::from_millis(300_500); // 300 s, 500,000,000 ns
        let mut expected = vec![0x08, 8, 0x12, 2];
        expected.extend(b"no");
        expected.extend([0x1a, 42 + 13, 0x0a, 40]);
        expected.extend(RETRY_INFO.as_bytes());
        expected.extend([
            0x12, 11, 0x0a, 9, 0x08, 0xac, 0x02, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01,
        ]);
        assert_eq!(status(RESOURCE_EXHAUSTED, "no", wait), expected);
    }

    #[test]
    fn messages_travel_as_ascii() {
        for (text, expected) in [
            ("", ""),
            ("a b~", "a b~"),
            ("100%\n\u{e9}", "100%25%0A%C3%A9"),
        ] {
            let encoded = utf8_percent_encode(text, PERCENT_ENCODED);
            assert_eq!(encoded.to_string(), expected);
        }
    }
}
