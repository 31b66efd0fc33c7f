//! Values: those of a request for a key part, in one spelling, and as a key holds them.

use ratekeeper_core::Key;
use smallvec::SmallVec;

use super::{KeyPart, prefix};
use crate::model::keys::stated::{self, Stated, StatedPlace};
use crate::{
    BodyValue, Facts, KeyBytes, Matcher, PathCase, RequestFacts, http::network, model::keys::value,
};

/// Values that a key part depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// Chooses the readings of the path that count.
    pub(crate) matcher: &'a Matcher,
    pub(crate) ipv6_prefix: u8,
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

/// Maximum length of a value that is compared with others before they are hashed.
const SHORT: usize = 64;

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
        let start = out.len();
        let (mut is_missing, mut differs) = (false, false);
        // A cookie line has room for hundreds of equal values, and each hash takes its time.
        let mut first = SmallVec::<[u8; SHORT]>::new();
        let found = self.each_value(request, around, |value| {
            if value.is_empty() {
                is_missing = true;
            } else if out.len() == start {
                self.write_value(value, around.ipv6_prefix, out);
                if value.len() <= SHORT {
                    first.extend_from_slice(value);
                }
            } else if !differs && first[..] != *value {
                let mut other = KeyBytes::default();
                self.write_value(value, around.ipv6_prefix, &mut other);
                differs = other[..] != out[start..];
            }
        });
        match found {
            Err(AmbiguousBody) => PartValue::Ambiguous,
            Ok(()) if *self == Self::All => PartValue::Written,
            Ok(()) if out.len() == start => PartValue::Missing,
            Ok(()) if differs || is_missing => PartValue::FirstOfSeveral,
            Ok(()) => PartValue::Written,
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
            if !all.contains(&bytes) {
                all.push(bytes);
            }
            all.len() < max
        };
        if matches!(self, Self::Ip { .. } | Self::All) {
            let mut bytes = KeyBytes::default();
            match self.write(request, around, &mut bytes) {
                PartValue::Missing => is_missing = true,
                _ => {
                    add(bytes);
                }
            }
        } else {
            let (mut seen, mut has_room) = (Vec::new(), true);
            self.each_value(request, around, |value| {
                if value.is_empty() {
                    is_missing = true;
                } else if has_room && !seen.iter().any(|it| it == value) {
                    seen.push(value.to_vec());
                    let mut bytes = KeyBytes::default();
                    self.write_value(value, around.ipv6_prefix, &mut bytes);
                    has_room = add(bytes);
                }
            })?;
        }
        if is_missing || all.is_empty() {
            all.push(None);
        }
        Ok(all)
    }

    /// Calls `take` with each value of this part, in one spelling and before a key holds its hash;
    /// with an empty one if an application may find none. Addresses are left out.
    fn each_value(
        &self,
        request: &RequestFacts<'_>,
        around: Around<'_>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), AmbiguousBody> {
        let facts = request.facts;
        let take_normal = |value: Stated<'_>| take(value.normal);
        match self {
            Self::All | Self::Ip { .. } => {}
            Self::Bearer => stated::each_bearer(facts, take),
            Self::ApiKey => {
                // An empty value says that an application may find none in this place.
                let [mut by_header, mut by_bearer] = [None; 2];
                let mut take_found = |value: &[u8], is_certain: &mut Option<bool>| {
                    *is_certain = Some(is_certain.unwrap_or(true) && !value.is_empty());
                    if !value.is_empty() {
                        take(value);
                    }
                };
                StatedPlace::Header("x-api-key")
                    .each(facts, |value| take_found(value.normal, &mut by_header));
                stated::each_bearer(facts, |value| take_found(value, &mut by_bearer));
                if by_header != Some(true) && by_bearer != Some(true) {
                    take(b"");
                }
            }
            Self::Cookie(name) => StatedPlace::Cookie(name).each(facts, take_normal),
            Self::Header(name) => StatedPlace::Header(name).each(facts, take_normal),
            Self::Query(name) => StatedPlace::Query(name).each(facts, take_normal),
            Self::Path | Self::Route => around.matcher.each_path(request, |path, route| {
                take(match route {
                    Some(route) if *self == Self::Route => route.as_bytes(),
                    _ => path,
                });
            }),
            Self::Method => take(request.method()),
            Self::Host => take(request.host()),
            Self::Country => take(request.country().code().as_bytes()),
            Self::Continent => take(request.country().continent().as_bytes()),
            Self::Asn => take(request.network()),
            Self::Attribute(name) => take(request.attribute(name).unwrap_or_default().as_bytes()),
            Self::Claim(name) => take(request.claim(name).unwrap_or_default().as_bytes()),
            Self::Body(field) => match request.body(field) {
                BodyValue::Text(text) => take(text.as_bytes()),
                BodyValue::Absent | BodyValue::Other => {
                    // Some applications read a field of a form in the query, too.
                    field.each_in_query(facts, take_normal);
                    take(b"");
                }
                BodyValue::Ambiguous => return Err(AmbiguousBody),
            },
            Self::Descriptor(name) => {
                let descriptor = request.facts.descriptor.as_ref();
                let value = descriptor.and_then(|descriptor| name.of(descriptor));
                take(value.unwrap_or_default().as_bytes());
            }
        }
        Ok(())
    }

    /// Appends a value in one spelling to a key. Addresses that Envoy sends are cut to the prefix,
    /// as those of clients are.
    pub(super) fn write_value(&self, value: &[u8], ipv6_prefix: u8, out: &mut KeyBytes) {
        let is_address = matches!(self, Self::Descriptor(name) if name.key() == "remote_address");
        let text = std::str::from_utf8(value).ok().filter(|_| is_address);
        match text.and_then(|text| text.parse().ok()) {
            Some(ip) => value::write_ip(network::address(ip), prefix(None, ipv6_prefix), out),
            None if self.is_secret() => value::write_hashed(value, out),
            None => value::write_text(value, out),
        }
    }

    /// Returns the value of a request that a key holds as a hash: a secret, or a long one. `None` for
    /// addresses, which are never hashed.
    pub(crate) fn unhashed(
        &self,
        hash: &[u8],
        request: &RequestFacts<'_>,
        around: Around<'_>,
    ) -> Option<Vec<u8>> {
        let mut found = None;
        let values = self.each_value(request, around, |value| {
            let mut bytes = KeyBytes::default();
            self.write_value(value, around.ipv6_prefix, &mut bytes);
            if Key::from_bytes(&bytes).parts().next() == Some(hash) {
                found = Some(value.to_vec());
            }
        });
        values.ok().and(found)
    }

    /// Appends the value of a part that a key holds in one spelling.
    pub(crate) fn write_fact(&self, facts: &Facts<'_>, path_case: PathCase, out: &mut KeyBytes) {
        let matcher = Matcher {
            path_case,
            ..Matcher::default()
        };
        let around = Around {
            matcher: &matcher,
            ipv6_prefix: 128,
        };
        self.write(&RequestFacts::new(facts), around, out);
    }
}
