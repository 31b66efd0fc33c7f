//! Balance: prepaid credits, which do not refill and are topped up by grants.
//!
//! ```text
//!   balance = { start = 100, max = 1000000 }
//! ```
//!
//! Nothing comes back with time, so nothing that paces, bans or empties a record can stand beside
//! it. While Redis fails, no process counts credits alone: it would give every key its start anew.

use ratekeeper_core::{AnyAlgorithm, Balance, Denials, Outage, Permits};

use super::{Quantity, free};
use crate::Settings;
use crate::config::{Draft, Table, codes, error, warning};

/// Reads `balance = { start, max }`; `None` if the values make no sense, which is reported.
pub(super) fn balance(table: Table<'_>, fields: Table<'_>, denials: Denials) -> Option<Quantity> {
    let at = fields.at();
    if table
        .text("scope")
        .is_some_and(|scope| scope.value == "node")
    {
        let scope = table.place("scope");
        let message = "scope = \"node\" cannot be combined with `balance`";
        let label = "each process would give every key its start anew";
        error(codes::BALANCE, scope, message, label)
            .related(at)
            .help("leave `scope` out");
    }
    let is_free = free(denials, "`balance`", at, "leave `balance` out");
    let [first, most] = [fields.number_or("start", 0)?, fields.number("max")?].map(Permits::new);
    let limit = match Balance::new(first, most) {
        Ok(limit) => limit,
        Err(reason) => {
            let message = format!("a balance of at most {most} cannot start with {first}");
            let start = fields.get("start").map_or(at, |node| node.at);
            error(codes::BALANCE, start, message, reason.to_string())
                .related(fields.place("max"))
                .help(format!("write start = {most} or less, or a larger `max`"));
            return None;
        }
    };
    is_free?;
    let words = format!("balance of {first} at the start, at most {most}");
    Some(Quantity::new(limit.into(), most, words))
}

/// Returns what happens to a balance while Redis fails: refused, unless the limit or the defaults
/// allow. Reports `on_store_error = "local"` beside it.
pub(crate) fn outage(table: Table<'_>, chosen: Option<Outage>) -> Outage {
    let own = table.text("on_store_error");
    if let Some(own) = own.filter(|own| own.value == "local") {
        let message = "on_store_error = \"local\" cannot be combined with `balance`";
        let label = "each process would give every key its start anew";
        error(codes::BALANCE, own.at, message, label)
            .help("write on_store_error = \"deny\", which is what a balance does, or \"allow\"");
    }
    chosen
        .filter(|outage| *outage == Outage::Allow)
        .unwrap_or(Outage::Deny)
}

/// Warns of balances that a restart of the process forgets.
pub(crate) fn forgotten(draft: &Draft<'_>, settings: &Settings) {
    let is_balance = matches!(draft.rule.limit.algorithm, AnyAlgorithm::Balance(_));
    let is_kept = settings.redis.is_some() || settings.state.is_some();
    if !is_balance || is_kept || draft.is_off() {
        return;
    }
    let message = format!("the balances of {draft} are in memory only");
    let label = "a restart gives every key its start anew, and forgets all grants";
    warning(codes::BALANCE_FORGOTTEN, draft.quantity_at, message, label).help(
        "keep them in Redis: [store.redis] with url = \"redis://127.0.0.1:6379\"; or in a \
             folder: [store.memory] with state = \"state\"",
    );
}
