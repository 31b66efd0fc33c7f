//! Complaint: what the checker says about a field, and the edit it proposes.

use std::ops::Range;

use toml::de::DeValue;

use super::check::{Node, whole};
use super::codes;
use super::diagnostic::{Findings, shown};
use super::near::nearest;
use super::shape::{Field, Hint, Shape, Table, Words, quoted};

/// Known fields that a label lists before it trails off.
const LISTED: usize = 5;

/// What is being checked: for messages.
#[derive(Clone, Copy)]
pub(super) struct Here<'a> {
    /// ``limit `per-ip` ``, ``bucket of limit `per-ip` ``, `the policy`.
    pub(super) place: &'a str,
    pub(super) field: &'a str,
    /// A value of the field as it could stand in the file.
    pub(super) example: &'a str,
}

pub(super) fn missing(field: &Field, at: Range<usize>, place: &str, out: &mut Findings<'_>) {
    let name = field.name;
    out.error(
        codes::MISSING_FIELD,
        at,
        format!("{place} has no `{name}`"),
        format!("`{name}` is missing"),
    )
    .help(format!("add {name} = {}", field.example));
}

/// A field that is not in the table: not built yet, misspelt, or unheard of.
pub(super) fn unknown(
    name: &str,
    at: Range<usize>,
    table: &'static Table,
    place: &str,
    out: &mut Findings<'_>,
) {
    if let Some((name, today)) = hint(table.planned, name) {
        let message = format!("`{name}` in {place} is not built yet");
        out.error(
            codes::NOT_BUILT,
            at,
            message,
            "part of the language, but not of this version",
        )
        .help(*today);
        return;
    }
    let known = || table.fields.iter().map(|field| field.name);
    let mut listed: Vec<_> = known().take(LISTED).collect();
    if known().count() > LISTED {
        listed.push("...");
    }
    let finding = out.error(
        codes::UNKNOWN_FIELD,
        at,
        format!("unknown field `{}` in {place}", shown(name)),
        format!(
            "not a field of {} (known: {})",
            table.what,
            listed.join(", ")
        ),
    );
    let mistaken = || table.mistaken.iter().map(|(name, _)| *name);
    let planned = || table.planned.iter().map(|(name, _)| *name);
    match nearest(name, known().chain(mistaken()).chain(planned())) {
        Some(near) => match (table.field(near), hint(table.mistaken, near)) {
            (Some(field), _) => finding.help(format!("did you mean `{near}`? {near} = {}", field.example)),
            (None, Some((_, instead))) => finding.help(*instead),
            (None, None) => finding.help(format!("did you mean `{near}`? It is part of the language, but not built yet")),
        },
        None => finding.help("remove it; fields that are not known are refused, so that no limit is silently without effect"),
    };
}

fn hint(hints: &'static [Hint], name: &str) -> Option<&'static Hint> {
    hints.iter().find(|(known, _)| *known == name)
}

pub(super) fn word(
    text: &str,
    at: Range<usize>,
    words: &'static Words,
    here: Here<'_>,
    out: &mut Findings<'_>,
) {
    if words.known.contains(&text) {
        return;
    }
    let Here { place, field, .. } = here;
    if let Some((word, instead)) = hint(words.planned, text) {
        let message = format!("\"{word}\" as `{field}` of {place} is not built yet");
        let label = format!("not built yet (built: {})", quoted(words.known));
        out.error(codes::NOT_BUILT, at, message, label)
            .help(*instead);
        return;
    }
    let finding = out.error(
        codes::UNKNOWN_WORD,
        at,
        format!("unknown word \"{}\" for `{field}` of {place}", shown(text)),
        format!("not one of {}", quoted(words.known)),
    );
    let mistaken = words.mistaken.iter().map(|(word, _)| *word);
    let planned = words.planned.iter().map(|(word, _)| *word);
    match nearest(
        text,
        words.known.iter().copied().chain(mistaken).chain(planned),
    ) {
        Some(near) => match (hint(words.mistaken, near), hint(words.planned, near)) {
            (Some((_, instead)), _) | (_, Some((_, instead))) => finding.help(*instead),
            (None, None) => finding.help(format!("did you mean {field} = \"{near}\"?")),
        },
        None => finding.help(format!(
            "write for example {field} = \"{}\"",
            words.known[0]
        )),
    };
}

pub(super) fn out_of_range(
    node: &Node<'_>,
    least: u64,
    most: u64,
    here: Here<'_>,
    out: &mut Findings<'_>,
) {
    let Here {
        place,
        field,
        example,
    } = here;
    let code = if field == "version" {
        codes::VERSION
    } else {
        codes::OUT_OF_RANGE
    };
    let (label, help) = if least == most {
        (
            format!("must be {least}"),
            format!("write {field} = {least}"),
        )
    } else {
        let number = whole(node).map_or(example.to_owned(), |number| {
            number.clamp(least, most).to_string()
        });
        (
            format!("must be {least} to {most}"),
            format!("write for example {field} = {number}"),
        )
    };
    out.error(
        code,
        node.span(),
        format!("`{field}` of {place} is out of range"),
        label,
    )
    .help(help);
}

pub(super) fn too_many(
    node: &Node<'_>,
    number: usize,
    most: usize,
    here: Here<'_>,
    out: &mut Findings<'_>,
) {
    if number > most {
        let Here { place, field, .. } = here;
        let message = format!("`{field}` of {place} holds {number} values");
        out.error(
            codes::TOO_MANY,
            node.span(),
            message,
            format!("at most {most} are allowed"),
        )
        .help("leave some out: one pattern with `*` can stand for many values");
    }
}

/// A value of the wrong type; the help writes it in the right one where it can.
pub(super) fn wrong_type(node: &Node<'_>, shape: &Shape, here: Here<'_>, out: &mut Findings<'_>) {
    let Here {
        place,
        field,
        example,
    } = here;
    let help = match (shape, node.get_ref(), written(node)) {
        (Shape::List { .. }, DeValue::String(_), Some(text)) => {
            format!("write it as a list: {field} = [\"{text}\"]")
        }
        (Shape::Whole { .. }, DeValue::String(_), Some(text)) if text.parse::<u64>().is_ok() => {
            format!("write it without quotes: {field} = {text}")
        }
        (Shape::Flag, DeValue::String(_), Some(text)) if text == "true" || text == "false" => {
            format!("write it without quotes: {field} = {text}")
        }
        (Shape::Texts { .. }, DeValue::Integer(_) | DeValue::Boolean(_), Some(text)) => {
            format!("put it in quotes: {field} = \"{text}\"")
        }
        (Shape::Tables { .. }, DeValue::Table(_), _) => {
            format!("write it with two brackets: [[{field}]]")
        }
        (Shape::NamedTables { .. }, _, _) => format!("give it a name: [{field}.slow-down]"),
        (Shape::Table(_), DeValue::Array(_), _) if place == "the policy" => {
            format!("write it with one bracket: [{field}]")
        }
        _ => format!("write for example {field} = {example}"),
    };
    let message = format!("`{field}` of {place} must be {}", shape.expected());
    out.error(
        codes::TYPE,
        node.span(),
        message,
        format!("this is {}", a_type(node)),
    )
    .help(help);
}

/// `an integer`, `a string`, ...
pub(super) fn a_type(node: &Node<'_>) -> &'static str {
    match node.get_ref() {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a point",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// A simple value as text, for a help that puts it right.
pub(super) fn written(node: &Node<'_>) -> Option<String> {
    match node.get_ref() {
        DeValue::String(text) => Some(shown(text)),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}
