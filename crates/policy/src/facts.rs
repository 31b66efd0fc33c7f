//! Facts: what is known about a request when it is decided. Borrowed, nothing is copied.

use std::net::IpAddr;

use ratekeeper_core::Permits;

/// What is known about one request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// `GET`, `POST`; empty if unknown.
    pub method: &'a str,
    /// Host without port, lower case; empty if unknown.
    pub host: &'a str,
    /// Path as received, without the query; it is normalised before it is matched.
    pub path: &'a str,
    /// Query string without `?`.
    pub query: &'a str,
    /// The client's address, already identified (see [`crate::ClientIp`]).
    pub ip: Option<IpAddr>,
    /// Names in lower case, in the order received.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// What the caller says the request costs; none: 1.
    pub cost: Option<Permits>,
    /// What the application says about the request.
    pub attributes: &'a [(&'a str, &'a str)],
}

impl<'a> Facts<'a> {
    /// The first header of that name (lower case).
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| *v)
    }

    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| *v)
    }
}
