//! Rollout: a limit that is enforced for a share of its keys (`percent`), and another number of a limit
//! (`candidate`), compiled to a second limit that never refuses.
//!
//! ```text
//!   limit = "100/1m"   candidate = "80/1m"     api             100/1m   decides
//!                                              api+candidate    80/1m   decides and counts only
//! ```
//!
//! The second has the algorithm of the limit, and counters of its own.

use super::extras::beside;
use crate::config::variants::{SetText, VariantReader};
use crate::config::{Draft, Table, ValueError, codes, error, first_reason, is_excluded};
use crate::{KeyShare, Role, Rule, RuleMode};

/// Reads `candidate` of a limit; `None` if it has none, or it is reported as wrong.
pub(crate) fn candidate(draft: &mut Draft<'_>, reader: &VariantReader<'_>) -> Option<()> {
    let written = draft.table.text("candidate");
    let text = written.filter(|_| !is_excluded(draft.table, "candidate"))?;
    let what = "cannot have a candidate";
    draft.unless(what, codes::CANDIDATE, text.at, refused(draft))?;
    if matches!(text.value, "unlimited" | "blocked") {
        let message = format!("\"{text}\" is not a valid `candidate`");
        error(codes::CANDIDATE, text.at, message, "expected a number")
            .help("write for example candidate = \"80/1m\"");
        return None;
    }
    let set = SetText::of_limit(text.value, "candidate", text.at);
    let quantity = reader.quantity(draft, set)?;
    let own = &draft.rule;
    let candidate = Rule {
        mode: match own.mode {
            RuleMode::Off => RuleMode::Off,
            RuleMode::Enforce | RuleMode::Shadow => RuleMode::Shadow,
        },
        percent: None,
        ..beside(own, "candidate", Role::Candidate, &quantity)
    };
    draft.candidate = Some(Box::new(candidate));
    Some(())
}

/// Returns why a limit cannot have a candidate.
fn refused(draft: &Draft<'_>) -> Option<ValueError> {
    first_reason! {
        draft.rule.correction.is_some() => "cannot be combined with an estimate",
            "write cost = \"attr:tokens\" without `reserve`";
        draft.rule.variants.day_attribute().is_some() =>
            "cannot be combined with months with a day of each key",
            "write `anchor` as a number, or leave `candidate` out";
        draft.is_asked() => "another limit asks it by `otherwise`, and would count for it",
            "write `candidate` in the limit that asks";
    }
}

/// `percent`
pub(super) fn percent(table: Table<'_>) -> Option<KeyShare> {
    KeyShare::from_percent(table.number("percent")?)
}

/// Returns `None` if the limit has no `percent`, or it is reported, because the limit refuses no
/// request by itself.
pub(crate) fn has_percent(draft: &Draft<'_>) -> Option<()> {
    draft.rule.percent.as_ref()?;
    let reason = first_reason! {
        draft.is_asked() =>
            "another limit asks it by `otherwise`, and decides what a refusal does",
            "write `percent` in the limit that asks";
        draft.rule.mode == RuleMode::Shadow =>
            "in shadow mode the limit is enforced for no key",
            "leave `percent` out, or write mode = \"enforce\" to refuse for this part of the keys";
        draft.rule.key.is_empty() =>
            "all requests have one key, so it would be enforced for all of them or for none",
            "name a key, as in key = [\"ip\"], or try it with mode = \"shadow\"";
    };
    let what = "is not enforced for a share of keys";
    draft.unless(what, codes::PERCENT, draft.table.place("percent"), reason)
}
