//! Facts: what is known about a request when it is decided. Borrowed, nothing is copied.

use std::net::IpAddr;

use ratekeeper_core::Permits;

use crate::Descriptor;

/// What is known about one request. A value that is empty counts as missing.
///
/// ```
/// use ratekeeper_policy::Facts;
/// let facts = Facts {
///     method: "POST",
///     path: "/login",
///     headers: &[("x-user-id", b"u1")],
///     ..Facts::default()
/// };
/// assert_eq!(facts.header("x-user-id"), Some(&b"u1"[..]));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// `GET`, `POST`; empty if unknown.
    pub method: &'a str,
    /// Host as received; empty if unknown. Case, port and a dot at its end do not matter.
    pub host: &'a str,
    /// Path as received, without the query; it is normalised before it is matched.
    pub path: &'a str,
    /// Query string without `?`.
    pub query: &'a str,
    /// The client's address, already identified (see [`crate::ClientIp`]).
    pub ip: Option<IpAddr>,
    /// In the order received; the case of names does not matter.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// What the caller says the request costs; none: 1.
    pub cost: Option<Permits>,
    /// What the application says about the request.
    pub attributes: &'a [(&'a str, &'a str)],
    /// The descriptor that is asked about. With one, only limits on descriptors apply, and
    /// nothing above is looked at but `cost`; without one, only the others.
    pub descriptor: Option<Descriptor<'a>>,
}

impl<'a> Facts<'a> {
    /// The first header of that name.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    /// The attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| *value)
    }
}
