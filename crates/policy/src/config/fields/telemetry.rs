//! Fields of reports: `[otlp]`, `[metrics]`, and alerts.

use ratekeeper_core::Nanos;

use super::{HOUR, MAX_NAMES};
use crate::config::document::shape::{
    Flag, Map, SECRET, Shape, TEXT, Table, Whole, fields, name, span,
};

/// A message holds all metrics, so no more than one a second.
const INTERVAL: Shape = span(Nanos::SECOND, HOUR);
/// Largest `near_percent` of `[metrics]`: nothing is above the whole limit.
const MAX_NEAR_PERCENT: u64 = 99;
/// Largest `max_limits` of `[metrics]`: such a scrape is 70 MB.
const MAX_SHOWN_LIMITS: u64 = 100_000;

fields! {
    pub(super) OTLP = "`[otlp]`" {
        required endpoint: TEXT, "\"https://otlp.example.com\"",
            "URL of the receiver, to which /v1/metrics and /v1/logs are appended; protobuf over \
             HTTP.";
        optional headers: Map(&SECRET, MAX_NAMES),
            "{ authorization = \"env:OTLP_AUTHORIZATION\" }",
            "Header fields of each message, by name, and the source of the value of each: env:NAME \
             or file:PATH, relative to the policy.";
        optional ca: TEXT, "\"otlp-ca.pem\"",
            "PEM file of the authorities for the receiver's certificate (default: those that the \
             system trusts).";
        optional interval: INTERVAL, "\"30s\"",
            "Time between two messages with metrics, from 1s to 1h (default 15s).";
        optional service_name: name(100, "._-"), "\"edge\"",
            "Resource attribute service.name, 1 to 100 letters, digits, dots, hyphens or \
             underscores (default \"ratekeeper\").";
        optional metrics: Flag, "false", "Sends metrics (default true).";
        optional events: Flag, "false", "Sends events, as log records (default true).";
    }

    pub(super) METRICS = "`[metrics]`" {
        optional max_limits: Whole(1, MAX_SHOWN_LIMITS), "1000",
            "Maximum number of limits with series of their own; further limits are counted \
             together, as `(other)`.";
        optional near_percent: Whole(1, MAX_NEAR_PERCENT), "90",
            "Percentage of a limit above which an allowed request counts as near it (default 80).";
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
