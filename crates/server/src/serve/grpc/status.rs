//! Status: how a call ended, for its trailers.

use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The codes that this server sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Code {
    Ok = 0,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Unavailable = 14,
}

/// A code, and a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GrpcStatus {
    pub(crate) code: Code,
    pub(crate) message: String,
}

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

impl GrpcStatus {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        headers.insert(GRPC_STATUS, HeaderValue::from(self.code as u16));
        if let Ok(message) = HeaderValue::try_from(percent_encoded(&self.message))
            && !message.is_empty()
        {
            headers.insert(GRPC_MESSAGE, message);
        }
    }
}

/// Returns the trailers of a call that went well.
pub(super) fn ok_trailers() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

/// Encodes everything but printable ASCII as `%XX`, and the percent sign too.
fn percent_encoded(text: &str) -> String {
    const ENCODED: &AsciiSet = &CONTROLS.add(b'%');
    utf8_percent_encode(text, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_travel_as_ascii() {
        for (text, expected) in [
            ("", ""),
            ("domain `a b`~", "domain `a b`~"),
            ("100%\n", "100%25%0A"),
            ("caf\u{e9}", "caf%C3%A9"),
        ] {
            assert_eq!(percent_encoded(text), expected);
        }
    }

    #[test]
    fn trailers() {
        let mut headers = HeaderMap::new();
        GrpcStatus::new(Code::InvalidArgument, "no\tdomain").write(&mut headers);
        assert_eq!(headers["grpc-status"], "3");
        assert_eq!(headers["grpc-message"], "no%09domain");
        assert_eq!(ok_trailers()["grpc-status"], "0");
    }
}
