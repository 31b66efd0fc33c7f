//! Scope: the processes that count a limit together, and the name of this one among them.

use ratekeeper_core::LimitScope;

use crate::NodeName;
use crate::config::codes;
use crate::config::diagnostic::{Findings, shown};
use crate::config::document::read::Table;

/// Maximum number of characters of the name of a process.
const MAX_NODE: usize = 40;

/// `scope`
pub(super) fn scope(table: Table<'_>) -> LimitScope {
    match table.text("scope").map(|text| text.value) {
        Some("node") => LimitScope::Node,
        _ => LimitScope::Cluster, // other words are reported
    }
}

/// Reads `node` of `[store.redis]`; `Err` if it is reported as wrong.
pub(in crate::config) fn node(
    table: Table<'_>,
    out: &mut Findings<'_>,
) -> Result<Option<NodeName>, ()> {
    let Some(text) = table.text("node") else {
        return Ok(None);
    };
    if let Some(variable) = text.value.strip_prefix("env:").filter(|it| !it.is_empty()) {
        return Ok(Some(NodeName::Env(variable.to_owned())));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if (1..=MAX_NODE).contains(&text.value.len()) && text.value.bytes().all(plain) {
        return Ok(Some(NodeName::Text(text.value.to_owned())));
    }
    let message = format!("\"{}\" is not a valid name of a process", shown(text.value));
    let label = format!("expected env:NAME, or 1 to {MAX_NODE} letters, digits, or any of . - _");
    out.error(codes::REDIS, text.at, message, label)
        .help("write for example node = \"env:HOSTNAME\"");
    Err(())
}
