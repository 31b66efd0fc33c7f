//! Percent: percentages, and the share of a limit's keys for which it is enforced.

use crate::config::{Draft, Findings, Table, codes, first_reason};
use crate::{KeyShare, RuleMode};

/// `percent`
pub(in crate::config) fn percent(table: Table<'_>) -> Option<KeyShare> {
    KeyShare::from_percent(table.number("percent")?)
}

/// Reports a `percent` of a limit that refuses no request by itself.
pub(in crate::config) fn beside(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    for draft in drafts.iter().filter(|draft| draft.rule.percent.is_some()) {
        let reason = first_reason! {
            draft.is_asked() =>
                "another limit asks it by `otherwise`, and decides what a refusal does",
                "write `percent` in the limit that asks";
            draft.rule.mode == RuleMode::Shadow =>
                "in shadow mode the limit is enforced for no key",
                "write mode = \"enforce\", or leave `percent` out";
            draft.rule.key.is_empty() =>
                "all requests have one key, so it would be enforced for all of them or for none",
                "name a key, as in key = [\"ip\"], or try it with mode = \"shadow\"";
        };
        if let Some(reason) = reason {
            let what = "is not enforced for a share of keys";
            let at = draft.table.place("percent");
            draft.cannot(what, codes::PERCENT, at, reason, out);
        }
    }
}
