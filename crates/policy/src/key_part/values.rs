//! Values: those of a request for a key part, in one spelling, and as a key holds them.

use ratekeeper_core::Key;

use super::{KeyPart, is_credential_header, prefix};
use crate::body::BodyValue;
use crate::path::Normal;
use crate::request::RequestFacts;
use crate::{Facts, KeyBytes, PathCase, stated, value};

/// Values that a key part depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// The value of `match.path` that matched.
    pub(crate) route: Option<&'a str>,
    pub(crate) ipv6_prefix: u8,
    pub(crate) path_case: PathCase,
}

/// Result of writing a key part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartValue {
    Written,
    /// The request states others, of which the application may read any.
    FirstOfSeveral,
    Missing,
    /// The body states two values.
    Ambiguous,
}

/// The body of a request states two values of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct AmbiguousBody;

impl KeyPart {
    /// Appends the first value of this part to the key, if the request has one.
    pub(crate) fn write(
        &self,
        request: &RequestFacts<'_>,
        around: Around<'_>,
        out: &mut KeyBytes,
    ) -> PartValue {
        if let Self::Ip { bits } = self {
            let Some(ip) = request.ip else {
                return PartValue::Missing;
            };
            value::write_ip(ip, prefix(*bits, around.ipv6_prefix), out);
            return PartValue::Written;
        }
        let (mut first, mut is_missing, mut differs) = (None::<Normal<'_>>, false, false);
        let found = self.each_value(request, around, |value| match &first {
            _ if value.as_bytes().is_empty() => is_missing = true,
            Some(first) => differs |= first.as_bytes() != value.as_bytes(),
            None => first = Some(value),
        });
        let first = match (found, first) {
            (Err(AmbiguousBody), _) => return PartValue::Ambiguous,
            (Ok(()), None) if *self == Self::All => return PartValue::Written,
            (Ok(()), None) => return PartValue::Missing,
            (Ok(()), Some(first)) => first,
        };
        self.write_value(first.as_bytes(), out);
        if differs || is_missing {
            PartValue::FirstOfSeveral
        } else {
            PartValue::Written
        }
    }

    /// Returns each value of this part as a key holds it, at most `max`; `None` for a missing one.
    pub(crate) fn all(
        &self,
        request: &RequestFacts<'_>,
        around: Around<'_>,
        max: usize,
    ) -> Result<Vec<Option<KeyBytes>>, AmbiguousBody> {
        let (mut all, mut is_missing) = (Vec::new(), false);
        let mut add = |bytes: KeyBytes| {
            let bytes = Some(bytes);
            if all.len() < max && !all.contains(&bytes) {
                all.push(bytes);
            }
        };
        if matches!(self, Self::Ip { .. } | Self::All) {
            let mut bytes = KeyBytes::default();
            match self.write(request, around, &mut bytes) {
                PartValue::Missing => is_missing = true,
                _ => add(bytes),
            }
        } else {
            self.each_value(request, around, |value| {
                if value.as_bytes().is_empty() {
                    is_missing = true;
                } else {
                    let mut bytes = KeyBytes::default();
                    self.write_value(value.as_bytes(), &mut bytes);
                    add(bytes);
                }
            })?;
        }
        if is_missing || all.is_empty() {
            all.push(None);
        }
        Ok(all)
    }

    /// Calls `take` with each value of this part, in one spelling and before a key holds its hash;
    /// with an empty one if it is missing. Addresses are left out.
    fn each_value<'a>(
        &self,
        request: &'a RequestFacts<'_>,
        around: Around<'a>,
        mut take: impl FnMut(Normal<'a>),
    ) -> Result<(), AmbiguousBody> {
        let plain = Normal::Borrowed;
        let text = match self {
            Self::All | Self::Ip { .. } => return Ok(()),
            Self::Bearer => {
                let lines = request.headers("authorization");
                lines.for_each(|line| take(plain(stated::bearer(line))));
                return Ok(());
            }
            Self::ApiKey => {
                let lines = request.headers("authorization").map(stated::bearer);
                let values = request.headers("x-api-key").chain(lines);
                values
                    .filter(|value| !value.is_empty())
                    .for_each(|value| take(plain(value)));
                return Ok(());
            }
            Self::Cookie(name) => {
                request
                    .cookies(name)
                    .for_each(|value| take(stated::cookie(value)));
                return Ok(());
            }
            Self::Header(name) if is_credential_header(name) => {
                for value in request.headers(name) {
                    take(stated::credentials(value));
                    if let Some(value) = stated::up_to_padding(value) {
                        take(stated::credentials(value));
                    }
                }
                return Ok(());
            }
            Self::Header(name) => {
                request.headers(name).for_each(|value| take(plain(value)));
                return Ok(());
            }
            Self::Query(name) => {
                request
                    .queries(name)
                    .for_each(|value| take(stated::decoded(value)));
                return Ok(());
            }
            Self::Path => request.path(around.path_case),
            Self::Route => around
                .route
                .map_or_else(|| request.path(around.path_case), str::as_bytes),
            Self::Method => request.method(),
            Self::Host => request.host(),
            Self::Country => request.country().code().as_bytes(),
            Self::Continent => request.country().continent().as_bytes(),
            Self::Asn => request.network(),
            Self::Attribute(name) => request.attribute(name).unwrap_or_default().as_bytes(),
            Self::Claim(name) => request.claim(name).unwrap_or_default().as_bytes(),
            Self::Body(field) => match request.body(field) {
                BodyValue::Text(text) => text.as_bytes(),
                BodyValue::Absent => b"",
                BodyValue::Ambiguous => return Err(AmbiguousBody),
            },
            Self::Descriptor(name) => {
                let descriptor = request.facts.descriptor.as_ref();
                let value = descriptor.and_then(|descriptor| name.of(descriptor));
                value.unwrap_or_default().as_bytes()
            }
        };
        take(plain(text));
        Ok(())
    }

    /// Appends a value in one spelling to a key.
    pub(super) fn write_value(&self, value: &[u8], out: &mut KeyBytes) {
        if self.is_secret() {
            value::write_hashed(value, out);
        } else {
            value::write_text(value, out);
        }
    }

    /// Returns the value of a request that a key holds as a hash: a secret, or a long one. `None` for
    /// addresses, which are never hashed, and for `route`.
    pub(crate) fn unhashed<'a>(
        &self,
        hash: &[u8],
        request: &'a RequestFacts<'_>,
        around: Around<'a>,
    ) -> Option<Normal<'a>> {
        let mut found = None;
        let values = self.each_value(request, around, |value| {
            let mut bytes = KeyBytes::default();
            self.write_value(value.as_bytes(), &mut bytes);
            if Key::from_bytes(&bytes).parts().next() == Some(hash) {
                found = Some(value);
            }
        });
        values.ok().and(found)
    }

    /// Appends the value of a part that a key holds in one spelling.
    pub(crate) fn write_fact(&self, facts: &Facts<'_>, path_case: PathCase, out: &mut KeyBytes) {
        let around = Around {
            route: None,
            ipv6_prefix: 128,
            path_case,
        };
        self.write(&RequestFacts::new(facts), around, out);
    }
}
