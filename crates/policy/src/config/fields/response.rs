//! How a refusal looks: `[response.NAME]`.

use super::{STATUS, optional, required};
use crate::config::shape::{Shape, TableSpec};

pub(super) static RESPONSE: TableSpec = TableSpec {
    what: "a response",
    fields: &[
        optional("status", STATUS, "429", "HTTP status of the refusal."),
        optional(
            "body",
            Shape::Either(&[Shape::Word(BODIES), Shape::Table(&BODY)]),
            "\"problem+json\"",
            "Content of the body.",
        ),
        optional(
            "detail",
            Shape::TEXT,
            "\"Try again in {retry_after}.\"",
            "Field `detail` of problem+json; {retry_after} and {limit} are filled in.",
        ),
    ],
    ..TableSpec::EMPTY
};

pub(super) const BODIES: &[&str] = &["problem+json", "none"];

pub(super) static BODY: TableSpec = TableSpec {
    what: "a body",
    fields: &[
        required(
            "text",
            Shape::TEXT,
            "\"Slow down: try again in {retry_after}.\"",
            "Text of the body; {retry_after} and {limit} are filled in.",
        ),
        optional(
            "type",
            Shape::TEXT,
            "\"text/plain; charset=utf-8\"",
            "Content type of the body (default: plain text).",
        ),
    ],
    ..TableSpec::EMPTY
};
