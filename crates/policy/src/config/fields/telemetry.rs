//! Fields of `[otlp]`: the server that receives metrics and events.

use super::{DURATION, MAX_NAMES, SECRET, optional, pattern, required};
use crate::config::shape::{Shape, TableSpec};

const SERVICE_NAME: &str = "^[A-Za-z0-9._-]{1,100}$";

pub(super) static OTLP: TableSpec = TableSpec {
    what: "`[otlp]`",
    fields: &[
        required(
            "endpoint",
            Shape::TEXT,
            "\"https://otlp.example.com\"",
            "URL of the receiver, to which /v1/metrics and /v1/logs are appended; protobuf over \
             HTTP.",
        ),
        optional(
            "headers",
            Shape::Map {
                of: &pattern(SECRET),
                most: MAX_NAMES,
            },
            "{ authorization = \"env:OTLP_AUTHORIZATION\" }",
            "Header fields of each message, by name, and the source of the value of each: env:NAME \
             or file:PATH, relative to the policy.",
        ),
        optional(
            "ca",
            Shape::TEXT,
            "\"otlp-ca.pem\"",
            "PEM file of the authorities for the receiver's certificate (default: those that the \
             system trusts).",
        ),
        optional(
            "interval",
            pattern(DURATION),
            "\"30s\"",
            "Time between two messages with metrics, from 1s to 1h (default 15s).",
        ),
        optional(
            "service_name",
            pattern(SERVICE_NAME),
            "\"edge\"",
            "Resource attribute service.name, 1 to 100 letters, digits, dots, hyphens or underscores \
             (default \"ratekeeper\").",
        ),
        optional(
            "metrics",
            Shape::Flag,
            "false",
            "Sends metrics (default true).",
        ),
        optional(
            "events",
            Shape::Flag,
            "false",
            "Sends events, as log records (default true).",
        ),
    ],
    ..TableSpec::EMPTY
};
