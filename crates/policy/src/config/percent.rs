//! Percent: the share of a limit's keys for which it is enforced.

use toml::de::DeTable;

use super::codes;
use super::diagnostic::Findings;
use super::limit::Draft;
use super::read::whole;
use super::variants::VariantReader;
use crate::{KeyShare, Role, RuleMode};

/// `percent`
pub(super) fn percent(table: &DeTable<'_>) -> Option<KeyShare> {
    let percent = u8::try_from(whole(table.get("percent")?)?).ok()?;
    KeyShare::from_percent(percent) // above it: reported as out of range
}

/// Reports a `percent` of a limit that refuses no request by itself.
pub(super) fn beside(drafts: &[Draft], reader: &VariantReader<'_>, out: &mut Findings<'_>) {
    for draft in drafts.iter().filter(|draft| draft.rule.percent.is_some()) {
        let table = reader.table(draft);
        let Some(node) = table.and_then(|table| table.get("percent")) else {
            continue;
        };
        let (label, help) = match (&draft.rule.role, draft.rule.mode) {
            (Role::Allowance, _) => (
                "another limit asks it by `otherwise`, and decides what a refusal does",
                "write `percent` in the limit that asks",
            ),
            (_, RuleMode::Shadow) => (
                "in shadow mode the limit is enforced for no key",
                "write mode = \"enforce\", or leave `percent` out",
            ),
            _ if draft.rule.key.is_empty() => (
                "all requests have one key, so it would be enforced for all of them or for none",
                "name a key, as in key = [\"ip\"], or try it with mode = \"shadow\"",
            ),
            _ => continue,
        };
        let message = format!(
            "limit `{}` is not enforced for a share of keys",
            draft.rule.limit.name
        );
        out.error(codes::PERCENT, node.span(), message, label)
            .help(help);
    }
}
