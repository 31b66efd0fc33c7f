//! Scope: the processes that count a limit together, the name of this one among them, and what it
//! decides while the shared store fails.

use ratekeeper_core::{Algorithm as _, LimitScope, Outage};

use crate::config::{Draft, Table, codes, error, warning};
use crate::{NodeName, RuleMode, Settings};

/// Maximum number of characters of the name of a process.
const MAX_NODE: usize = 40;

/// `scope`
pub(super) fn scope(table: Table<'_>) -> LimitScope {
    match table.text("scope").map(|text| text.value) {
        Some("node") => LimitScope::Node,
        _ => LimitScope::Cluster, // other words are reported
    }
}

/// `on_store_error`, of which `error` is a word of `[envoy]` alone.
pub(crate) fn outage(table: Table<'_>) -> Option<Outage> {
    Some(match table.text("on_store_error")?.value {
        "local" => Outage::Local,
        "allow" => Outage::Allow,
        "deny" => Outage::Deny,
        "error" => Outage::Error,
        _ => return None, // reported as an unknown value
    })
}

/// Reads `node` of `[store.redis]`; `Err` if it is reported as wrong.
pub(crate) fn node(table: Table<'_>) -> Result<Option<NodeName>, ()> {
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
    let message = format!("\"{text}\" is not a valid name of a process");
    let label = format!("expected env:NAME, or 1 to {MAX_NODE} letters, digits, or any of . - _");
    error(codes::REDIS, text.at, message, label).help("write for example node = \"env:HOSTNAME\"");
    Err(())
}

/// Warns of a limit with no share left for one process while the shared store fails.
pub(crate) fn no_share(draft: &Draft<'_>, settings: &Settings) {
    let rule = &draft.rule;
    let nodes = settings.redis.as_ref().map_or(1, |redis| redis.nodes.get());
    let cost = rule.cost.least();
    let capacity = rule.limit.algorithm.capacity();
    let fits = cost.get() * u64::from(nodes) <= capacity.get();
    let is_whole = rule.limit.scope == LimitScope::Node;
    if fits || is_whole || rule.mode == RuleMode::Off || rule.limit.outage != Outage::Local {
        return;
    }
    let message = format!("{draft} refuses all requests while Redis fails");
    let label = format!("{capacity} permits / {nodes} nodes: less than a request costs");
    warning(codes::NO_SHARE, draft.quantity_at, message, label)
        .help("write on_store_error = \"deny\" if that is meant, or on_store_error = \"allow\"");
}
