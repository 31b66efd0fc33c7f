//! Unhashed: the value of a request for a key part, before a key holds its hash.

use super::{Around, KeyPart, bearer};
use crate::body::BodyValue;
use crate::path::Normal;
use crate::request::{RequestFacts, decoded};

impl KeyPart {
    /// Returns the value of a request for this part as it was before a key held its hash: values of
    /// secrets, and long ones. `None` for addresses, which are never hashed, and for `route`.
    pub(crate) fn unhashed<'a>(
        &self,
        request: &'a RequestFacts<'_>,
        around: Around<'_>,
    ) -> Option<Normal<'a>> {
        let value = match self {
            Self::All | Self::Ip { .. } | Self::Route => return None,
            Self::Query(name) => return request.queries(name).next().map(decoded),
            Self::Bearer => bearer(request)?,
            Self::ApiKey => around.credential.of(request)?,
            Self::Cookie(name) => request.cookies(name).next()?,
            Self::Header(name) => request.headers(name).next()?,
            Self::Path => request.path(around.path_case),
            Self::Method => request.method(),
            Self::Host => request.host(),
            Self::Country => request.country().code().as_bytes(),
            Self::Continent => request.country().continent().as_bytes(),
            Self::Asn => request.network(),
            Self::Attribute(name) => request.attribute(name)?.as_bytes(),
            Self::Claim(name) => request.claim(name)?.as_bytes(),
            Self::Body(field) => match request.body(field) {
                BodyValue::Text(text) => text.as_bytes(),
                BodyValue::Absent | BodyValue::Ambiguous => return None,
            },
            Self::Descriptor(name) => {
                let descriptor = request.facts.descriptor.as_ref()?;
                name.of(descriptor)?.as_bytes()
            }
        };
        Some(Normal::Borrowed(value))
    }
}
