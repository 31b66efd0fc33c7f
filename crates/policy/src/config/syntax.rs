//! Syntax: text to a TOML document, with helps for common mistakes.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::MAX_BYTES;
use super::codes;
use super::diagnostic::{Findings, shown};

/// Parses the readable part of the document; `None` if there is nothing to read.
pub(super) fn document<'t>(text: &'t str, out: &mut Findings<'_>) -> Option<Spanned<DeTable<'t>>> {
    if text.len() > MAX_BYTES {
        let message = format!("the policy has {} bytes", text.len());
        out.error(
            codes::TOO_LARGE,
            0..0,
            message,
            format!("at most {MAX_BYTES} bytes are read"),
        )
        .help(
            "check that this is the policy file; keep long lists in the application, which \
                 sends the result as an attribute",
        );
        return None;
    }
    let document = parsed(text, out);
    if !out.has_errors() && document.get_ref().is_empty() {
        out.error(
            codes::EMPTY_FILE,
            0..0,
            "the policy is empty",
            "the file sets no field",
        )
        .help("begin with the line: version = 1");
        return None;
    }
    Some(document)
}

/// Parses the readable part of a text.
pub(super) fn parsed<'t>(text: &'t str, out: &mut Findings<'_>) -> Spanned<DeTable<'t>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reported = 0..0; // the line that was reported last
    for error in &errors {
        let at = error.span().unwrap_or(text.len()..text.len());
        if error.message().contains("duplicate key") {
            twice(text, at, out);
            continue;
        }
        if reported.contains(&at.start) {
            continue; // what follows on the same line mostly follows from the first
        }
        out.unreadable(at.start);
        let (start, line) = line_of(text, at.start);
        reported = start..start + line.len() + 1; // with its end
        let Advice { message, help } = advice(error.message(), line);
        out.error(codes::SYNTAX, at, message, "not valid TOML")
            .help(help);
    }
    document
}

fn twice(text: &str, at: Range<usize>, out: &mut Findings<'_>) {
    let name = text.get(at.clone()).unwrap_or_default();
    let message = format!("`{}` is set twice", shown(name));
    let (_, line) = line_of(text, at.start);
    let help = if line.trim_start().starts_with('[') {
        format!(
            "put both into one table; lists of tables have two brackets: [[{}]]",
            shown(name)
        )
    } else {
        "keep one of them".into()
    };
    out.error(
        codes::DUPLICATE_FIELD,
        at,
        message,
        "set here a second time",
    )
    .help(help);
}

/// Message and help for a line that cannot be parsed.
struct Advice {
    message: String,
    help: String,
}

/// Explains an error from its line and the message of the parser.
fn advice(message: &str, line: &str) -> Advice {
    let line = line.trim();
    let (name, value) = line
        .split_once('=')
        .map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
    let advise = |help: &str| Advice {
        message: sentence(message),
        help: help.to_owned(),
    };
    let typographic = |c: char| {
        matches!(
            c,
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{2018}' | '\u{2019}'
        )
    };
    if line.contains(typographic) {
        return advise("use straight quotes: \"...\"");
    }
    if message.contains("unclosed array,") || message.contains("missing comma between array") {
        return advise(
            "close the list with `]`, and put a comma between its values: [\"a\", \"b\"]",
        );
    }
    if message.contains("unclosed inline table") {
        return advise("close the table with `}`");
    }
    if line.starts_with('[') {
        return advise("close the brackets: [[limit]] begins a limit, [defaults] a table");
    }
    if !line.contains('=') {
        return advise(&without_equals(line));
    }
    if value.is_empty() {
        let message = format!("`{}` has no value", shown(name));
        let help = format!("write a value after `=`, as in {} = \"...\"", shown(name));
        return Advice { message, help };
    }
    let bare = |c: char| c.is_ascii_alphanumeric() || "/-.:_*".contains(c);
    if value.chars().all(bare) {
        let message = "a string must be in quotes".to_owned();
        let help = format!("write {} = {}", shown(name), quoted(value));
        return Advice { message, help };
    }
    if value.matches('"').count() % 2 == 1 {
        let message = "a string has no closing quote".to_owned();
        let help = "close the quotes: every string begins and ends with `\"`".to_owned();
        return Advice { message, help };
    }
    advise(
        "write TOML: name = \"text\", name = 5, name = true, name = [\"a\", \"b\"], name = { a = 1 }",
    )
}

/// Returns the help for a line without `=`, which may be one of JSON or YAML.
fn without_equals(line: &str) -> String {
    if line.starts_with(['{', '}', '"']) {
        return "this is JSON, and a policy is TOML: version = 1, and [[limit]] above each limit"
            .into();
    }
    if line.starts_with("- ") {
        return "a list of tables has a heading for each in place of `-`: [[limit]]".into();
    }
    match line.split_once(':') {
        Some(("limit" | "limits", "")) => "write [[limit]] above each limit".into(),
        Some((name, value)) => {
            let (name, value) = (shown(name.trim()), value.trim());
            let is_number = value.parse::<i64>().is_ok() || matches!(value, "true" | "false");
            let value = if is_number {
                value.to_owned()
            } else {
                quoted(value)
            };
            format!("write `=` instead of `:`, as in {name} = {value}")
        }
        None => "write a name, `=` and a value, as in limit = \"100/1m\"".into(),
    }
}

/// Returns a message of the TOML parser as one lower-case sentence.
fn sentence(message: &str) -> String {
    let mut characters = message.trim_end_matches('.').chars();
    let first = characters
        .next()
        .map(|first| first.to_lowercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", shown(value.trim_matches('"')))
}

/// Returns the line that holds a position, and where it begins.
fn line_of(text: &str, at: usize) -> (usize, &str) {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    (start, text[start..].lines().next().unwrap_or_default())
}
