//! Values: the leaves of the JSON of a check, each named by its path if it is wrong.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;

use ratekeeper::Permit;
use ratekeeper_core::Permits;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use crate::doors::problem::shown;
use crate::listener::MAX_HEADERS;

/// Maximum number of attributes of one check.
const MAX_ATTRIBUTES: usize = 100;
/// Maximum number of names in `limits`.
const MAX_NAMES: usize = 100;
/// Maximum number of ids in `permits`.
const MAX_PERMITS: usize = 1_000;

/// Borrowed from the body unless it holds an escape.
pub(crate) type BodyText<'a> = Cow<'a, str>;
/// Names and values.
pub(crate) type Pairs<'a> = SmallVec<[(BodyText<'a>, BodyText<'a>); 8]>;

/// The `Display` of a seed is its expectation; this makes the visitor say so.
macro_rules! expecting_as_shown {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(self, f)
        }
    };
}

pub(crate) use expecting_as_shown;

/// Reads a value that may be null, which is the same as absent.
pub(crate) fn optional<'a, M, S>(map: &mut M, seed: S) -> Result<Option<S::Value>, M::Error>
where
    M: MapAccess<'a>,
    S: DeserializeSeed<'a> + fmt::Display,
{
    map.next_value_seed(Nullable(seed))
}

struct Nullable<S>(S);

impl<'a, S: DeserializeSeed<'a> + fmt::Display> DeserializeSeed<'a> for Nullable<S> {
    type Value = Option<S::Value>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_option(self)
    }
}

impl<'a, S: DeserializeSeed<'a> + fmt::Display> Visitor<'a> for Nullable<S> {
    type Value = Option<S::Value>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_some<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(json).map(Some)
    }
}

/// A string, borrowed if it holds no escape; with the path it stands at.
#[derive(Clone, Copy)]
pub(crate) struct TextAt(pub(crate) &'static str);

impl fmt::Display for TextAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string for `{}`", self.0)
    }
}

impl<'a> DeserializeSeed<'a> for TextAt {
    type Value = BodyText<'a>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<BodyText<'a>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for TextAt {
    type Value = BodyText<'a>;
    expecting_as_shown!();
    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<BodyText<'a>, E> {
        Ok(Cow::Borrowed(text))
    }
    fn visit_str<E>(self, text: &str) -> Result<BodyText<'a>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// `request.ip`
pub(crate) struct AddressField;

impl fmt::Display for AddressField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an IP address such as \"192.0.2.1\" for `request.ip`")
    }
}

impl<'a> DeserializeSeed<'a> for AddressField {
    type Value = IpAddr;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<IpAddr, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for AddressField {
    type Value = IpAddr;
    expecting_as_shown!();
    fn visit_str<E: de::Error>(self, text: &str) -> Result<IpAddr, E> {
        let wrong = |_| E::invalid_value(de::Unexpected::Str(text), &self);
        text.parse().map_err(wrong)
    }
}

/// `cost`
pub(crate) struct CostField;

impl fmt::Display for CostField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 4294967295 for `cost`")
    }
}

impl<'a> DeserializeSeed<'a> for CostField {
    type Value = Permits;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Permits, D::Error> {
        json.deserialize_u32(self)
    }
}

impl Visitor<'_> for CostField {
    type Value = Permits;
    expecting_as_shown!();
    fn visit_u64<E: de::Error>(self, cost: u64) -> Result<Permits, E> {
        let wrong = |_| E::invalid_value(de::Unexpected::Unsigned(cost), &self);
        u32::try_from(cost).map(Permits::new).map_err(wrong)
    }
    fn visit_i64<E: de::Error>(self, cost: i64) -> Result<Permits, E> {
        Err(E::invalid_value(de::Unexpected::Signed(cost), &self))
    }
}

/// `attributes`, `request.headers`: names and values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairsOf {
    Attributes,
    Headers,
}

impl PairsOf {
    /// Returns a seed that reads the pairs into `into`.
    pub(crate) fn read<'p, 'a>(self, into: &'p mut Pairs<'a>) -> PairsInto<'p, 'a> {
        PairsInto { of: self, into }
    }
    const fn max(self) -> usize {
        match self {
            Self::Attributes => MAX_ATTRIBUTES,
            Self::Headers => MAX_HEADERS,
        }
    }
    const fn path(self) -> &'static str {
        match self {
            Self::Attributes => "attributes",
            Self::Headers => "request.headers",
        }
    }
}

impl fmt::Display for PairsOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (max, path) = (self.max(), self.path());
        write!(f, "an object of at most {max} fields for `{path}`")
    }
}

/// Fills `into`, which is empty, with the pairs read.
pub(crate) struct PairsInto<'p, 'a> {
    of: PairsOf,
    into: &'p mut Pairs<'a>,
}

impl fmt::Display for PairsInto<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.of.fmt(f)
    }
}

impl<'a> DeserializeSeed<'a> for PairsInto<'_, 'a> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for PairsInto<'_, 'a> {
    type Value = ();
    expecting_as_shown!();

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
        let of = self.of;
        while let Some(mut name) = map.next_key_seed(TextAt(of.path()))? {
            if of == PairsOf::Headers && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                name.to_mut().make_ascii_lowercase();
            }
            // A header may stand on several lines; an attribute has one value.
            if of == PairsOf::Attributes && self.into.iter().any(|(known, _)| *known == name) {
                let name = shown(&name);
                return Err(de::Error::custom(format_args!(
                    "attribute `{name}` occurs twice"
                )));
            }
            if self.into.len() == of.max() {
                return Err(de::Error::invalid_length(self.into.len() + 1, &self));
            }
            let value = match of {
                PairsOf::Attributes => map.next_value_seed(Scalar)?,
                PairsOf::Headers => map.next_value_seed(Nullable(TextAt("request.headers")))?,
            };
            if let Some(value) = value {
                self.into.push((name, value));
            }
        }
        Ok(())
    }
}

/// The value of an attribute: a string, or a number or boolean as its text; `None` for null.
struct Scalar;

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, number or boolean for an attribute")
    }
}

impl<'a> DeserializeSeed<'a> for Scalar {
    type Value = Option<BodyText<'a>>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Scalar {
    type Value = Option<BodyText<'a>>;
    expecting_as_shown!();
    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(text)))
    }
    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(text.to_owned())))
    }
    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(Cow::Borrowed(if value { "true" } else { "false" })))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(value.to_string())))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(value.to_string())))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Some(Cow::Owned(value.to_string())))
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// `limits`
pub(crate) struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {MAX_NAMES} names for `limits`")
    }
}

impl<'a> DeserializeSeed<'a> for Names {
    type Value = SmallVec<[BodyText<'a>; 4]>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Names {
    type Value = SmallVec<[BodyText<'a>; 4]>;
    expecting_as_shown!();

    fn visit_seq<L: SeqAccess<'a>>(self, mut list: L) -> Result<Self::Value, L::Error> {
        let mut names = SmallVec::new();
        while let Some(name) = list.next_element_seed(TextAt("limits"))? {
            if names.len() == MAX_NAMES {
                return Err(de::Error::invalid_length(names.len() + 1, &self));
            }
            names.push(name);
        }
        if names.is_empty() {
            return Err(de::Error::invalid_length(0, &self));
        }
        Ok(names)
    }
}

/// `permits`: may be empty, because a client that took nothing gives nothing back.
pub(crate) struct PermitIds;

impl fmt::Display for PermitIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a list of at most {MAX_PERMITS} permit ids for `permits`"
        )
    }
}

impl<'a> DeserializeSeed<'a> for PermitIds {
    type Value = Vec<Permit>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for PermitIds {
    type Value = Vec<Permit>;
    expecting_as_shown!();
    fn visit_seq<L: SeqAccess<'a>>(self, mut list: L) -> Result<Self::Value, L::Error> {
        let mut permits = Vec::new();
        while let Some(id) = list.next_element_seed(TextAt("permits"))? {
            if permits.len() == MAX_PERMITS {
                return Err(de::Error::invalid_length(permits.len() + 1, &self));
            }
            let wrong = |error| {
                let id = shown(&id);
                de::Error::custom(format_args!("`permits` holds `{id}`, {error}"))
            };
            permits.push(id.parse().map_err(wrong)?);
        }
        Ok(permits)
    }
}
