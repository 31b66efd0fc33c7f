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

use super::draft::ExtraShare;
use super::extras::extra;
use super::requests::key_part;
use crate::config::variants::{VariantReader, WINDOWS, counts_values};
use crate::config::{At, Draft, ValueError, codes, first_reason, is_excluded};
use crate::{Cost, KeyPart, MissingKey, Role};

/// Reads `distinct` of a limit; `None` if it has none, or it is reported as wrong.
pub(crate) fn distinct(draft: &mut Draft<'_>, reader: &VariantReader<'_>) -> Option<()> {
    let written = draft.table.text("distinct");
    let written = written.filter(|_| !is_excluded(draft.table, "distinct"))?;
    let part = key_part(&written)?;
    let what = format!("cannot count \"{written}\"");
    draft.unless(&what, codes::DISTINCT, written.at, refused(draft, &part))?;
    let once = At::new(ExtraShare::Permits(1), written.at);
    let mut extra = extra(draft, "seen", Role::Seen, once, reader)?;
    draft.rule.cost = Cost::Fixed(Permits::ONE);
    extra.rule.cost = Cost::Fixed(Permits::ONE);
    extra.rule.key.push(part);
    draft.extra = Some(Box::new(extra));
    Some(())
}

/// Returns why a limit cannot count values.
fn refused(draft: &Draft<'_>, part: &KeyPart) -> Option<ValueError> {
    let rule = &draft.rule;
    let by_credential = rule.missing_key == MissingKey::Use(KeyPart::ApiKey);
    let name = rule.limit.algorithm.name();
    first_reason! {
        // A request may have two credentials, of which each has a key of its own.
        *part == KeyPart::ApiKey || by_credential =>
            "a request may have two credentials, and this would count one of them",
            "name one of them: \"bearer\", or \"header:x-api-key\"";
        rule.key.is_empty() && rule.limit.scope == LimitScope::Node =>
            "a limit of each process has no key that keeps its values beside it",
            "name a key, as in key = [\"ip\"], or leave `scope` out";
        !counts_values(&rule.limit.algorithm) =>
            format!("a {name} has no window in which a value is counted once"), WINDOWS;
        *part == KeyPart::All || rule.key.contains(part) =>
            "all requests of a key have the same value",
            "name a value that is not part of `key`";
        draft.denials == Denials::Counted => "cannot be combined with `count_denied`",
            "write count_denied = false in this limit";
        rule.is_for_descriptors() || part.is_of_descriptors() =>
            "values of descriptors are not counted",
            "write a limit for requests, with a value such as \"attr:account\"";
        rule.key.is_empty() && draft.table.has("plans") =>
            "one counter for all requests has no plans", "leave out `plans`";
    }
}
