//! How a refusal looks: `[response.NAME]`.

use super::STATUS;
use crate::config::document::shape::{Either, TEXT, Table, Word, fields};

fields! {
    pub(super) RESPONSE = "a response" {
        optional status: STATUS, "429", "HTTP status of the refusal.";
        optional body: Either(&[Word(BODIES), Table(&BODY)]), "\"problem+json\"",
            "Content of the body.";
        optional detail: TEXT, "\"Try again in {retry_after}.\"",
            "Field `detail` of problem+json; {retry_after} and {limit} are filled in.";
    }
}

pub(super) const BODIES: &[&str] = &["problem+json", "none"];

fields! {
    pub(super) BODY = "a body" {
        required text: TEXT, "\"Slow down: try again in {retry_after}.\"",
            "Text of the body; {retry_after} and {limit} are filled in.";
        optional r#type: TEXT, "\"text/plain; charset=utf-8\"",
            "Content type of the body (default: plain text).";
    }
}
