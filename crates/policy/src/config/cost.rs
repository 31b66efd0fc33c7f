//! Cost: reads `cost`, a number, an attribute, or an estimate.

use std::ops::Range;

use ratekeeper_core::Permits;
use toml::de::DeTable;

use super::codes;
use super::diagnostic::{Findings, shown};
use super::read::{At, SpannedValue, whole};
use super::unit::cost_in;
use crate::{Cost, Unit};

/// The cost of a request.
pub(super) struct CostSpec {
    /// The range is empty if it is not written.
    pub(super) cost: At<Cost>,
    /// Place of `reserve`, if it is an estimate.
    pub(super) estimate: Option<Range<usize>>,
}

/// Reads `cost`; `None` means refused.
pub(super) fn cost(
    table: &DeTable<'_>,
    place: (&str, Option<&Unit>),
    out: &mut Findings<'_>,
) -> Option<CostSpec> {
    let Some(node) = table.get("cost") else {
        let cost = At::new(Cost::Request, 0..0);
        let estimate = None;
        return Some(CostSpec { cost, estimate });
    };
    if let Some(table) = node.get_ref().as_table() {
        let cost = amount(table.get("reserve")?, "reserve", place, out)?;
        let estimate = Some(node.span());
        return Some(CostSpec { cost, estimate });
    }
    let cost = amount(node, "cost", place, out)?;
    let estimate = None;
    Some(CostSpec { cost, estimate })
}

/// Reads a number or an attribute in `field`; `None` means refused.
fn amount(
    node: &SpannedValue<'_>,
    field: &str,
    (place, unit): (&str, Option<&Unit>),
    out: &mut Findings<'_>,
) -> Option<At<Cost>> {
    if let Some(text) = node.get_ref().as_str() {
        if let Some(attribute) = text.strip_prefix("attr:").filter(|name| !name.is_empty()) {
            return Some(At::new(cost_in(attribute, unit), node.span()));
        }
        let help = match text.trim().parse::<u32>() {
            Ok(number) => format!("write it without quotes: {field} = {number}"),
            Err(_) => {
                format!("write a number, or the attribute that holds it: {field} = \"attr:amount\"")
            }
        };
        let message = format!("\"{}\" is not a valid cost of {place}", shown(text));
        out.error(
            codes::COST,
            node.span(),
            message,
            "expected a number or \"attr:NAME\"",
        )
        .help(help);
        return None;
    }
    let number = whole(node).filter(|number| *number > 0)?;
    let number = u32::try_from(number).ok()?;
    Some(At::new(Cost::Fixed(Permits::new(number)), node.span()))
}
