//! Syntax: text to a TOML document, with helps for what people most often get wrong.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeTable;

use super::MAX_BYTES;
use super::codes;
use super::diagnostic::{Findings, shown};

/// The document, as much of it as can be read; none if there is nothing to look at.
pub(super) fn document<'t>(text: &'t str, out: &mut Findings<'_>) -> Option<Spanned<DeTable<'t>>> {
    if text.len() > MAX_BYTES {
        let message = format!("a policy of {} bytes", text.len());
        out.error(codes::TOO_LARGE, 0..0, message, format!("at most {MAX_BYTES} bytes are read"))
            .help("is this the policy file? Lists of many values are better kept by the application, as an attribute");
        return None;
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let at = error.span().unwrap_or(text.len()..text.len());
        if error.message().contains("duplicate key") {
            twice(text, at, out);
            continue;
        }
        out.unreadable(at.start);
        let line = line_of(text, at.start);
        out.error(
            codes::SYNTAX,
            at,
            sentence(error.message()),
            "TOML cannot be read here",
        )
        .help(help(line));
    }
    if errors.is_empty() && document.get_ref().is_empty() {
        out.error(
            codes::EMPTY_FILE,
            0..0,
            "the policy is empty",
            "nothing is said here",
        )
        .help("begin with the line: version = 1");
        return None;
    }
    Some(document)
}

fn twice(text: &str, at: Range<usize>, out: &mut Findings<'_>) {
    let name = text.get(at.clone()).unwrap_or_default();
    let message = format!("`{}` is set twice", shown(name));
    let line = line_of(text, at.start);
    let help = if line.trim_start().starts_with('[') {
        format!(
            "put both into one table; lists of tables have two brackets: [[{}]]",
            shown(name)
        )
    } else {
        "keep one of them".into()
    };
    out.error(codes::DUPLICATE_FIELD, at, message, "the second time")
        .help(help);
}

/// A message of the TOML parser as one lower-case sentence.
fn sentence(message: &str) -> String {
    let mut characters = message.trim_end_matches('.').chars();
    let first = characters
        .next()
        .map(|first| first.to_lowercase().to_string());
    first.unwrap_or_default() + characters.as_str()
}

/// What to write, judged by the line.
fn help(line: &str) -> String {
    let line = line.trim();
    let (name, value) = line
        .split_once('=')
        .map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
    let typographic = |c: char| {
        matches!(
            c,
            '\u{201c}' | '\u{201d}' | '\u{201e}' | '\u{2018}' | '\u{2019}'
        )
    };
    if line.contains(typographic) {
        return "use straight quotes: \"...\"".into();
    }
    if line.starts_with('[') && !line.ends_with(']') {
        return "close the bracket: [[limit]] begins a limit, [defaults] a table".into();
    }
    if !line.contains('=') {
        return match line.split_once(':') {
            Some((name, value)) => format!(
                "write `=` instead of `:`, as in {} = {}",
                shown(name.trim()),
                quoted(value.trim())
            ),
            None => "write a name, `=` and a value, as in limit = \"100/1m\"".into(),
        };
    }
    let bare = |c: char| c.is_ascii_alphanumeric() || "/-.:_*".contains(c);
    if !value.is_empty() && value.chars().all(bare) {
        return format!(
            "put the value in quotes: {} = {}",
            shown(name),
            quoted(value)
        );
    }
    if value.is_empty() {
        return format!("write a value after `=`, as in {} = \"...\"", shown(name));
    }
    if value.matches('"').count() % 2 == 1 {
        return "close the quotes: every string begins and ends with `\"`".into();
    }
    if value.starts_with('[') && !value.contains(']') {
        return "close the list with `]`".into();
    }
    if value.starts_with('{') && !value.contains('}') {
        return "close the table with `}`".into();
    }
    "the file is TOML: name = \"text\", name = 5, name = true, name = [\"a\", \"b\"], name = { a = 1 }".into()
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", shown(value.trim_matches('"')))
}

fn line_of(text: &str, at: usize) -> &str {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    text[start..].lines().next().unwrap_or_default()
}
