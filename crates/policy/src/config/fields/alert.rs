//! Fields of `alert`, and of `[alerts]`: when a key is reported, and where.

use super::{DURATION, SECRET, optional, pattern, required};
use crate::config::shape::{Shape, TableSpec};

const PERCENT: &str = "^[1-9][0-9]?%$";

pub(super) static ALERT: TableSpec = TableSpec {
    what: "`alert`",
    fields: &[
        required(
            "above",
            pattern(PERCENT),
            "\"80%\"",
            "Part of the limit that a key has used up when it is above: 1% to 99%.",
        ),
        required(
            "for",
            pattern(DURATION),
            "\"2m\"",
            "Time for which a key is above, without a break, before its alert starts: 1s to 24h.",
        ),
    ],
    ..TableSpec::EMPTY
};

pub(super) static ALERTS: TableSpec = TableSpec {
    what: "`[alerts]`",
    fields: &[
        optional(
            "webhook",
            Shape::Table(&WEBHOOK),
            "{ url = \"https://hooks.example.com/ratekeeper\", secret = \
             \"env:RATEKEEPER_WEBHOOK_SECRET\" }",
            "Receiver of a signed POST for each start and each end of an alert.",
        ),
        optional(
            "reveal_keys",
            Shape::Flag,
            "true",
            "Shows the key of an alert in the log and to the webhook (default false).",
        ),
    ],
    ..TableSpec::EMPTY
};

static WEBHOOK: TableSpec = TableSpec {
    what: "`webhook`",
    fields: &[
        required(
            "url",
            Shape::TEXT,
            "\"https://hooks.example.com/ratekeeper\"",
            "URL that receives the messages, https or http; redirects are not followed.",
        ),
        required(
            "secret",
            pattern(SECRET),
            "\"env:RATEKEEPER_WEBHOOK_SECRET\"",
            "Source of the secret that signs the messages: env:NAME or file:PATH, relative to the \
             policy; it holds whsec_ and 24 to 64 bytes in base64.",
        ),
        optional(
            "ca",
            Shape::TEXT,
            "\"hooks-ca.pem\"",
            "PEM file of the authorities for the receiver's certificate (default: those that the \
             system trusts).",
        ),
    ],
    ..TableSpec::EMPTY
};
