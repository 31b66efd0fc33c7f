//! Facts: the known values of a request when it is decided. Borrowed, nothing is copied.

use std::net::IpAddr;

use ratekeeper_core::Permits;

use crate::{Asn, BodyFields, Claims, Country, Descriptor};

/// The known values of one request. An empty value counts as missing.
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
    /// The client's country, if the caller knows it; `None`: `[geo]` of the policy finds it.
    pub country: Option<Country>,
    /// The client's network, if the caller knows it; `None`: `[geo]` of the policy finds it.
    pub network: Option<Asn>,
    /// In the order received; the case of names does not matter.
    pub headers: &'a [(&'a str, &'a [u8])],
    /// Cost of the request, from the caller; `None` means 1.
    pub cost: Option<Permits>,
    /// Attributes of the request, from the application.
    pub attributes: &'a [(&'a str, &'a str)],
    /// Values of the body, if the caller has read it. `None`: an attribute with the name of a field
    /// (`form:username`) stands for it.
    pub body: Option<&'a BodyFields<'a>>,
    /// Claims of a token that the caller has verified; `None` to let `[jwt]` of the policy verify
    /// the token in `headers`.
    pub claims: Option<&'a dyn Claims>,
    /// Names of the routes by which the caller can forward a request that a limit denies: limits
    /// with such an [`on_limit`](crate::Rule::on_limit) decide, and refuse nothing.
    pub routes: &'a [Box<str>],
    /// Descriptor to decide. With one, only limits on descriptors apply, and of the fields above
    /// only `cost` is read; without one, only the other limits apply.
    pub descriptor: Option<Descriptor<'a>>,
}

impl<'a> Facts<'a> {
    /// Returns the first header of that name.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    /// Returns the attribute of that name.
    pub fn attribute(&self, name: &str) -> Option<&'a str> {
        self.attributes
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| *value)
    }
}
