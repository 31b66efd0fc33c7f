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

use ratekeeper_core::{Permits, Quota};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::fields::{LIMIT, POLICY};
use crate::config::{Findings, SpannedValue, Table, codes, error, shown};
use crate::http::unit::{Decimal, Unit};

/// How a quantity is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Number,
    /// A text that begins with a number.
    Text,
}

/// Stands for each value of a list in the path to a quantity.
const EACH: &str = "[]";

/// Paths to the quantities of a limit.
const QUANTITIES: [(&[&str], ValueKind); 9] = [
    (&["limit"], ValueKind::Text),
    (&["bucket", "size"], ValueKind::Number),
    (&["bucket", "refill"], ValueKind::Text),
    (&["balance", "start"], ValueKind::Number),
    (&["balance", "max"], ValueKind::Number),
    (&["cost"], ValueKind::Number),
    (&["cost", EACH, "is"], ValueKind::Number),
    (&["cost", "reserve"], ValueKind::Number),
    (&["cost", "reserve", EACH, "is"], ValueKind::Number),
];

/// Returns the unit of a limit, if it has one that can be read.
pub(crate) fn unit(table: Table<'_>) -> Option<Unit> {
    let unit = table.table("unit")?;
    let decimals = unit.number("decimals")?;
    let name = unit.text("name")?.value;
    Some(Unit::new(name, decimals))
}

/// Returns permits as the policy writes them: `"12.50"` in a unit, else `1250`.
pub(crate) fn as_written(permits: Permits, unit: Option<&Unit>) -> String {
    let Some(unit) = unit else {
        return permits.to_string();
    };
    let shown = unit.show(permits.get()).to_string();
    let (number, _) = shown.split_once(' ').unwrap_or((&shown, ""));
    format!("\"{number}\"")
}

/// Returns a limit in words, with its quantities in the unit: `bucket of 200.00 USD, 50.00 USD/24h`.
/// Quantities are the numbers that stand at the beginning of a word and are no duration.
pub(crate) fn in_unit(text: String, unit: Option<&Unit>) -> String {
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

/// The quantities of limits with a unit in the smallest unit, in the order of a visit; `None` for
/// values that stay.
#[derive(Default)]
pub(crate) struct Conversions(Vec<Option<String>>);

impl Conversions {
    /// Converts the quantities of all limits with a unit; reports those that cannot be counted.
    pub(crate) fn read(&mut self, root: &mut DeTable<'_>, out: &Findings<'_>) {
        for limit in Table::root(root, &POLICY, out).tables("limit") {
            if unit(limit).is_some() {
                without_cost(limit);
            }
        }
        visit_all(root, out, |node, kind, unit| {
            self.0.push(converted(node, kind, unit, out));
        });
    }

    /// Writes the converted quantities into the document.
    pub(crate) fn apply<'t>(&'t self, root: &mut DeTable<'t>, out: &Findings<'_>) {
        let mut texts = self.0.iter();
        visit_all(root, out, |node, kind, _| {
            let text = texts.next().and_then(Option::as_deref);
            let value = text.and_then(|text| match kind {
                ValueKind::Text => Some(DeValue::String(text.into())),
                ValueKind::Number => DeValue::parse(text).ok().map(Spanned::into_inner),
            });
            if let Some(value) = value {
                *node = Spanned::new(node.span(), value);
            }
        });
    }
}

/// Calls `convert` with each quantity of each limit with a unit.
fn visit_all<'t>(
    root: &mut DeTable<'t>,
    out: &Findings<'_>,
    mut convert: impl FnMut(&mut SpannedValue<'t>, ValueKind, &Unit),
) {
    let Some(DeValue::Array(limits)) = root.get_mut("limit").map(Spanned::get_mut) else {
        return;
    };
    for limit in limits.iter_mut() {
        let table = limit.get_ref().as_table();
        let Some(unit) = table.and_then(|table| unit(Table::root(table, &LIMIT, out))) else {
            continue;
        };
        for (path, kind) in QUANTITIES {
            visit(limit, path, &mut |node| convert(node, kind, &unit));
        }
    }
}

fn visit<'t>(
    node: &mut SpannedValue<'t>,
    path: &[&str],
    found: &mut dyn FnMut(&mut SpannedValue<'t>),
) {
    let [name, rest @ ..] = path else {
        return found(node);
    };
    match node.get_mut() {
        DeValue::Array(items) if *name == EACH => {
            items.iter_mut().for_each(|item| visit(item, rest, found));
        }
        DeValue::Table(table) => {
            if let Some(node) = table.get_mut(*name) {
                visit(node, rest, found);
            }
        }
        _ => {}
    }
}

/// Returns a value in the smallest unit; `None` if it is no decimal, or refused.
fn converted(
    node: &SpannedValue<'_>,
    kind: ValueKind,
    unit: &Unit,
    out: &Findings<'_>,
) -> Option<String> {
    let node = out.at(0..0).node(node);
    let text = node.text_or_number()?.value;
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
        error(codes::UNIT, node.at, message, label).help(help);
    }
    Some(format!("{permits}{rest}"))
}

/// Reports a limit with `unit` and without a `cost`.
fn without_cost(table: Table<'_>) {
    if table.has("cost") {
        return;
    }
    let message = "a limit with `unit` has no `cost`";
    let label = "a request has no amount of this unit";
    error(codes::UNIT, table.place("unit"), message, label)
        .help("name the attribute that holds the amount: cost = \"attr:amount\"");
}
