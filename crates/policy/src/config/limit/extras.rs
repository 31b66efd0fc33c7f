//! Extras: `soft` and `elastic`, compiled to a second limit that is asked when the first denies.
//!
//! ```text
//!   limit = "100/1m"   soft    = { extra = "10%" }                    messages+soft     10/1m
//!   limit = "100/1m"   elastic = { up_to = "200/1m", while = .. }     messages+elastic  100/1m
//! ```
//!
//! The second limit has the algorithm and the period of the first, and counters of its own. So the
//! bound of both is the sum of two bounds.

use std::sync::Arc;

use ratekeeper_core::{Denials, Limit, LimitId};

use super::draft::{Extra, ExtraShare};
use super::signals::SignalReader;
use crate::config::document::exclusions::is_excluded;
use crate::config::quantity::Quantity;
use crate::config::variants::{VariantReader, extra_quantity};
use crate::config::{At, Draft, Findings, Reason, Table, codes, first_reason, shown};
use crate::model::rules::signal::Signal;
use crate::{Role, Rule, Settings, Variants};

/// Reads `soft` and `elastic` of every limit, and returns the signals that they name.
pub(in crate::config) fn extras(
    drafts: &mut [Draft<'_>],
    settings: &Settings,
    reader: &VariantReader<'_>,
    out: &mut Findings<'_>,
) -> Vec<Arc<Signal>> {
    let mut signals = SignalReader::new(settings);
    for draft in drafts {
        let table = draft.table;
        let word = if table.has("soft") { "soft" } else { "elastic" };
        let Some(written) = table.table(word).filter(|_| !is_excluded(table, word)) else {
            continue;
        };
        if let Some(reason) = refused(draft) {
            let what = format!("cannot be {word}");
            draft.cannot(&what, codes::EXTRA, written.at(), reason, out);
            continue;
        }
        let read = match word {
            "soft" => soft(written).map(|share| (Role::Soft, share)),
            _ => elastic(draft, written, &mut signals, out),
        };
        if let Some((role, share)) = read {
            draft.extra = extra(draft, word, role, share, reader, out).map(Box::new);
        }
    }
    signals.found
}

/// Reports a limit that cannot have an extra.
fn refused(draft: &Draft<'_>) -> Option<Reason> {
    first_reason! {
        !draft.table.has("limit") => "needs a number in a period",
            "write the limit as limit = \"100/1m\"";
        draft.denials == Denials::Counted => "cannot stand beside `count_denied`",
            "write count_denied = false in this limit";
        draft.rule.correction.is_some() => "cannot stand beside an estimate",
            "write cost = \"attr:tokens\" without `reserve`";
    }
}

/// `soft = { extra = "10%" }` or `soft = { extra = 10 }`
fn soft(table: Table<'_>) -> Option<At<ExtraShare>> {
    let percent = || table.percent("extra").map(ExtraShare::Percent);
    let share = table.number("extra").map(ExtraShare::Permits);
    Some(At::new(share.or_else(percent)?, table.place("extra")))
}

/// `elastic = { up_to = "200/1m", while = { signal = "load", below = "70%" } }`
fn elastic(
    draft: &Draft<'_>,
    table: Table<'_>,
    signals: &mut SignalReader<'_>,
    out: &mut Findings<'_>,
) -> Option<(Role, At<ExtraShare>)> {
    let gate = table.table("while")?;
    let gate = signals.gate(gate, out);
    let up_to = table.text("up_to")?;
    let base = draft.table.text("limit")?;
    let most = match (up_to.value.split_once('/'), base.value.split_once('/')) {
        (Some((most, period)), Some((number, own))) if period == own => {
            let (most, number) = (most.parse::<u64>().ok()?, number.parse::<u64>().ok()?);
            Some(most).filter(|most| *most > number)
        }
        _ => None,
    };
    let Some(most) = most else {
        let message = format!(
            "limit `{}` cannot be elastic up to \"{}\"",
            draft.rule.limit.name,
            shown(up_to.value)
        );
        let label = format!(
            "must be more than \"{}\", in the same period",
            shown(base.value)
        );
        let doubled = base.value.split_once('/').and_then(|(number, period)| {
            let number: u64 = number.parse().ok()?;
            Some(format!("{}/{period}", number.checked_mul(2)?))
        });
        let found = out.error(codes::EXTRA, up_to.at, message, label);
        found.related(base.at).help(format!(
            "write for example up_to = \"{}\"",
            doubled.as_deref().unwrap_or("200/1m")
        ));
        return None;
    };
    Some((
        Role::Elastic(gate?),
        At::new(ExtraShare::UpTo(most), up_to.at),
    ))
}

/// Compiles the extra of a limit.
pub(super) fn extra(
    draft: &Draft<'_>,
    suffix: &str,
    role: Role,
    share: At<ExtraShare>,
    reader: &VariantReader<'_>,
    out: &mut Findings<'_>,
) -> Option<Extra> {
    let base = draft.table.text("limit")?;
    let At { value: share, at } = share;
    let quantity = extra_quantity(draft, base.value, share, &at, reader, out)?;
    Some(Extra {
        rule: beside(&draft.rule, suffix, role, quantity),
        share,
        at,
    })
}

/// Returns a rule beside another, with a quantity and counters of its own. It has the requests and
/// the keys of the other, and no alert: that of the other sees every request.
pub(super) fn beside(own: &Rule, suffix: &str, role: Role, quantity: Quantity) -> Rule {
    Rule {
        limit: Limit {
            name: format!("{}+{suffix}", own.limit.name).into(),
            id: LimitId::default(),
            algorithm: quantity.algorithm,
            ..own.limit.clone()
        },
        quota: quantity.quota,
        window: quantity.window,
        keeps_to: quantity.keeps_to,
        text: quantity.text,
        variants: Variants::default(),
        role,
        otherwise: Vec::new(),
        replaces: Vec::new(),
        alert: None,
        ..own.clone()
    }
}
