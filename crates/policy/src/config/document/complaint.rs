//! Complaint: the messages of the checker about a field or its value, and the edits they propose.

use std::fmt;

use toml::de::DeValue;

use super::other_words::{self, UNLIMITED, is_off};
use super::scalar::{Scalar, unit_like};
use super::shape::{FieldSpec, Shape, TableSpec, a_type, in_example, quoted};
use crate::config::diagnostic::grouped;
use crate::config::fields::{DEFAULTS, OWNED, QUANTITIES, above_tables, owner};
use crate::config::{Node, Spot, Text, codes, error, is_word, shown};

/// Maximum number of known fields that a label lists.
const LISTED: usize = 5;
/// Tables whose parts have an effect where they are not written.
const EFFECTIVE: [&str; 6] = ["match", "listen", "metrics", "client_ip", "store", "memory"];

/// The field under check, for messages.
#[derive(Clone, Copy)]
pub(crate) struct Here<'a> {
    /// ``limit `per-ip` ``, ``bucket of limit `per-ip` ``, `the policy`.
    pub(crate) place: &'a str,
    pub(crate) field: &'a str,
    /// A value of the field as it could stand in the file.
    pub(crate) example: &'a str,
    /// What an edit begins with: `key = `, or nothing for one value of a list, so that the others stay.
    pub(crate) assigned: &'a str,
}

/// Formats it as `` `key` of limit `per-ip` ``.
impl fmt::Display for Here<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` of {}", self.field, self.place)
    }
}

impl Here<'_> {
    /// Returns it for one value of a list.
    pub(super) fn each(self) -> Self {
        let values = self.example.trim_start_matches('[');
        let is_table = values.starts_with('{');
        let ends = |c| c == ']' || c == ',' && !is_table;
        Self {
            example: values.split(ends).next().unwrap_or_default(),
            assigned: "",
            ..self
        }
    }

    /// Returns the help that proposes the example.
    pub(super) fn usual(&self) -> String {
        format!("write for example {}{}", self.assigned, self.example)
    }
}

/// Reports a value of the wrong type.
pub(super) fn not_of_type(node: Node<'_>, message: String, help: impl Into<String>) {
    let label = format!("this is {}", a_type(node.value));
    error(codes::TYPE, node.at, message, label).help(help);
}

pub(super) fn missing(field: &FieldSpec, at: Spot<'_>, place: &str) {
    let name = field.name;
    let message = format!("{place} has no `{name}`");
    let label = format!("`{name}` is missing");
    error(codes::MISSING_FIELD, at, message, label).help(match name {
        "version" => "begin the file with the line: version = 1".to_owned(),
        _ => format!("add {name} = {}", field.example),
    });
}

/// Reports a field that is not in the table: misspelt, or unknown. Returns the help it gave.
pub(super) fn unknown(
    text: &Text<'_>,
    node: Node<'_>,
    table: &'static TableSpec,
    place: &str,
) -> String {
    let (name, out) = (text.value, text.at.findings);
    let known = || table.fields.iter().map(|field| field.name);
    let mut listed: Vec<_> = known().take(LISTED).collect();
    if known().count() > LISTED {
        listed.push("...");
    }
    let near = || {
        out.nearest(name, known())
            .and_then(|near| table.field(near))
    };
    // A table under a heading of that name has no text of its own.
    let is_heading = text.at.range().contains(&node.at.range().start);
    let value = node.at.source();
    let value = value.filter(|value| !is_heading && !value.starts_with('['));
    let help = with_a_dot(name, node, table)
        .or_else(|| other_word(name, table, place))
        .or_else(|| {
            let near = near().map(|near| near.name.trim_end_matches('s'));
            let is_plural = near == Some(name.trim_end_matches('s'));
            // `plans = { .. }` belongs to a limit, and the heading `[plans]` is another table.
            let is_plural = is_plural && (place != "the policy" || value.is_none());
            let elsewhere = || above_tables(name, value).or_else(|| elsewhere(name, value, place));
            (!is_plural).then(elsewhere)?
        })
        .or_else(|| {
            let near = near()?;
            Some(match (&near.shape, value) {
                (Shape::Tables { heading, .. }, None) => format!("did you mean [[{heading}]]?"),
                (Shape::Table(_), None) if place == "the policy" => {
                    format!("did you mean [{}]?", near.name)
                }
                (Shape::Table(_), None) => format!("did you mean `{}`?", near.name),
                (_, value) => {
                    let value = value.unwrap_or(near.example);
                    format!("did you mean `{0}`? {0} = {value}", near.name)
                }
            })
        })
        .or_else(|| other_word(out.nearest(name, other_words::fields())?, table, place))
        .unwrap_or_else(|| {
            "remove it if the policy means the same without it: an unknown field is refused, \
             so that no setting is silently ignored"
                .into()
        });
    let message = format!("unknown field `{text}` in {place}");
    let label = format!(
        "not a field of {} (known: {})",
        table.what,
        listed.join(", ")
    );
    error(codes::UNKNOWN_FIELD, text.at, message, label).help(&*help);
    help
}

pub(super) fn too_many(node: Node<'_>, most: usize, here: Here<'_>) {
    let number = node.len();
    if number <= most {
        return;
    }
    let message = format!("{here} holds {} values", grouped(number as u64));
    let label = format!("at most {} are allowed", grouped(most as u64));
    let help = match here.field {
        "key" => "leave out the parts that other parts imply",
        "limit" | "exempt" | "response" => "replace many by one with a pattern or a key",
        _ => "leave some out: one pattern with `*` can replace many values",
    };
    error(codes::TOO_MANY, node.at, message, label).help(help);
}

/// Reports a value of the wrong type; the help writes it in the right one where possible.
pub(super) fn wrong_type(node: Node<'_>, shape: &Shape, here: Here<'_>) {
    let (place, field, example) = (here.place, here.field, here.example);
    let message = format!("{here} must be {}", shape.expected());
    if let Some(help) = off(node, shape, here) {
        return not_of_type(node, message, help);
    }
    let with_source = |edit: &dyn Fn(&str) -> String| {
        let source = node.at.source();
        source.map_or_else(|| here.usual(), edit)
    };
    let help = match (shape, node.value, written(node)) {
        (Shape::List(..), DeValue::String(_), _) => {
            with_source(&|source| format!("write it as a list: {field} = [{source}]"))
        }
        (shape, DeValue::String(_), Some(text)) if shape.is_bare(&text) => {
            format!("write it without quotes: {field} = {text}")
        }
        (Shape::Flag, _, _) => format!("write {field} = true, or {field} = false"),
        (_, DeValue::String(_), Some(text))
            if field.ends_with("percent") && shape.is_bare(text.trim_end_matches('%')) =>
        {
            format!(
                "write it as a number: {field} = {}",
                text.trim_end_matches('%')
            )
        }
        (_, DeValue::Integer(_) | DeValue::Boolean(_), Some(text))
            if matches!(shape, Shape::Texts(..)) || field.starts_with("key.") =>
        {
            format!("put it in quotes: {field} = \"{text}\"")
        }
        (Shape::Scalar(span @ Scalar::Span { .. }), DeValue::Integer(_), Some(number))
            if span.accepts(&format!("{number}{}", unit_like(example))) =>
        {
            let unit = unit_like(example);
            format!("write it with a unit: {field} = \"{number}{unit}\"")
        }
        (Shape::Table(_), DeValue::Integer(_), Some(number)) if field == "balance" => {
            format!("write {field} = {{ start = {number}, max = {number} }}")
        }
        (Shape::Map(..), DeValue::String(_), _) if field == "key" => with_source(&|source| {
            format!("write the part of the limit's key before it: key = {{ api_key = {source} }}")
        }),
        (Shape::Word(_), _, _) => other_words::choice(field),
        (_, DeValue::Table(names), _) if field.starts_with("key.") => {
            let name = names.keys().next().map(|name| shown(name.get_ref()));
            let group = &field["key.".len()..];
            let part = format!("{group}:{}", name.unwrap_or_else(|| "NAME".to_owned()));
            format!("write the part as the limit does: key = {{ \"{part}\" = \"value\" }}")
        }
        (Shape::Tables { heading, of, .. }, DeValue::Table(named), _)
            if !named.is_empty()
                && of.field("name").is_some()
                && named.values().all(|value| !value.get_ref().is_str()) =>
        {
            let name = named.keys().next().map(|name| shown(name.get_ref()));
            let name = name.unwrap_or_default();
            format!("write [[{heading}]], and below it its name: name = \"{name}\"")
        }
        (Shape::Tables { heading, .. }, DeValue::Table(_), _) => {
            format!("write it with two brackets: [[{heading}]]")
        }
        (Shape::NamedTables(..), _, _) => format!("give it a name: [{field}.slow-down]"),
        (Shape::Table(_), DeValue::Array(_), _) if place == "the policy" => {
            format!("write it with one bracket: [{field}]")
        }
        (Shape::Table(_), DeValue::Array(_), _) if place.starts_with('[') => {
            let table = place.trim_end_matches(']');
            format!("write it with one bracket: {table}.{field}]")
        }
        (Shape::Text(..), DeValue::Table(_), _) if field == "response" => {
            "name it, and write its fields below: response = \"slow-down\" and [response.slow-down]"
                .to_owned()
        }
        (Shape::Text(..), DeValue::Array(_), _) if field == "limit" => {
            format!("write {field} = {example}, and a [[limit]] of its own for each further period")
        }
        (Shape::Text(..), DeValue::Array(_), _) if field == "hours" => {
            format!("write {field} = {example}, and another limit for the other hours")
        }
        _ => here.usual(),
    };
    not_of_type(node, message, help);
}

/// Reports a text that is no value of its kind; says nothing of one that is.
pub(super) fn not_scalar(scalar: Scalar, text: &Text<'_>, here: Here<'_>) {
    if scalar.accepts(text.value) {
        return;
    }
    let message = match scalar {
        Scalar::Secret => format!("{here} must name the source of the secret"),
        _ => format!("\"{text}\" is not a valid {here}"),
    };
    let help = match scalar.meant(text.value, here.example) {
        Some(meant) => format!("write {}\"{meant}\"", here.assigned),
        None => here.usual(),
    };
    error(scalar.code(), text.at, message, scalar.expected()).help(help);
}

pub(super) fn not_factor(node: Node<'_>, most: u64, here: Here<'_>) {
    let message = format!("{here} is out of range");
    let label = format!("expected a number from 1 to {most}, with at most three decimals");
    error(codes::OUT_OF_RANGE, node.at, message, label).help(here.usual());
}

pub(super) fn out_of_range(node: Node<'_>, least: u64, most: u64, here: Here<'_>) {
    let field = here.field;
    if field == "version" {
        let version = written(node).unwrap_or_default();
        let message = format!("version {version} of the language is not known");
        let label = "this ratekeeper reads version 1";
        error(codes::VERSION, node.at, message, label)
            .help("write version = 1, or use a newer ratekeeper");
        return;
    }
    let message = format!("{here} is out of range");
    let label = format!("must be {} to {}", grouped(least), grouped(most));
    // -1 is no limit in other programs, and 0 no request.
    let or = match written(node).as_deref() {
        Some("-1") if has_words(field) => ", or \"unlimited\"",
        Some("0") if has_words(field) => ", or \"blocked\"",
        Some("0") if field == "cost" => ", or [[exempt]] for requests without a cost",
        _ => "",
    };
    error(codes::OUT_OF_RANGE, node.at, message, label).help(here.usual() + or);
}

pub(super) fn word(text: &Text<'_>, words: &'static [&'static str], here: Here<'_>) {
    if words.contains(&text.value) {
        return;
    }
    let (field, out) = (here.field, text.at.findings);
    let other = || match (field, text.at.source()) {
        ("body", Some(source)) => format!("write a text as text: body = {{ text = {source} }}"),
        _ => other_words::choice(field),
    };
    let help = match other_words::value(field, text.value) {
        Some(instead) => instead.to_owned(),
        None if words.contains(&"off") && is_off(text.value) => {
            format!("write {}\"off\"", here.assigned)
        }
        None => {
            let known = words.iter().copied();
            out.meant(text.value, known, here.assigned, other)
        }
    };
    let message = format!("unknown value \"{text}\" for {here}");
    let label = format!("expected one of {}", quoted(words));
    error(codes::UNKNOWN_WORD, text.at, message, label).help(help);
}

/// Returns `header.x-tier = "free"` for `"header:x-tier" = "free"`, which is how keys write it.
fn with_a_dot(name: &str, node: Node<'_>, table: &'static TableSpec) -> Option<String> {
    let (group, rest) = name.split_once(':')?;
    let field = table.field(group.trim())?;
    let rest = rest.trim();
    let takes_names = matches!(field.shape, Shape::Map(Shape::Texts(_), _));
    let value = node.at.source().unwrap_or("\"value\"");
    (takes_names && is_word(rest)).then(|| format!("write {group}.{rest} = {value}"))
}

/// Returns what to write in place of a field of another program. Within a table of a limit, it is
/// this table that the help writes, and only limits have a mode.
fn other_word(name: &str, table: &TableSpec, place: &str) -> Option<String> {
    let has_mode = table.field("mode").is_some() || place == "the policy";
    let instead = other_words::field(name).filter(|it| has_mode || *it != other_words::MODE)?;
    let (table, rest) = place.split_once(" of ").unwrap_or_default();
    let written = || format!("{} = ", table.trim_matches('`'));
    (!rest.starts_with("limit ") || instead.contains(&written())).then(|| instead.to_owned())
}

/// Returns where a field belongs that another table has.
fn elsewhere(name: &str, value: Option<&str>, place: &str) -> Option<String> {
    let owner = owner(name)?;
    let is_of_limit = owner.heading == "[[limit]]";
    let is_inner = owner.within.is_some();
    let is_likely = match place {
        "the policy" => true,
        "[defaults]" => is_of_limit && !is_inner,
        _ if place.contains(" of limit ") => is_of_limit && !is_inner,
        _ if place.starts_with("limit ") || place.starts_with("exempt ") => true,
        // Names such as `url` are those of many tables.
        _ => !is_of_limit && !owner.heading.starts_with("[store"),
    };
    if !is_likely {
        return None;
    }
    let example = match (&owner.field.shape, value) {
        (Shape::Table(_), None) => format!("[{}.{name}]", owner.heading.trim_matches(['[', ']'])),
        (_, value) => format!("{name} = {}", value.unwrap_or(owner.field.example)),
    };
    Some(match owner.within {
        Some(table) => {
            let whole = in_example(table.example, name, value).unwrap_or_else(|| {
                let algorithm = OWNED.iter().find(|(field, _)| *field == name);
                let named = algorithm.map(|(_, of)| format!("name = \"{of}\", "));
                format!("{{ {}{example} }}", named.unwrap_or_default())
            });
            format!("put it into `{0}`: {0} = {whole}", table.name)
        }
        None if is_of_limit && place.contains(" of limit ") => {
            format!(
                "it is a field of the limit: write it above the fields of this table: {example}"
            )
        }
        None if place == "the policy" && DEFAULTS.field(name).is_some() => {
            format!("for all limits, it belongs under [defaults]: {example}")
        }
        None => format!("it belongs under {}: {example}", owner.heading),
    })
}

/// Returns the help for a field with `false`, or a word for it, in place of its value.
fn off(node: Node<'_>, shape: &Shape, here: Here<'_>) -> Option<String> {
    let Here { place, field, .. } = here;
    let value = node.value;
    if value.as_bool() != Some(false) && !value.as_str().is_some_and(is_off) {
        return None;
    }
    Some(match shape {
        _ if shape.takes_off() => format!("write {field} = \"off\""),
        _ if field == "active" => other_words::MODE.to_owned(),
        _ if QUANTITIES.contains(&field) && place.starts_with("limit ") => UNLIMITED.to_owned(),
        Shape::Table(_) if !EFFECTIVE.contains(&field) => format!("leave `{field}` out"),
        _ => return None,
    })
}

/// Returns a simple value as text, for a help that corrects it.
pub(super) fn written(node: Node<'_>) -> Option<String> {
    match node.value {
        DeValue::String(text) => Some(shown(text)),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// Returns true for a field with numbers of a limit, which may also be words.
fn has_words(field: &str) -> bool {
    field == "set" || field.starts_with("plans.")
}
