//! Check: the text against the table of fields, everything wrong with it at once.
//!
//! ```text
//!   check(POLICY, root)
//!     +-- each field written:  known? built? of the right type?  --> go into its value
//!     +-- each field required: is it there?
//! ```
//!
//! What passes has the right shape; those who read values after this ignore what has not,
//! because it has been reported here.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::codes;
use super::diagnostic::{Findings, shown};
use super::near::nearest;
use super::shape::{Field, Hint, Inert, Need, Shape, Table, Words, quoted};

/// Known fields that a label lists before it trails off.
const LISTED: usize = 5;

/// A value of the document, with its place.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// What is being checked: for messages.
#[derive(Clone, Copy)]
struct Here<'a> {
    /// ``limit `per-ip` ``, ``bucket of limit `per-ip` ``, `the policy`.
    place: &'a str,
    field: &'a str,
    /// A value of the field as it could stand in the file.
    example: &'a str,
}

/// Checks the whole file.
pub(super) fn policy(root: &DeTable<'_>, table: &'static Table, out: &mut Findings<'_>) {
    fields(root, 0..0, table, "the policy", out);
}

/// Checks the fields of one table.
fn fields(
    written: &DeTable<'_>,
    at: Range<usize>,
    table: &'static Table,
    place: &str,
    out: &mut Findings<'_>,
) {
    for (name, node) in written {
        match table.field(name.get_ref()) {
            Some(field) => {
                let here = Here {
                    place,
                    field: field.name,
                    example: field.example,
                };
                value(node, &field.shape, here, out);
            }
            None => unknown(name.get_ref(), name.span(), table, place, out),
        }
    }
    if !out.is_whole() {
        return; // what is missing may stand where the text could not be read
    }
    for field in table.fields {
        if field.need == Need::Required && !written.contains_key(field.name) {
            missing(field, at.clone(), place, out);
        }
    }
    exactly_one(written, at, table.one_of, place, out);
}

/// Of the fields `names`, exactly one must be written.
fn exactly_one(
    written: &DeTable<'_>,
    at: Range<usize>,
    names: &[&str],
    place: &str,
    out: &mut Findings<'_>,
) {
    let mut there: Vec<_> = written
        .keys()
        .filter(|key| names.contains(&&**key.get_ref()))
        .collect();
    there.sort_by_key(|key| key.span().start);
    if there.is_empty() && !names.is_empty() {
        let each: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        out.error(
            codes::NO_QUANTITY,
            at,
            format!("{place} limits nothing"),
            format!("needs one of {}", each.join(", ")),
        )
        .help("add for example limit = \"100/1m\"");
        return;
    }
    for second in there.iter().skip(1) {
        let (first, name) = (there[0], second.get_ref());
        out.error(
            codes::TWO_QUANTITIES,
            second.span(),
            format!("{place} has both `{}` and `{name}`", first.get_ref()),
            "a limit has one of them",
        )
        .related(first.span())
        .help(format!(
            "keep one, or move `{name}` into a [[limit]] of its own: all limits that match apply"
        ));
    }
}

fn missing(field: &Field, at: Range<usize>, place: &str, out: &mut Findings<'_>) {
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
fn unknown(
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

/// Checks one value.
fn value(node: &Node<'_>, shape: &'static Shape, here: Here<'_>, out: &mut Findings<'_>) {
    match (shape, node.get_ref()) {
        (Shape::Text { .. }, DeValue::String(_)) | (Shape::Flag, DeValue::Boolean(_)) => {}
        (Shape::Word(words), DeValue::String(text)) => word(text, node.span(), words, here, out),
        (Shape::Whole { least, most }, DeValue::Integer(_)) => {
            if whole(node).is_none_or(|number| number < *least || number > *most) {
                out_of_range(node, *least, *most, here, out);
            }
        }
        (Shape::Texts { .. }, DeValue::String(_)) => {}
        (Shape::Texts { most } | Shape::List { most }, DeValue::Array(_)) => {
            list(node, *most, here, out)
        }
        (Shape::Named { most }, DeValue::Table(names)) => named(node, names, *most, here, out),
        (Shape::Table(table), DeValue::Table(written)) => {
            fields(written, node.span(), table, &inside(here), out);
        }
        (Shape::Tables { of, most }, DeValue::Array(_)) => tables(node, of, *most, here, out),
        (Shape::NamedTables { of, most }, DeValue::Table(names)) => {
            named_tables(node, names, of, *most, here, out);
        }
        (Shape::Either(shapes), _) => match shapes.iter().find(|shape| suits(shape, node)) {
            Some(shape) => value(node, shape, here, out),
            None => wrong_type(node, shape, here, out),
        },
        (Shape::Only { value, instead }, written) => {
            let inert = match (value, written) {
                (Inert::Off, DeValue::String(text)) => text == "off",
                (Inert::False, DeValue::Boolean(flag)) => !flag,
                _ => false,
            };
            if !inert {
                let message = format!("`{}` in {} is not built yet", here.field, here.place);
                let label = format!("only {} is accepted by this version", value.toml());
                out.error(codes::NOT_BUILT, node.span(), message, label)
                    .help(*instead);
            }
        }
        _ => wrong_type(node, shape, here, out),
    }
}

/// What the tables inside `here` are called: ``bucket of limit `per-ip` ``.
fn inside(here: Here<'_>) -> String {
    match here.place {
        "the policy" => format!("[{}]", here.field),
        "[store]" => format!("[store.{}]", here.field),
        place => format!("`{}` of {place}", here.field),
    }
}

/// Whether a value has the type of a shape: how one of several is chosen.
fn suits(shape: &Shape, node: &Node<'_>) -> bool {
    match (shape, node.get_ref()) {
        (Shape::Text { .. } | Shape::Word(_), DeValue::String(_))
        | (Shape::Whole { .. }, DeValue::Integer(_))
        | (Shape::Table(_), DeValue::Table(_)) => true,
        _ => false,
    }
}

fn word(
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

fn out_of_range(node: &Node<'_>, least: u64, most: u64, here: Here<'_>, out: &mut Findings<'_>) {
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

/// A list of strings.
fn list(node: &Node<'_>, most: usize, here: Here<'_>, out: &mut Findings<'_>) {
    let Some(values) = node.get_ref().as_array() else {
        return;
    };
    let Here {
        place,
        field,
        example,
    } = here;
    if values.is_empty() {
        let message = format!("`{field}` of {place} is an empty list");
        out.error(
            codes::EMPTY_VALUE,
            node.span(),
            message,
            "needs at least one value",
        )
        .help(format!("write {field} = {example}, or leave `{field}` out"));
    }
    too_many(node, values.len(), most, here, out);
    for value in values
        .iter()
        .take(most)
        .filter(|value| !value.get_ref().is_str())
    {
        let message = format!(
            "`{field}` of {place} must hold strings, not {}",
            a_type(value)
        );
        let bare = matches!(value.get_ref(), DeValue::Integer(_) | DeValue::Boolean(_));
        let help = match (bare, written(value)) {
            (true, Some(text)) => format!("put it in quotes: \"{text}\""),
            _ => format!("write for example {field} = {example}"),
        };
        out.error(
            codes::TYPE,
            value.span(),
            message,
            format!("this is {}", a_type(value)),
        )
        .help(help);
    }
}

/// Names with a string or a list each.
fn named(
    node: &Node<'_>,
    names: &DeTable<'_>,
    most: usize,
    here: Here<'_>,
    out: &mut Findings<'_>,
) {
    too_many(node, names.len(), most, here, out);
    if names.is_empty() {
        let Here {
            place,
            field,
            example,
        } = here;
        let message = format!("`{field}` of {place} is an empty table");
        out.error(
            codes::EMPTY_VALUE,
            node.span(),
            message,
            "needs at least one name",
        )
        .help(format!("write {field} = {example}, or leave `{field}` out"));
    }
    for (name, node) in names.iter().take(most) {
        let field = format!("{}.{}", here.field, shown(name.get_ref()));
        let here = Here {
            field: &field,
            example: "\"value\"",
            ..here
        };
        value(
            node,
            &Shape::Texts {
                most: super::fields::MAX_VALUES,
            },
            here,
            out,
        );
    }
}

/// `[[limit]]`: each table is named in messages by its name, or else by its number.
fn tables(
    node: &Node<'_>,
    of: &'static Table,
    most: usize,
    here: Here<'_>,
    out: &mut Findings<'_>,
) {
    let Some(written) = node.get_ref().as_array() else {
        return;
    };
    too_many(node, written.len(), most, here, out);
    for (index, node) in written.iter().enumerate().take(most) {
        let Some(table) = node.get_ref().as_table() else {
            let message = format!("`{}` must hold tables, not {}", here.field, a_type(node));
            out.error(
                codes::TYPE,
                node.span(),
                message,
                format!("this is {}", a_type(node)),
            )
            .help(format!("write [[{}]] and its fields below it", here.field));
            continue;
        };
        fields(
            table,
            node.span(),
            of,
            &place(here.field, index, table),
            out,
        );
    }
}

/// ``limit `per-ip` ``, or `limit 3` if it has no name.
pub(super) fn place(kind: &str, index: usize, table: &DeTable<'_>) -> String {
    match table.get("name").and_then(|name| name.get_ref().as_str()) {
        Some(name) => format!("{kind} `{}`", shown(name)),
        None => format!("{kind} {}", index + 1),
    }
}

fn named_tables(
    node: &Node<'_>,
    names: &DeTable<'_>,
    of: &'static Table,
    most: usize,
    here: Here<'_>,
    out: &mut Findings<'_>,
) {
    too_many(node, names.len(), most, here, out);
    for (name, node) in names.iter().take(most) {
        let name = shown(name.get_ref());
        match node.get_ref().as_table() {
            Some(table) => fields(
                table,
                node.span(),
                of,
                &format!("{} `{name}`", here.field),
                out,
            ),
            None => {
                let kind = here.field;
                let message = format!("`{kind}.{name}` must be a table, not {}", a_type(node));
                let help = match of.field(&name) {
                    Some(_) => {
                        format!("each {kind} has a name: [{kind}.slow-down], and `{name}` below it")
                    }
                    None => format!("write [{kind}.{name}] and its fields below it"),
                };
                out.error(
                    codes::TYPE,
                    node.span(),
                    message,
                    format!("this is {}", a_type(node)),
                )
                .help(help);
            }
        }
    }
}

fn too_many(node: &Node<'_>, number: usize, most: usize, here: Here<'_>, out: &mut Findings<'_>) {
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
fn wrong_type(node: &Node<'_>, shape: &Shape, here: Here<'_>, out: &mut Findings<'_>) {
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
fn a_type(node: &Node<'_>) -> &'static str {
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
fn written(node: &Node<'_>) -> Option<String> {
    match node.get_ref() {
        DeValue::String(text) => Some(shown(text)),
        DeValue::Integer(number) => Some(number.to_string()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        _ => None,
    }
}

/// An integer of the document, if it is not negative and not huge.
pub(super) fn whole(node: &Node<'_>) -> Option<u64> {
    let number = node.get_ref().as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}
