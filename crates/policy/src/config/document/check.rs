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

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use super::complaint::{Here, written};
use super::read::{called, factor};
use super::shape::{Need, Shape, TableSpec, a_type, in_backticks};
use crate::config::{Findings, SpannedValue, codes, shown, whole};

impl Findings<'_> {
    /// Checks the fields of one table. A text is one without a place.
    pub(crate) fn fields(
        &self,
        there: &DeTable<'_>,
        at: Range<usize>,
        table: &'static TableSpec,
        place: &str,
    ) {
        let mut helps = Vec::new();
        for (name, node) in there {
            match table.field(name.get_ref()) {
                Some(spec) => {
                    let (field, example) = (spec.name, spec.example);
                    let here = Here {
                        place,
                        field,
                        example,
                    };
                    self.value(node, &spec.shape, here);
                }
                None => helps.push(self.unknown(name, node, table, place)),
            }
        }
        if !self.is_whole() {
            return; // a missing field may stand where the text could not be read
        }
        // A field that a help proposes is not reported as missing as well.
        let proposed = |name: &str| {
            helps
                .iter()
                .any(|help| help.contains(&format!("{name} = ")))
        };
        for field in table.fields {
            let needed = field.need == Need::Required && !there.contains_key(field.name);
            if needed && !proposed(field.name) {
                self.missing(field, at.clone(), place);
            }
        }
        if !table.one_of.iter().any(|name| proposed(name)) {
            self.exactly_one(there, at, table.one_of, place);
        }
    }

    /// Reports an error unless exactly one of the fields `names` is written.
    fn exactly_one(&self, written: &DeTable<'_>, at: Range<usize>, names: &[&str], place: &str) {
        let mut there: Vec<_> = written
            .keys()
            .filter(|key| names.contains(&&**key.get_ref()))
            .collect();
        there.sort_by_key(|key| key.span().start);
        if there.is_empty() && !names.is_empty() {
            let message = format!("{place} limits nothing");
            let label = format!("needs one of {}", in_backticks(names));
            self.error(codes::NO_QUANTITY, at, message, label)
                .help("add for example limit = \"100/1m\"");
            return;
        }
        for second in there.iter().skip(1) {
            let (first, name) = (there[0], second.get_ref());
            let message = format!("{place} has both `{}` and `{name}`", first.get_ref());
            let label = "a limit has exactly one of them";
            self.error(codes::TWO_QUANTITIES, second.span(), message, label)
            .related(first.span())
            .help(format!(
                "keep one, or move `{name}` into a [[limit]] of its own: all limits that match apply"
            ));
        }
    }

    /// Checks one value.
    fn value(&self, node: &SpannedValue<'_>, shape: &'static Shape, here: Here<'_>) {
        if !self.suits(node, shape, here) {
            self.wrong_type(node, shape, here);
        }
    }

    /// Checks a value of the type of a shape; returns false for one of another type.
    fn suits(&self, node: &SpannedValue<'_>, shape: &'static Shape, here: Here<'_>) -> bool {
        match (shape, node.get_ref()) {
            (Shape::Text(..) | Shape::Texts(..), DeValue::String(_))
            | (Shape::Numbers(..), DeValue::String(_) | DeValue::Integer(_))
            | (Shape::Flag, DeValue::Boolean(_))
            | (Shape::Moment, DeValue::Datetime(_) | DeValue::String(_)) => {}
            (Shape::Scalar(scalar), DeValue::String(text)) => {
                self.not_scalar(*scalar, text, node.span(), here);
            }
            (Shape::Word(words), DeValue::String(text)) => {
                self.word(text, node.span(), words, here);
            }
            (Shape::Whole(least, most) | Shape::Amount(least, most), DeValue::Integer(_)) => {
                if whole(node.get_ref()).is_none_or(|number| number < *least || number > *most) {
                    self.out_of_range(node, *least, *most, here);
                }
            }
            (Shape::Factor(most), DeValue::Integer(_) | DeValue::Float(_)) => {
                if factor(node.get_ref(), *most).is_none() {
                    self.not_factor(node, *most, here);
                }
            }
            (
                Shape::Texts(most) | Shape::List(most) | Shape::Numbers(most),
                DeValue::Array(values),
            ) => {
                self.list(node, values, *most, shape, here);
            }
            (Shape::Values(of, most), DeValue::Array(values)) => {
                self.empty_list(node, values.len(), here);
                self.too_many(node, values.len(), *most, here);
                for node in values.iter().take(*most) {
                    self.value(node, of, here);
                }
            }
            (Shape::Values(of, _), _) => self.value(node, of, here),
            (Shape::Map(of, most), DeValue::Table(names)) => {
                self.named(node, names, of, *most, here);
            }
            (Shape::Table(table), DeValue::Table(written)) => {
                self.fields(written, node.span(), table, &inside(here));
            }
            (Shape::Tables { least: 1.., .. }, DeValue::Array(written)) if written.is_empty() => {
                self.empty(node, "list", "table", None, here);
            }
            (
                Shape::Tables {
                    of, most, heading, ..
                },
                DeValue::Array(written),
            ) => {
                self.tables(node, written, of, *most, heading, here);
            }
            (Shape::NamedTables(of, most), DeValue::Table(names)) => {
                self.named_tables(node, names, of, *most, here);
            }
            (Shape::Either(shapes), _) => {
                return shapes.iter().any(|shape| self.suits(node, shape, here));
            }
            _ => return false,
        }
        true
    }

    /// Checks a list of at most `most` strings, or numbers where the shape has these.
    fn list(
        &self,
        node: &SpannedValue<'_>,
        values: &[SpannedValue<'_>],
        most: usize,
        shape: &Shape,
        here: Here<'_>,
    ) {
        self.empty_list(node, values.len(), here);
        self.too_many(node, values.len(), most, here);
        let takes_numbers = matches!(shape, Shape::Numbers(_));
        let accepts = |value: &DeValue<'_>| value.is_str() || takes_numbers && value.is_integer();
        let values = values.iter().take(most);
        for value in values.filter(|value| !accepts(value.get_ref())) {
            let message = format!("{here} must contain strings, not {}", a_type(value));
            let bare = matches!(value.get_ref(), DeValue::Integer(_) | DeValue::Boolean(_));
            let bare = bare && here.field != "days"; // mon, not "1"
            let help = match (bare, written(value)) {
                (true, Some(text)) => format!("put it in quotes: \"{text}\""),
                _ => here.usual(),
            };
            self.not_of_type(value, message, help);
        }
    }

    /// Reports a list without values.
    fn empty_list(&self, node: &SpannedValue<'_>, number: usize, here: Here<'_>) {
        if number > 0 {
            return;
        }
        let help = match here.field {
            "key" => Some("write key = [\"ip\"], or key = [\"all\"] for one counter"),
            "limits" => Some("write limits = [\"*\"], or the names of some limits"),
            _ => None,
        };
        self.empty(node, "list", "value", help, here);
    }

    /// Reports a list or a table that holds nothing.
    fn empty(
        &self,
        node: &SpannedValue<'_>,
        kind: &str,
        content: &str,
        help: Option<&str>,
        here: Here<'_>,
    ) {
        let usual = || {
            format!(
                "write {0} = {1}, or leave `{0}` out",
                here.field, here.example
            )
        };
        let message = format!("{here} is an empty {kind}");
        let label = format!("needs at least one {content}");
        self.error(codes::EMPTY_VALUE, node.span(), message, label)
            .help(help.map_or_else(usual, str::to_owned));
    }

    /// Checks names with a value of one shape each.
    fn named(
        &self,
        node: &SpannedValue<'_>,
        names: &DeTable<'_>,
        of: &'static Shape,
        most: usize,
        here: Here<'_>,
    ) {
        self.too_many(node, names.len(), most, here);
        if names.is_empty() {
            self.empty(node, "table", "name", None, here);
        }
        // The example of the table has one name: { pro = "600/1m" }.
        let example = here.example.trim_end_matches(" }").split_once(" = ");
        let example = example.map_or("\"value\"", |(_, value)| value);
        for (name, node) in names.iter().take(most) {
            let field = format!("{}.{}", here.field, shown(name.get_ref()));
            let here = Here {
                field: &field,
                example,
                ..here
            };
            self.value(node, of, here);
        }
    }

    /// Checks `[[limit]]`: messages name each table by its name, or else by its number.
    fn tables(
        &self,
        node: &SpannedValue<'_>,
        written: &[SpannedValue<'_>],
        of: &'static TableSpec,
        most: usize,
        heading: &str,
        here: Here<'_>,
    ) {
        self.too_many(node, written.len(), most, here);
        for (index, node) in written.iter().enumerate().take(most) {
            let Some(table) = node.get_ref().as_table() else {
                let message = format!("`{}` must hold tables, not {}", here.field, a_type(node));
                let help = format!("write [[{heading}]] and its fields below it");
                self.not_of_type(node, message, help);
                continue;
            };
            self.fields(table, node.span(), of, &called(here.field, index, table));
        }
    }

    fn named_tables(
        &self,
        node: &SpannedValue<'_>,
        names: &DeTable<'_>,
        of: &'static TableSpec,
        most: usize,
        here: Here<'_>,
    ) {
        self.too_many(node, names.len(), most, here);
        for (name, node) in names.iter().take(most) {
            let name = shown(name.get_ref());
            let kind = here.field;
            if let Some(table) = node.get_ref().as_table() {
                self.fields(table, node.span(), of, &format!("{kind} `{name}`"));
                continue;
            }
            let message = format!("`{kind}.{name}` must be a table, not {}", a_type(node));
            let help = match of.field(&name) {
                Some(_) => {
                    format!(
                        "give each {kind} a name: [{kind}.slow-down], and write `{name}` below it"
                    )
                }
                None => format!("write [{kind}.{name}] and its fields below it"),
            };
            self.not_of_type(node, message, help);
        }
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
