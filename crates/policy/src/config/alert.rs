//! Alert: reads when a key is reported, and where to.
//!
//! ```text
//!   [[limit]]   alert = { above = "80%", for = "2m" }
//!   [alerts]    webhook = { url = "https://..", secret = "env:..", ca = "ca.pem" }
//!               reveal_keys = true
//! ```

use std::ops::RangeInclusive;

use ratekeeper_core::{Algorithm as _, Nanos};

use super::codes;
use super::diagnostic::{Findings, shown};
use super::http_url::{UrlField, http_url};
use super::limit::Draft;
use super::percent::part_percent;
use super::read::{At, Table};
use super::secrets::secret;
use crate::{Alert, AlertSettings, WebhookSettings};

/// `for`: keys are looked at once a second, and a day is longer than an operator waits.
const HOLDS: RangeInclusive<Nanos> = Nanos::SECOND..=Nanos::from_secs(86_400);
const URL: UrlField = UrlField {
    code: codes::ALERTS,
    what: "a webhook",
    example: "write for example url = \"https://hooks.example.com/ratekeeper\"",
    login: "leave the login out: the receiver checks the signature of each message",
};

/// Reads `alert` of a limit, if it is written and right.
pub(super) fn alert(limit: Table<'_>, out: &mut Findings<'_>) -> Option<At<Alert>> {
    let table = limit.table("alert")?;
    let above = table.text("above").and_then(|text| percent(&text, out));
    let hold = table.text("for").and_then(|text| hold(&text, out));
    let (above_percent, hold) = (above?, hold?);
    Some(At::new(
        Alert {
            above_percent,
            hold,
        },
        table.at(),
    ))
}

/// Reads `1%` to `99%`.
fn percent(text: &At<&str>, out: &mut Findings<'_>) -> Option<u8> {
    if let Some(percent) = part_percent(text.value) {
        return Some(percent);
    }
    let message = format!("\"{}\" is not a valid `above`", shown(text.value));
    let label = "expected a whole percentage from 1% to 99%";
    let like = text.value.trim().trim_end_matches(['%', ' ']);
    let help = match like.parse::<f64>() {
        Ok(part) if part > 0.0 && part < 1.0 => format!("above = \"{:.0}%\"", part * 100.0),
        Ok(all) if (1.0..100.0).contains(&all) => format!("above = \"{all:.0}%\""),
        Ok(all) if all >= 100.0 => {
            "above = \"99%\", because nothing is above the whole limit, and a refused request \
             counts as 100%"
                .into()
        }
        _ => "above = \"80%\"".into(),
    };
    out.error(codes::ALERT, text.at.clone(), message, label)
        .help(format!("write {help}"));
    None
}

fn hold(text: &At<&str>, out: &mut Findings<'_>) -> Option<Nanos> {
    let duration = text.value.parse().ok();
    if let Some(duration) = duration.filter(|duration| HOLDS.contains(duration)) {
        return Some(duration);
    }
    let message = format!("\"{}\" is not a valid `for`", shown(text.value));
    let label = format!(
        "expected a duration from {} to {}",
        HOLDS.start(),
        HOLDS.end()
    );
    out.error(codes::ALERT, text.at.clone(), message, label)
        .help("write a whole number and a unit, as in for = \"2m\"");
    None
}

/// Reports alerts that can never start: no key is above for as long as a window that empties at
/// once.
pub(super) fn impossible(drafts: &[Draft<'_>], out: &mut Findings<'_>) {
    for draft in drafts {
        let (Some(alert), Some(at)) = (draft.rule.alert, draft.places.alert.clone()) else {
            continue;
        };
        let Some(window) = draft.rule.window.filter(|_| empties_at_once(draft)) else {
            continue;
        };
        if alert.hold < window {
            continue;
        }
        let name = &draft.rule.limit.name;
        let message = format!("the alert of limit `{name}` can never start");
        let label = format!("the limit begins anew every {window}, so no key is above for longer");
        out.error(codes::ALERT, at, message, label)
            .related(draft.places.quantity.clone())
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
pub(super) fn alerts(root: Table<'_>, out: &mut Findings<'_>) -> AlertSettings {
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
    let secret = table.text("secret").map(|text| {
        let owner = (codes::ALERTS, "RATEKEEPER_WEBHOOK");
        secret(&text, "secret", owner, out)
    });
    let ca = table.text("ca");
    if let (Some(url), Some(ca)) = (&url, &ca)
        && url.starts_with("http:")
    {
        let message = "`ca` has no effect on a webhook without TLS";
        out.error(
            codes::ALERTS,
            ca.at.clone(),
            message,
            "the URL begins with http://",
        )
        .help("write url = \"https://..\", or leave `ca` out");
        return None;
    }
    Some(WebhookSettings {
        url: url?,
        secret: secret?.ok()?,
        ca: ca.map(|ca| ca.value.into()),
    })
}
