//! Request: the JSON of a check, borrowed from the bytes it came in.
//!
//! Hand-written visitors read it, so that an error names a wrong field by its path and an unknown
//! one by its near spelling, and nothing is copied unless it holds an escape. They fill a
//! check in place, because a check is a kilobyte and would otherwise move through each level.

mod descriptor;

use std::cell::Cell;
use std::fmt;
use std::net::IpAddr;

use ratekeeper::Permit;
use ratekeeper_core::Permits;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use super::problem::{
    NOT_JSON, Problem, ProblemKind, UNKNOWN_FIELD, WRONG_VALUE, near_spelling, shown,
};
use super::values::{
    AddressField, BodyText, CostField, Names, Pairs, PairsOf, PermitIds, TextAt,
    expecting_as_shown, optional,
};

pub(super) use descriptor::DescriptorField;

/// Maximum number of checks in a batch.
pub(super) const MAX_CHECKS: usize = 1000;

/// `{"request": .., "attributes": .., "descriptor": .., "cost": .., "limits": ..}`
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Check<'a> {
    pub(super) method: BodyText<'a>,
    pub(super) path: BodyText<'a>,
    pub(super) host: BodyText<'a>,
    pub(super) query: BodyText<'a>,
    /// The peer as the application saw it.
    pub(super) ip: Option<IpAddr>,
    /// Names in lower case.
    pub(super) headers: Pairs<'a>,
    pub(super) attributes: Pairs<'a>,
    /// In place of all fields above.
    pub(super) descriptor: Option<Box<DescriptorField<'a>>>,
    pub(super) cost: Option<Permits>,
    pub(super) limits: Option<SmallVec<[BodyText<'a>; 4]>>,
}

impl Check<'_> {
    /// Refuses a check that has both a descriptor and a request.
    fn about_one_thing(&self) -> Result<(), Problem> {
        let texts = [&self.method, &self.path, &self.host, &self.query];
        let of_request = texts.iter().any(|text| !text.is_empty())
            || self.ip.is_some()
            || !self.headers.is_empty()
            || !self.attributes.is_empty();
        if self.descriptor.is_some() && of_request {
            let detail = "`descriptor` stands instead of `request` and `attributes`; a limit is \
                for one or the other";
            return Err(Problem::new(WRONG_VALUE, detail));
        }
        Ok(())
    }
}

/// Reads one check.
pub(super) fn check(body: &[u8]) -> Result<Check<'_>, Problem> {
    let mut check = Check::default();
    read(body, &mut check)?;
    check.about_one_thing()?;
    Ok(check)
}

/// Reads a batch.
pub(super) fn batch(body: &[u8]) -> Result<Vec<Check<'_>>, Problem> {
    let mut batch = CheckBatch::default();
    read(body, &mut batch)?;
    batch.0.iter().try_for_each(Check::about_one_thing)?;
    Ok(batch.0)
}

/// Reads the ids of permits.
pub(super) fn permits(body: &[u8]) -> Result<Vec<Permit>, Problem> {
    let mut ids = PermitList::default();
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::new(NOT_JSON, no_ids("the body is empty")));
    }
    read(body, &mut ids)?;
    let missing = || Problem::new(WRONG_VALUE, no_ids("`permits` is missing"));
    ids.0.ok_or_else(missing)
}

fn no_ids(what: &str) -> String {
    format!("{what}; send {{\"permits\": [..]}} with the ids that /v1/acquire returned")
}

/// The kind of problem for an error that the parser reports.
type Blame = Cell<ProblemKind>;

fn read<'a>(body: &'a [u8], fields: &mut impl Fields<'a>) -> Result<(), Problem> {
    if body.iter().all(u8::is_ascii_whitespace) {
        let detail = "the body is empty; send `{}` for a request without any fields";
        return Err(Problem::new(NOT_JSON, detail));
    }
    let mut json = serde_json::Deserializer::from_slice(body);
    let blame = &Cell::new(WRONG_VALUE);
    let read = Object { fields, blame }.deserialize(&mut json);
    read.and_then(|()| json.end()).map_err(|error| {
        let kind = match error.classify() {
            serde_json::error::Category::Data => blame.get(),
            _ => NOT_JSON,
        };
        Problem::new(kind, message(&error))
    })
}

/// Returns the parser's message; one that quotes a long value is cut, its position kept.
fn message(error: &serde_json::Error) -> String {
    /// Maximum length of a message that is passed on whole.
    const MAX_MESSAGE: usize = 300;
    let whole = error.to_string();
    if whole.len() <= MAX_MESSAGE {
        return whole;
    }
    let (line, column) = (error.line(), error.column());
    format!("{} at line {line} column {column}", shown(&whole))
}

/// An object with a closed set of fields.
trait Fields<'a> {
    /// Name of the object in messages.
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
    const NAMES: &'static [&'static str] =
        &["request", "attributes", "descriptor", "cost", "limits"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        blame: &Blame,
    ) -> Result<(), M::Error> {
        match name {
            "request" => {
                let fields = &mut Request(self);
                optional(map, Object { fields, blame })?;
            }
            "attributes" => {
                let into = &mut self.attributes;
                optional(map, PairsOf::Attributes.read(into))?;
            }
            "descriptor" => {
                let mut descriptor = Box::<DescriptorField<'a>>::default();
                let fields = &mut *descriptor;
                if optional(map, Object { fields, blame })?.is_some() {
                    self.descriptor = Some(descriptor);
                }
            }
            "cost" => self.cost = optional(map, CostField)?,
            _ => self.limits = optional(map, Names)?,
        }
        Ok(())
    }
}

/// The fields of a check that lie in `request`.
struct Request<'c, 'a>(&'c mut Check<'a>);

impl<'a> Fields<'a> for Request<'_, 'a> {
    const PLACE: &'static str = "`request`";
    const NAMES: &'static [&'static str] = &["method", "path", "host", "ip", "query", "headers"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        name: &str,
        map: &mut M,
        _blame: &Blame,
    ) -> Result<(), M::Error> {
        let request = &mut *self.0;
        let mut text = |path| Ok(optional(map, TextAt(path))?.unwrap_or_default());
        match name {
            "method" => request.method = text("request.method")?,
            "path" => request.path = text("request.path")?,
            "host" => request.host = text("request.host")?,
            "query" => request.query = text("request.query")?,
            "ip" => request.ip = optional(map, AddressField)?,
            _ => {
                optional(map, PairsOf::Headers.read(&mut request.headers))?;
            }
        }
        Ok(())
    }
}

/// `{"permits": [..]}`
#[derive(Default)]
struct PermitList(Option<Vec<Permit>>);

impl<'a> Fields<'a> for PermitList {
    const PLACE: &'static str = "the call";
    const NAMES: &'static [&'static str] = &["permits"];

    fn read<M: MapAccess<'a>>(
        &mut self,
        _name: &str,
        map: &mut M,
        _blame: &Blame,
    ) -> Result<(), M::Error> {
        self.0 = optional(map, PermitIds)?;
        Ok(())
    }
}

/// `{"checks": [..]}`
#[derive(Default)]
struct CheckBatch<'a>(Vec<Check<'a>>);

impl<'a> Fields<'a> for CheckBatch<'a> {
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

/// Fills the fields of an object.
struct Object<'b, F> {
    fields: &'b mut F,
    blame: &'b Blame,
}

impl<'a, F: Fields<'a>> fmt::Display for Object<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object for {}", F::PLACE)
    }
}

impl<'a, F: Fields<'a>> DeserializeSeed<'a> for Object<'_, F> {
    type Value = ();
    fn deserialize<D: Deserializer<'a>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'a, F: Fields<'a>> Visitor<'a> for Object<'_, F> {
    type Value = ();
    expecting_as_shown!();

    fn visit_map<M: MapAccess<'a>>(self, mut map: M) -> Result<(), M::Error> {
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
                    "field `{name}` occurs twice in {}",
                    F::PLACE
                )));
            }
            seen |= 1 << index;
            self.fields.read(&name, &mut map, self.blame)?;
        }
        Ok(())
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
        let blame = self.0;
        loop {
            let mut check = Check::default();
            let fields = &mut check;
            if list.next_element_seed(Object { fields, blame })?.is_none() {
                return Ok(checks);
            }
            if checks.len() == MAX_CHECKS {
                return Err(de::Error::invalid_length(checks.len() + 1, &self));
            }
            checks.push(check);
        }
    }
}
