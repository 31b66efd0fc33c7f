//! How a refusal looks: `[response.NAME]`.

use super::{STATUS, optional, required};
use crate::config::shape::{Shape, TableSpec, Words};

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
    hints: hints! {
        "code" => "write status = 429",
        "message" => "write detail = \"Try again in {retry_after}.\"",
        "text" => "put it into the body: body = { text = \"Slow down.\" }",
        "headers" => "choose the headers for the whole policy: headers = \"ietf\" at the top",
    },
    ..TableSpec::EMPTY
};

pub(super) const BODIES: Words = Words {
    known: &["problem+json", "none"],
    hints: hints! {
        "json" => "write \"problem+json\"",
        "empty" => "write \"none\"",
        "off" => "write \"none\"",
        "html" => "write the text: body = { text = \"<p>Slow down.</p>\", type = \"text/html\" }",
        "text" => "write the text: body = { text = \"Slow down.\" }",
    },
};

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
    hints: hints! {
        "file" => "write the text into the policy: body = { text = \"...\", type = \"text/html\" }",
        "content" => "write text = \"Slow down.\"",
        "content_type" => "write type = \"text/html\"",
    },
    ..TableSpec::EMPTY
};
