//! Shares: the part of a limit that one process has while the shared store fails.

use ratekeeper_core::{Algorithm as _, LimitScope, Outage};

use super::draft::Draft;
use crate::config::codes;
use crate::config::diagnostic::Findings;
use crate::{RuleMode, Settings};

/// Warns of a limit with no share left for one process while the shared store fails.
pub(in crate::config) fn no_share(draft: &Draft<'_>, settings: &Settings, out: &mut Findings<'_>) {
    let rule = &draft.rule;
    let nodes = settings.redis.as_ref().map_or(1, |redis| redis.nodes.get());
    let cost = rule.cost.least();
    let capacity = rule.limit.algorithm.capacity();
    let fits = cost.get() * u64::from(nodes) <= capacity.get();
    let is_whole = rule.limit.scope == LimitScope::Node;
    if fits || is_whole || rule.mode == RuleMode::Off || rule.limit.outage != Outage::Local {
        return;
    }
    let name = &rule.limit.name;
    let message = format!("limit `{name}` refuses all requests while Redis fails");
    let label = format!("{capacity} permits / {nodes} nodes: less than a request costs");
    let at = draft.quantity_at.clone();
    out.warning(codes::NO_SHARE, at, message, label)
        .help("write on_store_error = \"deny\" if that is meant, or on_store_error = \"allow\"");
}
