//! Alert: reads when a key is reported: `alert = { above = "80%", for = "2m" }`.

use ratekeeper_core::Algorithm as _;

use crate::Alert;
use crate::config::{Draft, Table, codes, error};

/// Reads `alert` of a limit, if it is written and right.
pub(super) fn alert(limit: Table<'_>) -> Option<Alert> {
    let table = limit.table("alert")?;
    Some(Alert {
        above_percent: table.percent("above")?.try_into().ok()?,
        hold: table.span("for")?,
    })
}

/// Reports an alert that can never start: no key is above for as long as a window that empties at
/// once.
pub(crate) fn impossible(draft: &Draft<'_>) {
    let (Some(alert), Some(window)) = (draft.rule.alert, draft.rule.window) else {
        return;
    };
    if alert.hold < window || !empties_at_once(draft) {
        return;
    }
    let message = format!("the alert of {draft} can never start");
    let label = format!("the limit begins anew every {window}, so no key is above for longer");
    error(codes::ALERT, draft.table.place("alert"), message, label)
        .related(draft.quantity_at)
        .help(format!(
            "write a `for` below {window}, or an algorithm that does not begin anew: \
             algorithm = \"token-bucket\""
        ));
}

/// Returns true if the whole quota comes back in one moment, once in each window.
fn empties_at_once(draft: &Draft<'_>) -> bool {
    let name = draft.rule.limit.algorithm.name();
    matches!(name, "fixed window" | "calendar window" | "quota reset")
}
