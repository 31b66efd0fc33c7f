//! Unit: quantities and costs with decimals, counted in whole numbers of the smallest unit.
//!
//! ```text
//!   unit   = { name = "USD", decimals = 2 }       permits are cents
//!   bucket = { size = "200.00", refill = "50.00/24h" }
//!                     20000               5000/24h
//! ```
//!
//! The values of such a limit are converted before anything else reads them, by moving the point: no
//! number is ever a float.

use ratekeeper_core::Quota;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Cost;
use crate::config::codes;
use crate::config::diagnostic::{Findings, shown};
use crate::config::document::read::{SpannedValue, Table, whole};
use crate::http::unit::{Decimal, Unit};

/// A value of a limit that is converted: its digits in the smallest unit.
struct Converted {
    /// The field, and the field of the table in it if it is one.
    field: (&'static str, Option<&'static str>),
    /// Index of the table in the list that the field is, if it is one.
    item: usize,
    text: String,
    kind: ValueKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Number,
    Text,
}

/// Fields that hold a quantity, and whether it is a number or a text that begins with one.
const QUANTITIES: [((&str, Option<&str>), ValueKind); 8] = [
    (("limit", None), ValueKind::Text),
    (("bucket", Some("size")), ValueKind::Number),
    (("bucket", Some("refill")), ValueKind::Text),
    (("balance", Some("start")), ValueKind::Number),
    (("balance", Some("max")), ValueKind::Number),
    (("cost", None), ValueKind::Number),
    (("cost", Some(RESERVE)), ValueKind::Number),
    (("cost", Some(PRICE)), ValueKind::Number),
];

/// The field of a list of tables, which the field or its table of this name has.
const PRICE: &str = "is";
const RESERVE: &str = "reserve";

/// Returns the unit of a limit, if it has one that can be read.
pub(in crate::config) fn unit(table: Table<'_>) -> Option<Unit> {
    let unit = table.table("unit")?;
    let decimals = unit.number("decimals")?;
    let name = unit.text("name")?.value;
    Some(Unit::new(name, decimals))
}

/// Returns the cost that an attribute holds.
pub(in crate::config) fn cost_in(attribute: &str, unit: Option<&Unit>) -> Cost {
    match unit {
        Some(unit) => Cost::Decimal(attribute.to_owned(), unit.clone()),
        None => Cost::Attribute(attribute.to_owned()),
    }
}

/// Returns a limit in words, with its quantities in the unit: `bucket of 200.00 USD, 50.00 USD/24h`.
/// Quantities are the numbers that stand at the beginning of a word and are no duration.
pub(in crate::config) fn in_unit(text: String, unit: Option<&Unit>) -> String {
    let Some(unit) = unit else {
        return text;
    };
    let quantity = |word: &str| {
        let end = word.find(|it: char| !it.is_ascii_digit());
        let (digits, rest) = word.split_at(end.unwrap_or(word.len()));
        match digits.parse() {
            Ok(permits) if !rest.starts_with(char::is_alphabetic) => {
                format!("{}{rest}", unit.show(permits))
            }
            _ => word.to_owned(),
        }
    };
    let words: Vec<String> = text.split(' ').map(quantity).collect();
    words.join(" ")
}

/// The values of limits with a unit, by the index of the limit.
pub(in crate::config) struct Conversions(Vec<(usize, Vec<Converted>)>);

impl Conversions {
    /// Converts the values of all limits with a unit; reports those that cannot be counted.
    pub(in crate::config) fn of(root: Table<'_>, out: &mut Findings<'_>) -> Self {
        let mut all = Vec::new();
        for (index, table) in root.tables("limit") {
            let Some(unit) = unit(table) else {
                continue;
            };
            without_cost(table, out);
            let mut values = Vec::new();
            for (field, kind) in QUANTITIES {
                for (item, node) in nodes(table, field.0, field.1) {
                    let text = converted(node, kind, &unit, out);
                    values.extend(text.map(|text| Converted {
                        field,
                        item,
                        text,
                        kind,
                    }));
                }
            }
            all.push((index, values));
        }
        Self(all)
    }

    /// Returns the document with the converted values; `None` if there are none.
    pub(in crate::config) fn apply<'t>(&'t self, root: &DeTable<'t>) -> Option<DeTable<'t>> {
        if self.0.is_empty() {
            return None;
        }
        let mut root = root.clone();
        let limits = root.get_mut("limit")?;
        for (index, values) in &self.0 {
            let DeValue::Array(limits) = limits.get_mut() else {
                return None;
            };
            let Some(DeValue::Table(limit)) = limits.get_mut(*index).map(Spanned::get_mut) else {
                continue;
            };
            for value in values {
                value.put(limit);
            }
        }
        Some(root)
    }
}

impl Converted {
    fn put<'t>(&'t self, limit: &mut DeTable<'t>) {
        let (field, inner) = self.field;
        let outer = limit.get(field).map(Spanned::get_ref);
        let holder = match (inner, outer) {
            (Some(PRICE), Some(DeValue::Table(_))) => nested(limit, field, RESERVE),
            _ => limit.get_mut(field),
        };
        let node = match (holder, inner) {
            (Some(node), None) => Some(node),
            (Some(node), Some(inner)) => match node.get_mut() {
                DeValue::Table(table) => table.get_mut(inner),
                DeValue::Array(items) => match items.get_mut(self.item).map(Spanned::get_mut) {
                    Some(DeValue::Table(table)) => table.get_mut(inner),
                    _ => None,
                },
                _ => None,
            },
            (None, _) => None,
        };
        let value = match self.kind {
            ValueKind::Text => Some(DeValue::String((&*self.text).into())),
            ValueKind::Number => DeValue::parse(&self.text).ok().map(Spanned::into_inner),
        };
        if let (Some(node), Some(value)) = (node, value) {
            let span = node.span();
            *node = Spanned::new(span, value);
        }
    }
}

/// Returns the value of a field of the table in a field.
fn nested<'a, 't>(
    table: &'a mut DeTable<'t>,
    field: &str,
    inner: &str,
) -> Option<&'a mut Spanned<DeValue<'t>>> {
    match table.get_mut(field)?.get_mut() {
        DeValue::Table(table) => table.get_mut(inner),
        _ => None,
    }
}

/// Returns the values of a field that are written, with their indices in a list.
fn nodes<'t>(
    table: Table<'t>,
    field: &str,
    inner: Option<&str>,
) -> Vec<(usize, &'t SpannedValue<'t>)> {
    let one = match inner {
        Some(PRICE) => {
            let items = match table.table(field) {
                Some(estimate) => estimate.tables(RESERVE),
                None => table.tables(field),
            };
            let values = items.filter_map(|(item, table)| Some((item, table.get(PRICE)?)));
            return values.collect();
        }
        Some(inner) => table.table(field).and_then(|table| table.get(inner)),
        None => table.get(field),
    };
    one.map(|node| (0, node)).into_iter().collect()
}

/// Returns a value in the smallest unit; `None` if it is no decimal, or refused.
fn converted(
    node: &SpannedValue<'_>,
    kind: ValueKind,
    unit: &Unit,
    out: &mut Findings<'_>,
) -> Option<String> {
    let text = written(node)?;
    let (number, rest) = match kind {
        ValueKind::Number => (&*text, ""),
        ValueKind::Text => text.split_at(text.find('/')?),
    };
    // The converted value of a refused one avoids a second finding.
    let (permits, why) = match unit.read(number) {
        Decimal::None => return None,
        Decimal::Exact(permits) => (permits, None),
        Decimal::TooFine(permits) => {
            let label = format!("{} has {} decimals", unit.name(), unit.decimals());
            (
                permits,
                Some((label, "leave out the decimals beyond, or raise `decimals`")),
            )
        }
        Decimal::TooLarge => {
            let label = format!(
                "more than {} cannot be counted",
                unit.show(Quota::MAX_PERMITS)
            );
            (
                u32::MAX.into(), // no algorithm refuses it
                Some((label, "write a smaller number, or lower `decimals`")),
            )
        }
    };
    if let Some((label, help)) = why {
        let message = format!("`{}` is not a quantity of its unit", shown(&text));
        out.error(codes::UNIT, node.span(), message, label)
            .help(help);
    }
    Some(format!("{permits}{rest}"))
}

fn written(node: &SpannedValue<'_>) -> Option<String> {
    let number = || whole(node).map(|number| number.to_string());
    node.get_ref().as_str().map(str::to_owned).or_else(number)
}

/// Reports a limit with `unit` and without a `cost`.
fn without_cost(table: Table<'_>, out: &mut Findings<'_>) {
    if table.has("cost") {
        return;
    }
    let message = "a limit with `unit` has no `cost`";
    let label = "a request has no amount of this unit";
    out.error(codes::UNIT, table.place("unit"), message, label)
        .help("name the attribute that holds the amount: cost = \"attr:amount\"");
}
