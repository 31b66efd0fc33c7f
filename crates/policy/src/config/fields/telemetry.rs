//! Fields of `[otlp]`: the server that receives metrics and events.

use super::{DURATION, MAX_NAMES, SECRET};
use crate::config::shape::{FLAG, TEXT, fields, map, pattern};

const SERVICE_NAME: &str = "^[A-Za-z0-9._-]{1,100}$";

fields! {
    pub(super) OTLP = "`[otlp]`" {
        required endpoint: TEXT, "\"https://otlp.example.com\"",
            "URL of the receiver, to which /v1/metrics and /v1/logs are appended; protobuf over \
             HTTP.";
        optional headers: map(&pattern(SECRET), MAX_NAMES),
            "{ authorization = \"env:OTLP_AUTHORIZATION\" }",
            "Header fields of each message, by name, and the source of the value of each: env:NAME \
             or file:PATH, relative to the policy.";
        optional ca: TEXT, "\"otlp-ca.pem\"",
            "PEM file of the authorities for the receiver's certificate (default: those that the \
             system trusts).";
        optional interval: pattern(DURATION), "\"30s\"",
            "Time between two messages with metrics, from 1s to 1h (default 15s).";
        optional service_name: pattern(SERVICE_NAME), "\"edge\"",
            "Resource attribute service.name, 1 to 100 letters, digits, dots, hyphens or \
             underscores (default \"ratekeeper\").";
        optional metrics: FLAG, "false", "Sends metrics (default true).";
        optional events: FLAG, "false", "Sends events, as log records (default true).";
    }
}
