//! Values: the forms of JSON that serde does not derive: bounded, and borrowed from the body.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::ops::Deref;
use std::str::FromStr;

use ratekeeper::{DecisionId, Permit};
use ratekeeper_core::{Permits, Quota};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use crate::doors::problem::shown;
use crate::serve::connection_state::MAX_HEADERS;

/// Maximum number of attributes of one check.
const MAX_ATTRIBUTES: usize = 100;
/// Whole numbers up to here are exact as floating-point numbers: 2^53. Larger ones of up to 64 bits
/// are read as integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// A string, borrowed from the body unless it holds an escape; serde does not borrow a `Cow` in
/// an `Option` or a list.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub(crate) struct BodyText<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for BodyText<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// Names and values.
pub(crate) type Pairs<'a> = Vec<(BodyText<'a>, BodyText<'a>)>;

/// Reads null like an absent field.
pub(crate) fn null_as_default<'a, D, T>(json: D) -> Result<T, D::Error>
where
    D: Deserializer<'a>,
    T: Deserialize<'a> + Default,
{
    Ok(Option::deserialize(json)?.unwrap_or_default())
}

/// An object; a derived struct alone also accepts a list of its values.
#[derive(Debug, Default)]
pub(crate) struct JsonObject<T>(pub(crate) T);

impl<T> Deref for JsonObject<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<'a, T: Deserialize<'a>> Deserialize<'a> for JsonObject<T> {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'a, T: Deserialize<'a>> Visitor<'a> for ObjectVisitor<T> {
    type Value = JsonObject<T>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }
    fn visit_map<M: MapAccess<'a>>(self, map: M) -> Result<JsonObject<T>, M::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(JsonObject)
    }
}

/// A list of at most `MAX` items, which is read no further than the first one too many.
#[derive(Debug, Default)]
pub(crate) struct BoundedList<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'a, T: Deserialize<'a>, const MAX: usize> Deserialize<'a> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'a>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(Self(Vec::new()))
    }
}

impl<'a, T: Deserialize<'a>, const MAX: usize> Visitor<'a> for BoundedList<T, MAX> {
    type Value = Self;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} items")
    }
    fn visit_seq<L: SeqAccess<'a>>(mut self, mut list: L) -> Result<Self, L::Error> {
        while let Some(item) = list.next_element()? {
            if self.0.len() == MAX {
                return Err(Error::invalid_length(MAX + 1, &self));
            }
            self.0.push(item);
        }
        Ok(self)
    }
}

/// Reads `cost`.
pub(crate) fn cost<'a, D: Deserializer<'a>>(json: D) -> Result<Option<Permits>, D::Error> {
    json.deserialize_any(CostVisitor)
}

/// Costs of a body: all that a limit may have, so that none is cut.
const COUNTABLE: &str = "a whole number from 0 to 9007199254740991";

fn countable<E: Error>(cost: u64) -> Result<Permits, E> {
    if cost > Quota::MAX_PERMITS {
        return Err(E::invalid_value(Unexpected::Unsigned(cost), &COUNTABLE));
    }
    Ok(Permits::new(cost))
}

struct CostVisitor;

impl Visitor<'_> for CostVisitor {
    type Value = Option<Permits>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(COUNTABLE)
    }
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
    fn visit_u64<E: Error>(self, cost: u64) -> Result<Self::Value, E> {
        countable(cost).map(Some)
    }
}

/// Reads `request.ip`.
pub(crate) fn address<'a, D: Deserializer<'a>>(json: D) -> Result<Option<IpAddr>, D::Error> {
    let text = Option::deserialize(json)?;
    let address = |text| parsed(&text, "an IP address such as \"192.0.2.1\"");
    text.map(address).transpose()
}

/// Reads an id of `permits`.
pub(crate) fn permit<'a, D: Deserializer<'a>>(json: D) -> Result<Permit, D::Error> {
    let text = BodyText::deserialize(json)?;
    parsed(&text, "a permit id that /v1/acquire returned")
}

/// Reads `decision`.
pub(crate) fn decision<'a, D: Deserializer<'a>>(json: D) -> Result<DecisionId, D::Error> {
    let text = BodyText::deserialize(json)?;
    parsed(&text, "a decision id that a check returned")
}

/// Reads `status` of a report.
pub(crate) fn status<'a, D: Deserializer<'a>>(json: D) -> Result<Option<u16>, D::Error> {
    let status = Option::<u16>::deserialize(json)?;
    let wrong = |status: u16| {
        let expected = "a status from 100 to 599";
        D::Error::invalid_value(Unexpected::Unsigned(status.into()), &expected)
    };
    match status {
        Some(status) if !(100..=599).contains(&status) => Err(wrong(status)),
        status => Ok(status),
    }
}

/// Reads `costs`: names and numbers.
pub(crate) fn costs<'a, D: Deserializer<'a>>(json: D) -> Result<Costs<'a>, D::Error> {
    json.deserialize_map(CostsVisitor)
}

/// Names of limits, and costs under them.
pub(crate) type Costs<'a> = Vec<(BodyText<'a>, Permits)>;

struct CostsVisitor;

impl<'a> Visitor<'a> for CostsVisitor {
    type Value = Costs<'a>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of at most {MAX_ATTRIBUTES} names and costs")
    }
    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Costs<'a>, M::Error> {
        let mut costs = Costs::new();
        while let Some((name, cost)) = map.next_entry::<BodyText<'a>, u64>()? {
            if costs.len() == MAX_ATTRIBUTES {
                return Err(Error::invalid_length(costs.len() + 1, &self));
            }
            if costs.iter().any(|(known, _)| *known == name) {
                let name = shown(&name);
                return Err(Error::custom(format_args!("duplicate field `{name}`")));
            }
            costs.push((name, countable(cost)?));
        }
        Ok(costs)
    }
}

fn parsed<T: FromStr, E: Error>(text: &BodyText<'_>, expected: &str) -> Result<T, E> {
    let wrong = |_| E::invalid_value(Unexpected::Str(text), &expected);
    text.parse().map_err(wrong)
}

/// Reads the name of an entry of a descriptor.
pub(crate) fn entry_key<'a, D: Deserializer<'a>>(json: D) -> Result<BodyText<'a>, D::Error> {
    let key = BodyText::deserialize(json)?;
    if key.is_empty() {
        return Err(Error::invalid_length(0, &"at least 1 character"));
    }
    Ok(key)
}

/// Reads `attributes`.
pub(crate) fn attributes<'a, D: Deserializer<'a>>(json: D) -> Result<Pairs<'a>, D::Error> {
    json.deserialize_any(PairsOf::Attributes)
}

/// Reads `request.headers`.
pub(crate) fn headers<'a, D: Deserializer<'a>>(json: D) -> Result<Pairs<'a>, D::Error> {
    json.deserialize_any(PairsOf::Headers)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PairsOf {
    Attributes,
    Headers,
}

impl PairsOf {
    const fn max(self) -> usize {
        match self {
            Self::Attributes => MAX_ATTRIBUTES,
            Self::Headers => MAX_HEADERS,
        }
    }
}

impl<'a> Visitor<'a> for PairsOf {
    type Value = Pairs<'a>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of at most {} fields", self.max())
    }
    fn visit_unit<E>(self) -> Result<Pairs<'a>, E> {
        Ok(Pairs::new())
    }
    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Pairs<'a>, M::Error> {
        let mut pairs = Pairs::new();
        while let Some(name) = map.next_key::<BodyText<'a>>()? {
            // A header may stand on several lines; an attribute has one value.
            if self == Self::Attributes && pairs.iter().any(|(known, _)| *known == name) {
                let name = shown(&name);
                return Err(Error::custom(format_args!("duplicate field `{name}`")));
            }
            if pairs.len() == self.max() {
                return Err(Error::invalid_length(pairs.len() + 1, &self));
            }
            let value = match self {
                Self::Attributes => map.next_value_seed(Scalar)?,
                Self::Headers => map.next_value()?,
            };
            if let Some(value) = value {
                pairs.push((name, value));
            }
        }
        Ok(pairs)
    }
}

/// The value of an attribute: a string, or a number or boolean as its text; `None` for null.
struct Scalar;

impl<'a> DeserializeSeed<'a> for Scalar {
    type Value = Option<BodyText<'a>>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Scalar {
    type Value = Option<BodyText<'a>>;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, number or boolean")
    }
    fn visit_borrowed_str<E: Error>(self, text: &'a str) -> Result<Self::Value, E> {
        Ok(Some(BodyText(text.into())))
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.visit_string(text.to_owned())
    }
    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(Some(BodyText(text.into())))
    }
    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        self.visit_borrowed_str(if value { "true" } else { "false" })
    }
    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        self.visit_string(value.to_string())
    }
    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        self.visit_string(value.to_string())
    }
    /// Refuses numbers that were rounded to others: their keys would share a counter.
    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        if value.abs() > EXACT {
            let expected = "a number of at most 64 bits, or a string";
            return Err(E::invalid_value(Unexpected::Float(value), &expected));
        }
        self.visit_string(value.to_string())
    }
    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}
