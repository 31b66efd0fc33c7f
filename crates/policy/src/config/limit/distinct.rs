//! Distinct: a limit that counts values, compiled to the limit and a second one that is asked first.
//!
//! ```text
//!   limit = "5/day", distinct = "attr:account"
//!
//!   accounts+seen   1/day    key + value    denies: met in this window; the request passes free
//!   accounts        5/day    key            asked and charged for a value that is new
//! ```
//!
//! Both are charged, or neither. The windows of both begin at the same moments, so the limit holds
//! the exact number of values of a window, and each value counts once in it.

use ratekeeper_core::{Algorithm as _, Denials, LimitScope, Permits};

use super::draft::Draft;
use super::draft::ExtraShare;
use super::extras::extra;
use super::requests::key_part;
use crate::config::codes;
use crate::config::diagnostic::{Findings, shown};
use crate::config::document::exclusions::is_excluded;
use crate::config::document::read::At;
use crate::config::variants::{VariantReader, WINDOWS, counts_values};
use crate::{Cost, KeyPart, MissingKey, Role};

/// Reads `distinct` of every limit.
pub(in crate::config) fn distinct(
    drafts: &mut [Draft<'_>],
    reader: &VariantReader<'_>,
    out: &mut Findings<'_>,
) {
    for draft in drafts {
        let Some(written) = draft.table.text("distinct") else {
            continue;
        };
        if is_excluded(draft.table, "distinct") {
            continue;
        }
        let Some(part) = key_part(&written, out) else {
            continue;
        };
        if let Some((label, help)) = refused(draft, &part) {
            let name = &draft.rule.limit.name;
            let message = format!("limit `{name}` cannot count \"{}\"", shown(written.value));
            out.error(codes::DISTINCT, written.at, message, label)
                .help(help);
            continue;
        }
        let once = At::new(ExtraShare::Permits(1), written.at);
        if let Some(mut extra) = extra(draft, "seen", Role::Seen, once, reader, out) {
            draft.rule.cost = Cost::Fixed(Permits::ONE);
            extra.rule.cost = Cost::Fixed(Permits::ONE);
            extra.rule.key.push(part);
            draft.extra = Some(Box::new(extra));
        }
    }
}

/// Returns why a limit cannot count values, and what to write instead.
fn refused(draft: &Draft<'_>, part: &KeyPart) -> Option<(String, String)> {
    let rule = &draft.rule;
    let by_credential = rule.missing_key == MissingKey::Use(KeyPart::ApiKey);
    if *part == KeyPart::ApiKey || by_credential {
        // A request may have two credentials, of which each has a key of its own.
        let label = "a request may have two credentials, and this would count one of them";
        let help = "name one of them: \"bearer\", or \"header:x-api-key\"";
        return Some((label.to_owned(), help.to_owned()));
    }
    if rule.key.is_empty() && rule.limit.scope == LimitScope::Node {
        let label = "a limit of each process has no key that keeps its values beside it";
        let help = "name a key, as in key = [\"ip\"], or leave `scope` out";
        return Some((label.to_owned(), help.to_owned()));
    }
    let pair = if !counts_values(&rule.limit.algorithm) {
        let name = rule.limit.algorithm.name();
        return Some((
            format!("a {name} has no window in which a value is counted once"),
            WINDOWS.to_owned(),
        ));
    } else if *part == KeyPart::All || rule.key.contains(part) {
        (
            "all requests of a key have the same value",
            "name a value that is not part of `key`",
        )
    } else if draft.denials == Denials::Counted {
        (
            "cannot stand beside `count_denied`",
            "write count_denied = false in this limit",
        )
    } else if rule.is_for_descriptors() || part.is_of_descriptors() {
        (
            "values of descriptors are not counted",
            "write a limit for requests, with a value such as \"attr:account\"",
        )
    } else if rule.key.is_empty() && draft.table.has("plans") {
        (
            "one counter for all requests has no plans",
            "leave out `plans`",
        )
    } else {
        return None;
    };
    Some((pair.0.to_owned(), pair.1.to_owned()))
}
