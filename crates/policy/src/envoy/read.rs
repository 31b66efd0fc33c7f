//! Read: from tables of the right shape to descriptors.
//!
//! ```text
//!   file         domain, descriptors
//!   descriptor   key, value, rate_limit, descriptors, shadow_mode, quota_mode,
//!                detailed_metric, value_to_metric, share_threshold, metadata
//!   rate_limit   unit, requests_per_unit, unlimited, name, replaces
//!   replaces     name
//! ```
//!
//! A key that stands where it does nothing is a warning: the Go service loads such files.

use serde_json::{Map, Number, Value};

use super::yaml::{Content, YamlNode, flag, is_null, is_number};
use crate::config::{Spot, Text, codes, error, shown, warning};

/// Maximum size in bytes of a domain, key, value or name.
const MAX_TEXT: usize = 1_024;
/// How a table is written.
const EXAMPLE: &str = "write its fields as `name: value`";

/// Place of a table, which determines the fields it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, strum::Display)]
pub(super) enum TablePlace {
    #[strum(to_string = "the file")]
    File,
    #[strum(to_string = "a descriptor")]
    Descriptor,
    #[strum(to_string = "`rate_limit`")]
    RateLimit,
    #[strum(to_string = "`replaces`")]
    Replaces,
}

/// The fields of each place.
const FIELDS: [(TablePlace, &str); 4] = [
    (TablePlace::File, "domain, descriptors"),
    (
        TablePlace::Descriptor,
        "descriptors, key, value, rate_limit, shadow_mode, quota_mode, detailed_metric, \
         value_to_metric, share_threshold, metadata",
    ),
    (
        TablePlace::RateLimit,
        "unit, requests_per_unit, unlimited, name, replaces",
    ),
    (TablePlace::Replaces, "name"),
];

/// A table with fields that have been compared with the allowed ones.
#[derive(Debug)]
pub(super) struct CheckedTable<'n> {
    node: &'n YamlNode<'n>,
    /// Fields that unknown ones were probably meant to be, and that so are not missing.
    meant: Vec<&'static str>,
}

impl<'n> CheckedTable<'n> {
    /// Reports fields that do not belong here.
    pub(super) fn new(node: &'n YamlNode<'n>, place: TablePlace) -> Option<Self> {
        let mut meant = Vec::new();
        let Content::Table(entries) = &node.content else {
            if place == TablePlace::File && node.is_null() {
                return Some(Self { node, meant });
            }
            return wrong(node, &place.to_string(), "a table", EXAMPLE);
        };
        for (key, _) in entries {
            let Some(name) = field_name(key) else {
                continue;
            };
            let of_name = FIELDS
                .iter()
                .filter(|(_, fields)| each(fields).any(|it| it == name));
            let places: Vec<TablePlace> = of_name.map(|(place, _)| *place).collect();
            if places.is_empty() {
                meant.extend(unknown(name, key, place));
            } else if !places.contains(&place) {
                misplaced(name, key, &places, place);
            }
        }
        Some(Self { node, meant })
    }

    /// Returns a field, unless it is null.
    pub(super) fn field(&self, name: &str) -> Option<&'n YamlNode<'n>> {
        self.node.get(name).filter(|node| !node.is_null())
    }

    /// Returns true if a text is missing or empty.
    pub(super) fn lacks(&self, name: &str) -> bool {
        match self.field(name).map(|node| &node.content) {
            None => !self.meant.contains(&name),
            Some(Content::Quoted(text)) => text.is_empty(),
            Some(_) => false,
        }
    }

    /// Reads a text as written; an empty one is `None`.
    pub(super) fn text(&self, name: &str) -> Option<Text<'n>> {
        let node = self.field(name)?;
        let Some(value) = node.text() else {
            let what = format!("`{name}`");
            return wrong(node, &what, "a string", "write it on one line");
        };
        if value.len() > MAX_TEXT {
            let message = format!("`{name}` has {} bytes", value.len());
            let label = format!("at most {MAX_TEXT} bytes");
            error(codes::ENVOY_BOUNDS, node.at, message, label)
                .help("use a shorter string, here and in the calls");
            return None;
        }
        let at = node.at;
        (!value.is_empty()).then_some(Text { value, at })
    }

    /// Returns the range of a field, or else of the table.
    pub(super) fn place_of(&self, name: &str) -> Spot<'n> {
        self.node.get(name).unwrap_or(self.node).at
    }

    /// Reads a flag; false if not stated.
    pub(super) fn flag(&self, name: &str) -> bool {
        let Some(node) = self.field(name) else {
            return false;
        };
        if let Content::Plain(text) = &node.content
            && let Some(flag) = flag(text)
        {
            return flag;
        }
        let what = format!("`{name}`");
        let example = format!("write {name}: true, or {name}: false");
        wrong(node, &what, "true or false", &example).unwrap_or_default()
    }

    /// Reads a whole number of up to 32 bits.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let node = self.field(name)?;
        let what = format!("`{name}`");
        let example = format!("write {name}: 100");
        let (text, digits) = match &node.content {
            Content::Plain(text) => (&**text, text.replace('_', "")),
            _ => ("", String::new()),
        };
        let is_octal = digits.len() > 1 && digits.starts_with('0') && !digits.contains('.');
        let number = digits.parse::<f64>().ok().filter(|_| is_number(&digits));
        let Some(number) = number.filter(|it| it.fract() == 0.0 && !is_octal) else {
            let kind = if is_octal { "decimal" } else { "whole" };
            return wrong(node, &what, &format!("a {kind} number"), &example);
        };
        // Every whole number up to 2^32 is an `f64` exactly; the sum is no negative zero.
        let whole = (number + 0.0).to_string().parse().ok();
        if whole.is_none() {
            let message = format!("{what} is out of range: {}", shown(text));
            let label = "expected 0 to 4294967295";
            error(codes::OUT_OF_RANGE, node.at, message, label).help(example);
        }
        whole
    }

    /// Reads a table of any names and values as JSON.
    pub(super) fn free(&self, name: &str) -> Option<Map<String, Value>> {
        let node = self.field(name)?;
        match json(node) {
            Value::Object(object) => Some(object),
            _ => wrong(node, &format!("`{name}`"), "a table", EXAMPLE),
        }
    }

    /// Returns the tables of a list; items that are no tables are reported and left out.
    pub(super) fn tables(&self, name: &str, place: TablePlace) -> Vec<Self> {
        let Some(node) = self.field(name) else {
            return Vec::new();
        };
        let Content::List(list) = &node.content else {
            let what = format!("`{name}`");
            return wrong(node, &what, "a list", "begin each item with `- `").unwrap_or_default();
        };
        let mut tables = Vec::with_capacity(list.len());
        for element in list {
            if let Content::Table(_) = element.content {
                tables.extend(Self::new(element, place));
                continue;
            }
            let message = format!("`{name}` is a list of tables, not of {}", plural(element));
            let example = match place {
                TablePlace::Replaces => "write each as `- name: other-limit`",
                _ => "write each as `- key: name`, with its fields below",
            };
            let label = "expected a table";
            error(codes::ENVOY_LIST, element.at, message, label).help(example);
        }
        tables
    }
}

fn plural(node: &YamlNode<'_>) -> &'static str {
    match &node.content {
        Content::Plain(text) if is_null(text) => "nothing",
        Content::Plain(text) if is_number(text) => "numbers",
        Content::List(_) => "lists",
        _ => "strings",
    }
}

/// Returns the name of a field, if it is a text.
fn field_name<'n>(key: &'n YamlNode<'_>) -> Option<&'n str> {
    let kind = match &key.content {
        Content::Plain(text) if key.kind() == "a string" => return Some(text),
        Content::Quoted(text) => return Some(text),
        _ => key.kind(),
    };
    not_a_name(key, kind);
    None
}

/// Reports the name of a field that is none.
fn not_a_name(key: &YamlNode<'_>, kind: &str) {
    let message = format!("the name of a field must be a string, not {kind}");
    let label = "expected a string";
    error(codes::ENVOY_KEY_TYPE, key.at, message, label)
        .help("write the value after its field, as in value: \"5\"");
}

/// Returns the names of some fields.
fn each(fields: &'static str) -> impl Iterator<Item = &'static str> {
    fields.split(", ")
}

/// Reports an unknown field; returns the one that was probably meant.
fn unknown(name: &str, key: &YamlNode<'_>, place: TablePlace) -> Option<&'static str> {
    let known = FIELDS.iter().find(|(it, _)| *it == place);
    let known = known.map_or("", |(_, fields)| fields);
    let all = FIELDS.iter().flat_map(|(_, fields)| each(fields));
    let out = key.at.findings;
    let near = out
        .nearest(name, each(known))
        .or_else(|| out.nearest(name, all));
    let message = format!("unknown field `{}` in {place}", shown(name));
    let label = format!("known: {known}");
    let help = near.map_or_else(
        || "leave it out: the service has no such setting".to_owned(),
        |near| format!("did you mean `{near}`?"),
    );
    error(codes::UNKNOWN_FIELD, key.at, message, label).help(help);
    near
}

fn misplaced(name: &str, key: &YamlNode<'_>, belongs: &[TablePlace], place: TablePlace) {
    let message = format!("`{name}` has no effect in {place}");
    let places: Vec<_> = belongs.iter().map(TablePlace::to_string).collect();
    let label = format!("a field of {}", places.join(" and of "));
    warning(codes::ENVOY_IGNORED, key.at, message, label)
        .help("move it, or leave it out: the Go service ignores it too");
}

/// Returns a value as JSON; fields with keys that are no scalars are reported and left out.
fn json(node: &YamlNode<'_>) -> Value {
    match &node.content {
        Content::Plain(text) => scalar(text),
        Content::Quoted(text) => Value::String(text.clone()),
        Content::List(list) => list.iter().map(json).collect(),
        Content::Table(fields) => {
            let mut object = Map::new();
            for (key, value) in fields {
                match key.text() {
                    Some(name) => drop(object.insert(name.to_owned(), json(value))),
                    None => not_a_name(key, key.kind()),
                }
            }
            Value::Object(object)
        }
    }
}

fn scalar(text: &str) -> Value {
    if is_null(text) {
        return Value::Null;
    }
    if let Some(flag) = flag(text) {
        return Value::Bool(flag);
    }
    if is_number(text) {
        let whole = text.parse::<i64>().ok().map(Number::from);
        let float = || text.parse().ok().and_then(Number::from_f64);
        if let Some(number) = whole.or_else(float) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}

/// Reports a value of another type; returns `None`.
fn wrong<T>(node: &YamlNode<'_>, what: &str, wanted: &str, help: &str) -> Option<T> {
    let message = format!("{what} must be {wanted}, not {}", node.kind());
    let label = format!("expected {wanted}");
    error(codes::TYPE, node.at, message, label).help(help);
    None
}
