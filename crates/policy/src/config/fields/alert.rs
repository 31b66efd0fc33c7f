//! Fields of `alert`, and of `[alerts]`: when a key is reported, and where.

use ratekeeper_core::Nanos;

use super::DAY;
use crate::config::document::shape::{Flag, SECRET, Shape, TEXT, Table, fields, percent, span};

/// `for`: keys are looked at once a second, and a day is longer than an operator waits.
const HOLD: Shape = span(Nanos::SECOND, DAY);

fields! {
    pub(super) ALERT = "`alert`" {
        required above: percent(99), "\"80%\"",
            "Part of the limit that a key has used up when it is above: 1% to 99%.";
        required r#for: HOLD, "\"2m\"",
            "Time for which a key is above, without a break, before its alert starts: 1s to 24h.";
    }

    pub(super) ALERTS = "`[alerts]`" {
        optional webhook: Table(&WEBHOOK),
            "{ url = \"https://hooks.example.com/ratekeeper\", secret = \
             \"env:RATEKEEPER_WEBHOOK_SECRET\" }",
            "Receiver of a signed POST for each start and each end of an alert.";
        optional reveal_keys: Flag, "true",
            "Shows the key of an alert in the log and to the webhook (default false).";
    }

    WEBHOOK = "`webhook`" {
        required url: TEXT, "\"https://hooks.example.com/ratekeeper\"",
            "URL that receives the messages, https or http; redirects are not followed.";
        required secret: SECRET, "\"env:RATEKEEPER_WEBHOOK_SECRET\"",
            "Source of the secret that signs the messages: env:NAME or file:PATH, relative to the \
             policy; it contains whsec_ and 24 to 64 bytes in base64.";
        optional ca: TEXT, "\"hooks-ca.pem\"",
            "PEM file of the authorities for the receiver's certificate (default: those that the \
             system trusts).";
    }
}
