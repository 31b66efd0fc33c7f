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
    hints: hints! {
        "over" => "write above = \"80%\"",
        "level" => "write above = \"80%\"",
        "threshold" => "write above = \"80%\"",
        "at" => "write above = \"80%\"",
        "below" => "leave it out: an alert ends when the key is no longer above",
        "refused" => "write above = \"99%\": a refused request counts as 100%",
        "during" => "write for = \"2m\"",
        "duration" => "write for = \"2m\"",
        "webhook" => "write it once for all limits: [alerts] with webhook = { url = \
            \"https://hooks.example.com/\", secret = \"env:RATEKEEPER_WEBHOOK_SECRET\" }",
    },
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
    hints: hints! {
        "url" => "put it into `webhook`: webhook = { url = \"https://hooks.example.com/\", secret = \
            \"env:RATEKEEPER_WEBHOOK_SECRET\" }",
        "email" => "leave it out: let the receiver of the webhook send mail",
        "slack" => "leave it out: let the receiver of the webhook send messages",
        "above" => "write it in the limit: alert = { above = \"80%\", for = \"2m\" }",
        "for" => "write it in the limit: alert = { above = \"80%\", for = \"2m\" }",
    },
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
    hints: hints! {
        "token" => "write secret = \"env:RATEKEEPER_WEBHOOK_SECRET\": messages are signed",
        "headers" => "leave it out: the receiver checks the signature of each message",
        "method" => "leave it out: messages are sent by POST",
        "timeout" => "leave it out: an attempt ends after 10 s",
        "retries" => "leave it out: a message is tried 6 times",
        "tls" => "write ca = \"hooks-ca.pem\"",
    },
    ..TableSpec::EMPTY
};
