//! Fields of `[otlp]`: the server that receives metrics and events.

use ratekeeper_core::Nanos;

use super::{HOUR, MAX_NAMES};
use crate::config::document::shape::{Flag, Map, SECRET, Shape, TEXT, fields, name, span};

/// A message holds all metrics, so no more than one a second.
const INTERVAL: Shape = span(Nanos::SECOND, HOUR);

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
}
