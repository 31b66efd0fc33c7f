//! Request: the JSON of a check, borrowed from the bytes it came in.
//!
//! Read by hand-written visitors, so that a wrong field is named by its path, an unknown
//! one by its near spelling, and nothing is copied unless it holds an escape.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;

use ratekeeper_core::Permits;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::problem::{
    NOT_JSON, Problem, ProblemKind, UNKNOWN_FIELD, WRONG_VALUE, near_spelling, shown,
};
use crate::listener::MAX_HEADERS;

/// Attributes of one check.
const MAX_ATTRIBUTES: usize = 100;
/// Names in `limits`.
const MAX_NAMES: usize = 100;
/// Checks in a batch.
pub(super) const MAX_CHECKS: usize = 1000;

type Text<'a> = Cow<'a, str>;
pub(super) type Pairs<'a> = SmallVec<[(Text<'a>, Text<'a>); 8]>;

/// `{"request": .., "attributes": .., "cost": .., "limits": ..}`
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Check<'a> {
    pub(super) method: Text<'a>,
    pub(super) path: Text<'a>,
    pub(super) host: Text<'a>,
    pub(super) query: Text<'a>,
    /// The peer as the application saw it.
    pub(super) ip: Option<IpAddr>,
    /// Names in lower case.
    pub(super) headers: Pairs<'a>,
    pub(super) attributes: Pairs<'a>,
    pub(super) cost: Option<Permits>,
    pub(super) limits: Option<SmallVec<[Text<'a>; 4]>>,
}

/// Reads one check.
pub(super) fn check(body: &[u8]) -> Result<Check<'_>, Problem> {
    let blame = Cell::new(WRONG_VALUE);
    read(body, Object::<Check<'_>>::new(&blame), &blame)
}

/// Reads a batch.
pub(super) fn batch(body: &[u8]) -> Result<Vec<Check<'_>>, Problem> {
    let blame = Cell::new(WRONG_VALUE);
    read(body, Object::<Batch<'_>>::new(&blame), &blame).map(|batch| batch.0)
}

/// What to call an error that the parser reports.
type Blame = Cell<ProblemKind>;

fn read<'a, S: DeserializeSeed<'a>>(
    body: &'a [u8],
    seed: S,
    blame: &Blame,
) -> Result<S::Value, Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        let detail = "the body is empty; `{}` asks about a request of which nothing is known";
        return Err(Problem::new(NOT_JSON, detail));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let value = seed.deserialize(&mut json);
    let value = value.and_then(|value| json.end().map(|()| value));
    value.map_err(|error| {
        let kind = match error.classify() {
            serde_json::error::Category::Data => blame.get(),
            _ => NOT_JSON,
        };
        Problem::new(kind, message(&error))
    })
}

/// The parser's message; one that quotes a long value is cut, its position kept.
fn message(error: &serde_json::Error) -> String {
    /// Longest message passed on whole.
    const MAX_MESSAGE: usize = 300;
    let whole = error.to_string();
    if whole.len() <= MAX_MESSAGE {
        return whole;
    }
    let (line, column) = (error.line(), error.column());
    format!("{} at line {line} column {column}", shown(&whole))
}

/// An object with a closed set of fields.
trait Fields<'a>: Default {
    /// What it is called in messages.
    const PLACE: &'static str;
    /// At most 32.
    const NAMES: &'static [&'static str];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        blame: &Blame,
    ) -> Result<(), M::Error>;
}

impl<'a> Fields<'a> for Check<'a> {
    const PLACE: &'static str = "the check";
    const NAMES: &'static [&'static str] = &["request", "attributes", "cost", "limits"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        blame: &Blame,
    ) -> Result<(), M::Error> {
        match name {
            "request" => {
                if let Some(request) = optional(map, Object::<Request<'a>>::new(blame))? {
                    let Request(read) = request;
                    self.method = read.method;
                    self.path = read.path;
                    self.host = read.host;
                    self.query = read.query;
                    self.ip = read.ip;
                    self.headers = read.headers;
                }
            }
            "attributes" => {
                self.attributes = optional(map, PairsOf::Attributes)?.unwrap_or_default();
            }
            "cost" => self.cost = optional(map, Cost)?,
            _ => self.limits = optional(map, Names)?,
        }
        Ok(())
    }
}

/// The fields of a check that lie in `request`.
#[derive(Default)]
struct Request<'a>(Check<'a>);

impl<'a> Fields<'a> for Request<'a> {
    const PLACE: &'static str = "`request`";
    const NAMES: &'static [&'static str] = &["method", "path", "host", "ip", "query", "headers"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        _blame: &Blame,
    ) -> Result<(), M::Error> {
        let request = &mut self.0;
        let mut text = |path| Ok(optional(map, TextAt(path))?.unwrap_or_default());
        match name {
            "method" => request.method = text("request.method")?,
            "path" => request.path = text("request.path")?,
            "host" => request.host = text("request.host")?,
            "query" => request.query = text("request.query")?,
            "ip" => request.ip = optional(map, Address)?,
            _ => request.headers = optional(map, PairsOf::Headers)?.unwrap_or_default(),
        }
        Ok(())
    }
}

/// `{"checks": [..]}`
#[derive(Default)]
struct Batch<'a>(Vec<Check<'a>>);

impl<'a> Fields<'a> for Batch<'a> {
    const PLACE: &'static str = "the batch";
    const NAMES: &'static [&'static str] = &["checks"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        _name: &str,
        map: &mut M,
        blame: &Blame,
    ) -> Result<(), M::Error> {
        self.0 = map.next_value_seed(Checks(blame))?;
        Ok(())
    }
}

/// A value that may be null, which is the same as absent.
fn optional<'a, M, S>(map: &mut M, seed: S) -> Result<Option<S::Value>, M::Error>
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

/// A seed is shown as what it expects; this makes the visitor say so.
macro_rules! expecting_as_shown {
    () => {
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(self, f)
        }
    };
}

struct Object<'b, F> {
    blame: &'b Blame,
    fields: F,
}

impl<'b, F: Default> Object<'b, F> {
    fn new(blame: &'b Blame) -> Self {
        Self {
            blame,
            fields: F::default(),
        }
    }
}

impl<'a, F: Fields<'a>> fmt::Display for Object<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object as {}", F::PLACE)
    }
}

impl<'a, F: Fields<'a>> DeserializeSeed<'a> for Object<'_, F> {
    type Value = F;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<F, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a, F: Fields<'a>> Visitor<'a> for Object<'_, F> {
    type Value = F;
    expecting_as_shown!();

    fn visit_map<M: MapAccess<'a>>(mut self, mut map: M) -> Result<F, M::Error> {
        let mut seen = 0u32;
        while let Some(name) = map.next_key_seed(TextAt("a field name"))? {
            let known = F::NAMES.iter().position(|known| *known == name);
            let Some(index) = known else {
                self.blame.set(UNKNOWN_FIELD);
                let near = near_spelling(&name, F::NAMES.iter().copied());
                let (name, names) = (shown(&name), F::NAMES.join(", "));
                return Err(de::Error::custom(format_args!(
                    "unknown field `{name}` in {}{near} (known: {names})",
                    F::PLACE
                )));
            };
            if seen & (1 << index) != 0 {
                return Err(de::Error::custom(format_args!(
                    "field `{name}` stands twice in {}",
                    F::PLACE
                )));
            }
            seen |= 1 << index;
            self.fields.read(&name, &mut map, self.blame)?;
        }
        Ok(self.fields)
    }
}

/// A string, borrowed if it holds no escape; with the path it stands at.
#[derive(Clone, Copy)]
struct TextAt(&'static str);

impl fmt::Display for TextAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a string for `{}`", self.0)
    }
}

impl<'a> DeserializeSeed<'a> for TextAt {
    type Value = Text<'a>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Text<'a>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'a> Visitor<'a> for TextAt {
    type Value = Text<'a>;
    expecting_as_shown!();
    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Text<'a>, E> {
        Ok(Cow::Borrowed(text))
    }
    fn visit_str<E>(self, text: &str) -> Result<Text<'a>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// `request.ip`
struct Address;

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an IP address such as \"192.0.2.1\" for `request.ip`")
    }
}

impl<'a> DeserializeSeed<'a> for Address {
    type Value = IpAddr;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<IpAddr, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Address {
    type Value = IpAddr;
    expecting_as_shown!();
    fn visit_str<E: de::Error>(self, text: &str) -> Result<IpAddr, E> {
        let wrong = |_| E::invalid_value(de::Unexpected::Str(text), &self);
        text.parse().map_err(wrong)
    }
}

/// `cost`
struct Cost;

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number from 0 to 4294967295 for `cost`")
    }
}

impl<'a> DeserializeSeed<'a> for Cost {
    type Value = Permits;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Permits, D::Error> {
        json.deserialize_u32(self)
    }
}

impl Visitor<'_> for Cost {
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

impl<'a> DeserializeSeed<'a> for PairsOf {
    type Value = Pairs<'a>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Pairs<'a>, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for PairsOf {
    type Value = Pairs<'a>;
    expecting_as_shown!();

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<Pairs<'a>, M::Error> {
        let mut pairs = Pairs::new();
        while let Some(mut name) = map.next_key_seed(TextAt(self.path()))? {
            if self == Self::Headers && name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                name.to_mut().make_ascii_lowercase();
            }
            // A header may stand on several lines; an attribute has one value.
            if self == Self::Attributes && pairs.iter().any(|(known, _)| *known == name) {
                let name = shown(&name);
                return Err(de::Error::custom(format_args!(
                    "attribute `{name}` stands twice"
                )));
            }
            if pairs.len() == self.max() {
                return Err(de::Error::invalid_length(pairs.len() + 1, &self));
            }
            let value = match self {
                Self::Attributes => map.next_value_seed(Scalar)?,
                Self::Headers => map.next_value_seed(Nullable(TextAt("request.headers")))?,
            };
            if let Some(value) = value {
                pairs.push((name, value));
            }
        }
        Ok(pairs)
    }
}

/// The value of an attribute: a string, or a number or boolean as its text; none for null.
struct Scalar;

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, number or boolean for an attribute")
    }
}

impl<'a> DeserializeSeed<'a> for Scalar {
    type Value = Option<Text<'a>>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Scalar {
    type Value = Option<Text<'a>>;
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
struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of 1 to {MAX_NAMES} names for `limits`")
    }
}

impl<'a> DeserializeSeed<'a> for Names {
    type Value = SmallVec<[Text<'a>; 4]>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Names {
    type Value = SmallVec<[Text<'a>; 4]>;
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

/// `checks`
struct Checks<'b>(&'b Blame);

impl fmt::Display for Checks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX_CHECKS} checks for `checks`")
    }
}

impl<'a> DeserializeSeed<'a> for Checks<'_> {
    type Value = Vec<Check<'a>>;
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Checks<'_> {
    type Value = Vec<Check<'a>>;
    expecting_as_shown!();

    fn visit_seq<L: SeqAccess<'a>>(self, mut list: L) -> Result<Self::Value, L::Error> {
        let mut checks = Vec::new();
        while let Some(check) = list.next_element_seed(Object::<Check<'a>>::new(self.0))? {
            if checks.len() == MAX_CHECKS {
                return Err(de::Error::invalid_length(checks.len() + 1, &self));
            }
            checks.push(check);
        }
        Ok(checks)
    }
}
