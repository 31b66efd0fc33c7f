//! Refusal: `[response.NAME]`, and the limits that name it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::requests::name;
use crate::config::{Spot, Table, Text, codes, error, is_word, shown, warning};
use crate::{Body, Refusal};

/// Maximum size in bytes of `detail`, and of the text of a body.
const MAX_TEXT: usize = 64 * 1024;
/// Names allowed in braces.
const PLACEHOLDERS: [&str; 2] = ["retry_after", "limit"];
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// The responses of a file, by name.
#[derive(Debug, Default)]
pub(crate) struct Responses<'a> {
    named: BTreeMap<&'a str, NamedResponse<'a>>,
}

/// One response.
#[derive(Clone, Debug)]
pub(super) struct NamedResponse<'a> {
    pub(crate) refusal: Arc<Refusal>,
    /// True if it sets a status itself, which precedes the status of `[defaults]`.
    pub(super) has_status: bool,
    /// Where its name stands.
    at: Spot<'a>,
    used: bool,
}

/// `[response.*]`
pub(crate) fn responses(root: Table<'_>) -> Responses<'_> {
    let mut named = BTreeMap::new();
    for (key, table) in root.named_tables("response") {
        name(&key, "response");
        let response = NamedResponse {
            refusal: Arc::new(refusal(table)),
            has_status: table.has("status"),
            at: key.at,
            used: false,
        };
        named.insert(key.value, response);
    }
    Responses { named }
}

impl<'a> Responses<'a> {
    /// Returns the response that a limit names.
    pub(super) fn named_in(&mut self, table: Table<'_>) -> Option<NamedResponse<'a>> {
        let text = table.text("response")?;
        if let Some(response) = self.named.get_mut(text.value) {
            response.used = true;
            return Some(response.clone());
        }
        let findings = text.at.findings;
        if !findings.is_whole() {
            return None; // it may stand where the text could not be read
        }
        let (name, known) = (shown(text.value), self.named.keys().copied());
        let other = || format!("add [response.{name}], with status = 429 for example");
        let help = findings.meant(text.value, known, "response = ", other);
        let message = format!("no response is called `{name}`");
        let label = "not found in this file";
        error(codes::UNKNOWN_RESPONSE, text.at, message, label).help(help);
        None
    }

    /// Lint: responses that no limit names.
    pub(crate) fn unused(&self) {
        for (name, response) in self.named.iter().filter(|(_, response)| !response.used) {
            let message = format!("response `{name}` is never used");
            let label = "no limit names it";
            warning(codes::UNUSED_RESPONSE, response.at, message, label).help(format!(
                "add response = \"{name}\" to a limit or to [defaults], or remove it"
            ));
        }
    }
}

fn refusal(table: Table<'_>) -> Refusal {
    let detail = table.text("detail").inspect(sentence);
    Refusal {
        status: table.number("status").unwrap_or(Refusal::default().status),
        body: body(table),
        detail: detail.map(|detail| detail.value.into()),
    }
}

fn body(table: Table<'_>) -> Body {
    if table.text("body").is_some_and(|body| body.value == "none") {
        return Body::Empty;
    }
    let Some(table) = table.table("body") else {
        return Body::ProblemJson;
    };
    let text = table.text("text").inspect(sentence);
    let kind = table.text("type").inspect(content_type);
    Body::Text {
        content: text.map(|text| text.value.to_owned()).unwrap_or_default(),
        content_type: kind.map_or(PLAIN_TEXT, |kind| kind.value).to_owned(),
    }
}

/// Checks a text that is sent: its length, and its placeholders in braces.
fn sentence(text: &Text<'_>) {
    if text.value.len() > MAX_TEXT {
        let message = format!("the text has {} bytes", text.value.len());
        let label = format!("at most {MAX_TEXT} bytes are sent");
        error(codes::RESPONSE_TEXT, text.at, message, label)
            .help("write a shorter text, with a link to the rest");
    }
    let braces = text.value.split('{').skip(1);
    for (word, _) in braces.filter_map(|rest| rest.split_once('}')) {
        if !is_word(word) || PLACEHOLDERS.contains(&word) {
            continue; // braces of other texts, such as JSON, are left alone
        }
        let help = match text.at.findings.nearest(word, PLACEHOLDERS) {
            Some(near) => format!("did you mean {{{near}}}?"),
            None => "write {retry_after} or {limit}, or leave it out".into(),
        };
        let message = format!("unknown placeholder {{{}}}", shown(word));
        let at = text.at.within(&format!("{{{word}}}"));
        let label = "only {retry_after} and {limit} are filled in";
        error(codes::RESPONSE_TEXT, at, message, label).help(help);
    }
}

/// Checks a content type, which must be a valid header value (RFC 9110, 8.3.1).
fn content_type(text: &Text<'_>) {
    let visible = text.value.bytes().all(|b| (b' '..=b'~').contains(&b));
    let two_parts = text
        .value
        .split_once('/')
        .is_some_and(|(kind, rest)| !kind.is_empty() && !rest.is_empty());
    if !(visible && two_parts && text.value.len() <= 200 && text.value.trim() == text.value) {
        let message = format!("\"{text}\" is not a content type");
        let label = "expected TYPE/SUBTYPE";
        error(codes::RESPONSE_TEXT, text.at, message, label)
            .help("write for example type = \"text/html; charset=utf-8\"");
    }
}
