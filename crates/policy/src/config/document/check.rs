//! Check: the text against the table of fields, everything wrong with it at once.
//!
//! ```text
//!   check(POLICY, root)
//!     +-- each field written:  known? built? of the right type?  --> go into its value
//!     +-- each field required: is it there?
//! ```
//!
//! Values that pass have the right shape. Later readers ignore the others, because they have been
//! reported here.

use toml::de::DeValue;

use super::complaint::{
    Here, missing, not_factor, not_of_type, not_scalar, out_of_range, too_many, unknown, word,
    written, wrong_type,
};
use super::read::{called, factor};
use super::shape::{Need, Shape, TableSpec, a_type, in_backticks};
use crate::config::{At, Node, Table, codes, error, is_word, whole};

/// Checks the fields of one table.
pub(crate) fn check(table: Table<'_>, place: &str) {
    let spec = table.spec;
    let mut helps = Vec::new();
    for (name, node) in table.fields() {
        match spec.field(name.value) {
            Some(known) => {
                let (field, example) = (known.name, known.example);
                let here = Here {
                    place,
                    field,
                    example,
                    assigned: &format!("{field} = "),
                };
                value(node, &known.shape, here);
            }
            None => helps.push(unknown(&name, node, spec, place)),
        }
    }
    if !table.findings().is_whole() {
        return; // a missing field may stand where the text could not be read
    }
    // A field that a help proposes is not reported as missing as well.
    let proposed = |name: &str| {
        helps
            .iter()
            .any(|help| help.contains(&format!("{name} = ")))
    };
    for field in spec.fields {
        let needed = field.need == Need::Required && !table.has(field.name);
        if needed && !proposed(field.name) {
            missing(field, table.at(), place);
        }
    }
    if !spec.one_of.iter().any(|name| proposed(name)) {
        exactly_one(table, place);
    }
}

/// Reports an error unless exactly one of the fields is written of which there must be one.
fn exactly_one(table: Table<'_>, place: &str) {
    let names = table.spec.one_of;
    let there = table.fields().map(|(name, _)| name);
    let there = there.filter(|name| names.contains(&name.value));
    let mut there: Vec<_> = there.collect();
    there.sort_by_key(|name| name.at.range().start);
    if there.is_empty() && !names.is_empty() {
        let message = format!("{place} limits nothing");
        let label = format!("needs one of {}", in_backticks(names));
        error(codes::NO_QUANTITY, table.at(), message, label)
            .help("add for example limit = \"100/1m\"");
        return;
    }
    for second in there.iter().skip(1) {
        let (first, name) = (there[0], second.value);
        let message = format!("{place} has both `{}` and `{name}`", first.value);
        let label = "a limit has exactly one of them";
        error(codes::TWO_QUANTITIES, second.at, message, label)
            .related(first.at)
            .help(format!(
            "keep one, or move `{name}` into a [[limit]] of its own: all limits that match apply"
        ));
    }
}

/// Checks one value.
fn value(node: Node<'_>, shape: &'static Shape, here: Here<'_>) {
    if !suits(node, shape, here) {
        wrong_type(node, shape, here);
    }
}

/// Checks a value of the type of a shape; returns false for one of another type.
fn suits(node: Node<'_>, shape: &'static Shape, here: Here<'_>) -> bool {
    match (shape, node.value) {
        (Shape::Text(..) | Shape::Texts(..), DeValue::String(_))
        | (Shape::Numbers(..), DeValue::String(_) | DeValue::Integer(_))
        | (Shape::Flag, DeValue::Boolean(_))
        | (Shape::Moment, DeValue::Datetime(_) | DeValue::String(_)) => {}
        (Shape::Scalar(scalar), DeValue::String(text)) => {
            not_scalar(*scalar, &At::new(text, node.at), here);
        }
        (Shape::Word(words), DeValue::String(text)) => {
            word(&At::new(text, node.at), words, here);
        }
        (Shape::Whole(least, most) | Shape::Amount(least, most), DeValue::Integer(_)) => {
            if whole(node.value).is_none_or(|number| number < *least || number > *most) {
                out_of_range(node, *least, *most, here);
            }
        }
        (Shape::Factor(most), DeValue::Integer(_) | DeValue::Float(_)) => {
            if factor(node.value, *most).is_none() {
                not_factor(node, *most, here);
            }
        }
        (Shape::Texts(most) | Shape::List(most) | Shape::Numbers(most), DeValue::Array(_)) => {
            list(node, *most, shape, here);
        }
        (Shape::Values(of, most), DeValue::Array(_)) => {
            empty_list(node, here);
            too_many(node, *most, here);
            for node in node.each().take(*most) {
                value(node, of, here.each());
            }
        }
        (Shape::Values(of, _), _) => value(node, of, here),
        (Shape::Map(of, most), DeValue::Table(_)) => named(node, of, *most, here),
        (Shape::Table(spec), DeValue::Table(written)) => {
            check(Table::new(written, spec, node.at), &inside(here));
        }
        (Shape::Tables { least: 1.., .. }, DeValue::Array(written)) if written.is_empty() => {
            empty(node, "list", "table", None, here);
        }
        (
            Shape::Tables {
                of, most, heading, ..
            },
            DeValue::Array(_),
        ) => {
            tables(node, of, *most, heading, here);
        }
        (Shape::NamedTables(of, most), DeValue::Table(_)) => named_tables(node, of, *most, here),
        (Shape::Either(shapes), _) => {
            return shapes.iter().any(|shape| suits(node, shape, here));
        }
        _ => return false,
    }
    true
}

/// Checks a list of at most `most` strings, or numbers where the shape has these.
fn list(node: Node<'_>, most: usize, shape: &Shape, here: Here<'_>) {
    empty_list(node, here);
    too_many(node, most, here);
    let takes_numbers = matches!(shape, Shape::Numbers(_));
    let accepts = |value: &DeValue<'_>| value.is_str() || takes_numbers && value.is_integer();
    let values = node.each().take(most);
    for node in values.filter(|node| !accepts(node.value)) {
        let message = format!("{here} must contain strings, not {}", a_type(node.value));
        let bare = matches!(node.value, DeValue::Integer(_) | DeValue::Boolean(_));
        let bare = bare && here.field != "days"; // mon, not "1"
        let help = match (bare, written(node)) {
            (true, Some(text)) => format!("put it in quotes: \"{text}\""),
            _ => here.each().usual(),
        };
        not_of_type(node, message, help);
    }
}

/// Reports a list without values.
fn empty_list(node: Node<'_>, here: Here<'_>) {
    if node.len() > 0 {
        return;
    }
    let help = match here.field {
        "key" => Some("write key = [\"ip\"], or key = [\"all\"] for one counter"),
        "limits" => Some("write limits = [\"*\"], or the names of some limits"),
        _ => None,
    };
    empty(node, "list", "value", help, here);
}

/// Reports a list or a table that holds nothing.
fn empty(node: Node<'_>, kind: &str, content: &str, help: Option<&str>, here: Here<'_>) {
    let usual = || {
        format!(
            "write {0} = {1}, or leave `{0}` out",
            here.field, here.example
        )
    };
    let message = format!("{here} is an empty {kind}");
    let label = format!("needs at least one {content}");
    error(codes::EMPTY_VALUE, node.at, message, label).help(help.map_or_else(usual, str::to_owned));
}

/// Checks names with a value of one shape each.
fn named(node: Node<'_>, of: &'static Shape, most: usize, here: Here<'_>) {
    too_many(node, most, here);
    if node.len() == 0 {
        empty(node, "table", "name", None, here);
    }
    // The example of the table has one name: { pro = "600/1m" }.
    let example = here.example.trim_end_matches(" }").split_once(" = ");
    let example = example.map_or("\"value\"", |(_, value)| value);
    for (name, node) in node.fields().take(most) {
        let quote = if is_word(name.value) { "" } else { "\"" };
        let field = format!("{}.{quote}{name}{quote}", here.field);
        let here = Here {
            field: &field,
            example,
            assigned: &format!("{field} = "),
            ..here
        };
        value(node, of, here);
    }
}

/// Checks `[[limit]]`: messages name each table by its name, or else by its number.
fn tables(node: Node<'_>, of: &'static TableSpec, most: usize, heading: &str, here: Here<'_>) {
    too_many(node, most, here);
    for (index, node) in node.each().enumerate().take(most) {
        let Some(table) = node.value.as_table() else {
            let kind = a_type(node.value);
            let message = format!("`{}` must hold tables, not {kind}", here.field);
            let help = format!("write [[{heading}]] and its fields below it");
            not_of_type(node, message, help);
            continue;
        };
        let place = called(here.field, index, table);
        check(Table::new(table, of, node.at), &place);
    }
}

fn named_tables(node: Node<'_>, of: &'static TableSpec, most: usize, here: Here<'_>) {
    too_many(node, most, here);
    for (name, node) in node.fields().take(most) {
        let (name, kind) = (name.to_string(), here.field);
        if let Some(table) = node.value.as_table() {
            check(Table::new(table, of, node.at), &format!("{kind} `{name}`"));
            continue;
        }
        let wrong = a_type(node.value);
        let message = format!("`{kind}.{name}` must be a table, not {wrong}");
        let help = match of.field(&name) {
            Some(_) => {
                format!("give each {kind} a name: [{kind}.slow-down], and write `{name}` below it")
            }
            None => format!("write [{kind}.{name}] and its fields below it"),
        };
        not_of_type(node, message, help);
    }
}

/// Returns the name of the tables inside `here`: ``bucket of limit `per-ip` ``.
fn inside(here: Here<'_>) -> String {
    match here.place {
        "the policy" => format!("[{}]", here.field),
        "[store]" => format!("[store.{}]", here.field),
        _ => here.to_string(),
    }
}
