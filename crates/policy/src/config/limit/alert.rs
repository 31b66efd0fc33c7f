//! Alert: reads when a key is reported, and where to.
//!
//! ```text
//!   [[limit]]   alert = { above = "80%", for = "2m" }
//!   [alerts]    webhook = { url = "https://..", secret = "env:..", ca = "ca.pem" }
//!               reveal_keys = true
//! ```

use ratekeeper_core::Algorithm as _;

use super::draft::Draft;
use crate::config::codes;
use crate::config::diagnostic::Findings;
use crate::config::document::read::Table;
use crate::config::settings::http_url::{UrlField, http_url};
use crate::{Alert, AlertSettings, WebhookSettings};

const URL: UrlField = UrlField {
    code: codes::ALERTS,
    what: "a webhook",
    example: "write for example url = \"https://hooks.example.com/ratekeeper\"",
    login: "leave the login out: the receiver checks the signature of each message",
};

/// Reads `alert` of a limit, if it is written and right.
pub(super) fn alert(limit: Table<'_>) -> Option<Alert> {
    let table = limit.table("alert")?;
    Some(Alert {
        above_percent: table.percent("above")?.try_into().ok()?,
        hold: table.span("for")?,
    })
}

/// Reports alerts that can never start: no key is above for as long as a window that empties at
/// once.
pub(in crate::config) fn impossible(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    for draft in drafts {
        let (Some(alert), Some(window)) = (draft.rule.alert, draft.rule.window) else {
            continue;
        };
        if alert.hold < window || !empties_at_once(draft) {
            continue;
        }
        let name = &draft.rule.limit.name;
        let message = format!("the alert of limit `{name}` can never start");
        let label = format!("the limit begins anew every {window}, so no key is above for longer");
        out.error(codes::ALERT, draft.table.place("alert"), message, label)
            .related(draft.quantity_at.clone())
            .help(format!(
                "write a `for` below {window}, or an algorithm that does not begin anew: \
                 algorithm = \"token-bucket\""
            ));
    }
}

/// Returns true if the whole quota comes back in one moment, once in each window.
fn empties_at_once(draft: &Draft<'_>) -> bool {
    let name = draft.rule.limit.algorithm.name();
    matches!(name, "fixed window" | "calendar window" | "quota reset")
}

/// Reads `[alerts]`.
pub(in crate::config) fn alerts(root: Table<'_>, out: &mut Findings<'_>) -> AlertSettings {
    let Some(table) = root.table("alerts") else {
        return AlertSettings::default();
    };
    AlertSettings {
        webhook: table.table("webhook").and_then(|table| webhook(table, out)),
        reveal_keys: table.flag("reveal_keys") == Some(true),
    }
}

fn webhook(table: Table<'_>, out: &mut Findings<'_>) -> Option<WebhookSettings> {
    let url = table.text("url").and_then(|text| http_url(&text, URL, out));
    if let (Some(url), Some(ca)) = (&url, table.text("ca"))
        && url.starts_with("http:")
    {
        let message = "`ca` has no effect on a webhook without TLS";
        let label = "the URL begins with http://";
        out.error(codes::ALERTS, ca.at, message, label)
            .help("write url = \"https://..\", or leave `ca` out");
        return None;
    }
    Some(WebhookSettings {
        url: url?,
        secret: table.secret("secret")?,
        ca: table.owned("ca"),
    })
}
