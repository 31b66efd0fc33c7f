//! Grant: the content of a `rate_limit`.
//!
//! ```text
//!   unit + requests_per_unit    so many in each window
//!   unlimited                   everything; no unit
//!   replaces                    names of other rate limits
//! ```

use std::sync::Arc;

use strum::VariantArray;

use super::read::{CheckedTable, TablePlace};
use super::{EnvoyRateLimit, Unit};
use crate::config::{Text, codes, error, shown, warning};

/// Reads the limit that a `rate_limit` grants.
pub(super) fn grant(limit: &CheckedTable<'_>) -> Option<EnvoyRateLimit> {
    let unlimited = limit.flag("unlimited");
    let unit = limit.text("unit");
    let requests = limit.number("requests_per_unit");
    if unlimited {
        if let Some(unit) = unit {
            let message = "an unlimited rate limit has no unit";
            let label = "set beside `unlimited`";
            error(codes::ENVOY_UNLIMITED, unit.at, message, label)
                .help("leave out the unit, or `unlimited`");
        }
        if limit.field("requests_per_unit").is_some() {
            let message = "`requests_per_unit` has no effect beside `unlimited`";
            let at = limit.place_of("requests_per_unit");
            warning(codes::ENVOY_IGNORED, at, message, "never used")
                .help("leave one of the two out");
        }
        return Some(EnvoyRateLimit::Unlimited);
    }
    let unit = unit_of(unit, limit)?;
    let blocks = limit.field("requests_per_unit").is_none();
    if blocks {
        let message = "a rate limit without `requests_per_unit` lets nothing pass";
        let label = "0 requests per unit";
        warning(codes::ENVOY_BLOCKS, limit.place_of("unit"), message, label)
            .help("write requests_per_unit: 0 if that is meant");
    }
    Some(EnvoyRateLimit::PerUnit {
        requests_per_unit: if blocks { 0 } else { requests? },
        unit,
    })
}

fn unit_of(text: Option<Text<'_>>, limit: &CheckedTable<'_>) -> Option<Unit> {
    let known = Unit::VARIANTS.iter().map(Unit::as_ref);
    let known: Vec<_> = known.collect();
    let label = format!("expected one of {}", known.join(", "));
    let (at, message, near) = match text {
        None => (
            limit.place_of("unit"),
            "a rate limit has no unit".to_owned(),
            None,
        ),
        Some(text) => {
            if let Ok(unit) = text.value.parse() {
                return Some(unit);
            }
            let message = format!("`{}` is not a unit", shown(text.value));
            let near = text.at.findings.nearest(text.value, known);
            (text.at, message, near)
        }
    };
    error(codes::ENVOY_UNIT, at, message, label).help(format!(
        "write for example unit: {}",
        near.unwrap_or("minute")
    ));
    None
}

/// Returns the names that a rule replaces.
pub(super) fn replaces(limit: &CheckedTable<'_>, own: Option<Text<'_>>) -> Box<[Arc<str>]> {
    let mut names = Vec::new();
    for entry in limit.tables("replaces", TablePlace::Replaces) {
        let Some(name) = entry.text("name") else {
            let at = entry.place_of("name");
            let message = "an entry of `replaces` has no name";
            let label = "`name` is missing";
            error(codes::ENVOY_REPLACES_NOTHING, at, message, label)
                .help("write - name: OTHER, the name of another rate limit");
            continue;
        };
        if own.is_some_and(|own| own.value == name.value) {
            let message = format!("the rate limit `{}` replaces itself", shown(name.value));
            let label = "its own name";
            error(codes::ENVOY_REPLACES_ITSELF, name.at, message, label)
                .help("name another rate limit, or leave it out");
            continue;
        }
        names.push(name.value.into());
    }
    names.into()
}
