//! Head: a request without its body, as limits see it.
//!
//! To take a request apart into its [`Parts`] and to put it together again takes as long as a
//! decision in memory, so limits borrow what they need.

use http::request::Parts;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

/// The head of a request: the fields of [`Parts`], borrowed.
///
/// ```
/// use ratekeeper::tower::RequestHead;
///
/// let request = http::Request::post("/login").body("user=ann").unwrap();
/// let head = RequestHead::from(&request);
/// assert_eq!((head.method.as_str(), head.uri.path()), ("POST", "/login"));
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RequestHead<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// The values that the server and outer layers have added.
    pub extensions: &'a Extensions,
}

impl<'a, B> From<&'a Request<B>> for RequestHead<'a> {
    #[inline]
    fn from(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            version: request.version(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }
}

impl<'a> From<&'a Parts> for RequestHead<'a> {
    fn from(parts: &'a Parts) -> Self {
        Self {
            method: &parts.method,
            uri: &parts.uri,
            version: parts.version,
            headers: &parts.headers,
            extensions: &parts.extensions,
        }
    }
}
