//! Message: the interface of the layer to requests and answers.
//!
//! ```text
//!   http::Request<B>, B: Clone   again: always            answers: http::Response
//!   reqwest::Request             again: unless a stream   answers: reqwest::Response
//! ```

use http::{HeaderMap, Method, Request, Response, StatusCode};

use super::settings::CallOptions;

/// A request that the layer can send.
pub trait Outgoing: Sized + Send + 'static {
    /// Its method, which decides if it may be sent twice, unless options do.
    fn method(&self) -> &Method;
    /// Its header.
    fn headers(&self) -> &HeaderMap;
    /// Its header, where the deadline is written.
    fn headers_mut(&mut self) -> &mut HeaderMap;
    /// Options of its own, if it carries any.
    fn options(&self) -> Option<&CallOptions>;
    /// Returns the same request once more; `None` if its body can be sent only once. Then it is.
    fn again(&self) -> Option<Self>;
}

/// An answer to such a request.
pub trait Answered: Send + 'static {
    /// Its status.
    fn status(&self) -> StatusCode;
    /// Its header: `Retry-After` is read there.
    fn headers(&self) -> &HeaderMap;
}

impl<B: Clone + Send + 'static> Outgoing for Request<B> {
    fn method(&self) -> &Method {
        self.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    fn options(&self) -> Option<&CallOptions> {
        self.extensions().get()
    }

    fn again(&self) -> Option<Self> {
        Some(self.clone())
    }
}

impl<R: Send + 'static> Answered for Response<R> {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}

/// Its time-out, if it has one, applies to each attempt.
#[cfg(feature = "reqwest")]
impl Outgoing for reqwest::Request {
    fn method(&self) -> &Method {
        self.method()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }

    fn headers_mut(&mut self) -> &mut HeaderMap {
        self.headers_mut()
    }

    fn options(&self) -> Option<&CallOptions> {
        None // its extensions are private
    }

    fn again(&self) -> Option<Self> {
        self.try_clone()
    }
}

#[cfg(feature = "reqwest")]
impl Answered for reqwest::Response {
    fn status(&self) -> StatusCode {
        self.status()
    }

    fn headers(&self) -> &HeaderMap {
        self.headers()
    }
}
