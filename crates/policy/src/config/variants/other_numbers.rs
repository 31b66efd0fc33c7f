//! Other numbers: the table of a limit with the numbers of a plan or an override in place of its own.

use ratekeeper_core::Quota;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::fields::{MAX_AT_ONCE, QUANTITIES};
use crate::config::quantity::numbers::{Written, built, duration};
use crate::config::{At, SpannedValue, Table, Text, codes, error, shown};

/// Returns the table of a limit with other numbers; `None` if their form is reported as wrong.
pub(super) fn written_with<'s>(limit: Table<'s>, text: &Text<'s>) -> Option<DeTable<'s>> {
    let At { value: set, at } = *text;
    if limit.has("unit") {
        let message = "a limit with a `unit` has the same numbers for every key";
        error(codes::UNIT, at, message, "sets other numbers")
            .help("write a second limit for this key, with `match` and the other numbers");
        return None;
    }
    let mut written = limit.written().clone();
    let field = limit.first_of(QUANTITIES)?;
    let node = written.get_mut(field)?;
    match field {
        "bucket" => {
            built(set.parse::<Quota>(), text, Written::Refill)?;
            // `50/1s burst 100`, or `50/1s`: a bucket of as many as it refills.
            let (refill, burst) = set.split_once(" burst ").unwrap_or((set, set));
            let size = burst.split('/').next().unwrap_or(burst);
            put(node, "size", number(size)?);
            put(node, "refill", DeValue::String(refill.into()));
        }
        "balance" => {
            let message = "a balance has the same numbers for every key";
            error(codes::BALANCE, at, message, "sets other numbers")
                .help("grant the key credits instead, with POST /v1/grant");
            return None;
        }
        "concurrency" => {
            let permits = set.parse::<u64>().ok();
            let permits = permits.filter(|permits| (1..=MAX_AT_ONCE).contains(permits));
            let Some(permits) = permits.and_then(|_| number(set)) else {
                let message = format!("\"{}\" is not a valid number of permits", shown(set));
                let label = format!("expected a number from 1 to {MAX_AT_ONCE}");
                error(codes::QUOTA, at, message, label)
                    .help("write the maximum number of permits on loan at once, such as 50");
                return None;
            };
            if node.get_ref().is_table() {
                put(node, "max", permits);
            } else {
                *node = Spanned::new(0..0, permits);
            }
        }
        field => {
            if field == "spacing" {
                duration(text, Written::Spacing)?;
            }
            *node = Spanned::new(0..0, DeValue::String(set.into()));
        }
    }
    Some(written)
}

/// Replaces a field of a table.
fn put<'s>(table: &mut SpannedValue<'s>, name: &'static str, value: DeValue<'s>) {
    if let DeValue::Table(table) = table.get_mut()
        && let Some(node) = table.get_mut(name)
    {
        *node = Spanned::new(0..0, value);
    }
}

/// Returns digits as a number of the document.
fn number(digits: &str) -> Option<DeValue<'_>> {
    let digits = digits.trim_start_matches('0');
    let value = DeValue::parse(digits).ok()?.into_inner();
    value.is_integer().then_some(value)
}
