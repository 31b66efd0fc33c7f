//! Syntax: text to a TOML document, with helps for common mistakes.

use std::ops::Range;

use jiff::civil;
use toml::Spanned;
use toml::de::DeTable;

use crate::config::MAX_BYTES;
use crate::config::codes;
use crate::config::diagnostic::{Findings, shown};

/// Parses the readable part of the document; `None` if there is nothing to read.
pub(in crate::config) fn document<'t>(
    text: &'t str,
    out: &mut Findings<'_>,
) -> Option<Spanned<DeTable<'t>>> {
    if text.len() > MAX_BYTES {
        let message = format!("the policy has {} bytes", text.len());
        let label = format!("at most {MAX_BYTES} bytes are read");
        out.error(codes::TOO_LARGE, 0..0, message, label).help(
            "check that this is the policy file; keep long lists in the application, which \
                 sends the result as an attribute",
        );
        return None;
    }
    let document = parsed(text, out);
    if !out.has_errors() && document.get_ref().is_empty() {
        let message = "the policy is empty";
        let label = "the file sets no field";
        out.error(codes::EMPTY_FILE, 0..0, message, label)
            .help("begin with the line: version = 1");
        return None;
    }
    Some(document)
}

/// Parses the readable part of a text.
pub(in crate::config) fn parsed<'t>(text: &'t str, out: &mut Findings<'_>) -> Spanned<DeTable<'t>> {
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
        let rest = &line[(at.start - start).min(line.len())..];
        let Advice { message, help } = advice(error.message(), line, rest);
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
        "put both into one table; lists of tables have two brackets, as in [[limit]]"
    } else {
        "keep one of them"
    };
    let label = "set here a second time";
    out.error(codes::DUPLICATE_FIELD, at, message, label)
        .help(help);
}

/// Message and help for a line that cannot be parsed.
struct Advice {
    message: String,
    help: String,
}

/// Explains an error from the message of the parser, its line, and the rest of the line from the
/// place of the error.
fn advice(message: &str, line: &str, rest: &str) -> Advice {
    let line = line.trim();
    let (name, value) = line
        .split_once('=')
        .map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
    let advise = |help: &str| Advice {
        message: sentence(message),
        help: help.to_owned(),
    };
    if line.starts_with("limit_req") || line.starts_with("limit_conn") {
        return advise(
            "this is nginx, and a policy is TOML: `ratekeeper import --from nginx FILE` translates it",
        );
    }
    if line.contains(['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}']) {
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
    if let Some(help) = of_another_format(line) {
        return advise(&help);
    }
    if let Some(advice) = of_another_language(message, line, rest) {
        return advice;
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
    let list = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let words = list.unwrap_or(value).split(',').map(str::trim);
    if words.clone().all(|word| word.chars().all(bare)) {
        let message = "a string must be in quotes".to_owned();
        let values = words.map(quoted).collect::<Vec<_>>().join(", ");
        let is_list = list.is_some() || value.contains(',');
        let values = if is_list {
            format!("[{values}]")
        } else {
            values
        };
        let help = format!("write {} = {values}", shown(name));
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

/// Explains a value or a sign of another language, or a date that does not exist.
fn of_another_language(message: &str, line: &str, rest: &str) -> Option<Advice> {
    let say = |message: &str, help: String| {
        Some(Advice {
            message: message.to_owned(),
            help,
        })
    };
    if let Some(start) = ["//", "--", "/*", ";"]
        .into_iter()
        .find(|start| line.starts_with(start))
    {
        let message = format!("`{start}` begins no comment");
        return say(&message, "begin comments with `#`".to_owned());
    }
    let end = rest.find([',', '}', ']', ' ', '#', ';']);
    let value = rest[..end.unwrap_or(rest.len())].trim();
    let before = line.find(value).map_or(line, |at| &line[..at]);
    let name = before.trim_end().strip_suffix('=').unwrap_or_default();
    let name = name.trim_end();
    let name = &name[name.rfind([' ', ',', '{']).map_or(0, |at| at + 1)..];
    if let Some(date) = no_such_date(value) {
        return say(
            &date.0,
            format!("write {} = {}", shown(name), shown(&date.1)),
        );
    }
    let literal = match value.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" => Some("true"),
        "no" | "off" | "false" => Some("false"),
        _ => None,
    };
    // A country `NO` is a string, and so are methods and plans: only flags are in lower case.
    if let Some(literal) =
        literal.filter(|_| !name.is_empty() && value != value.to_ascii_uppercase())
    {
        let message = format!("`{value}` is neither `true` nor `false`");
        return say(&message, format!("write {} = {literal}", shown(name)));
    }
    if matches!(value, "null" | "nil" | "None" | "~") {
        return say(
            "a field cannot be without a value",
            "remove the field".to_owned(),
        );
    }
    if message.contains("missing assignment") && rest.trim_start().starts_with(':') {
        let help = "write `=` instead of `:`, as in { path = \"/login\" }".to_owned();
        return say("TOML has no `:` between a name and its value", help);
    }
    if message.contains("escape") || message.contains("unicode value") {
        let help = "write the string in single quotes, or each backslash twice".to_owned();
        return say("a backslash in double quotes begins an escape", help);
    }
    if message.contains("extra `=`") {
        return say("a field has one `=`", "remove the second `=`".to_owned());
    }
    if line.contains('=') && line.ends_with(';') {
        let help = "remove the `;`: a line ends by itself".to_owned();
        return say("a line does not end with `;`", help);
    }
    let is_inline = line.contains('{') && before.contains('{') && !name.is_empty();
    let is_word = !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    if is_inline && is_word && value.starts_with(|c: char| c.is_ascii_alphabetic()) {
        let help = format!("write {} = {}", shown(name), quoted(value));
        return say("a string must be in quotes", help);
    }
    None
}

/// Returns the message about a date that does not exist, and the last date of its month.
fn no_such_date(value: &str) -> Option<(String, String)> {
    let date = value.split(['T', 't']).next()?;
    let mut parts = date.splitn(3, '-');
    let [year, month, day] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let is_number = |text: &str, length| text.len() == length && text.parse::<u16>().is_ok();
    if !(is_number(year, 4) && is_number(month, 2) && is_number(day, 2)) {
        return None;
    }
    let first = civil::Date::new(year.parse().ok()?, month.parse().ok()?, 1);
    let Ok(first) = first else {
        let message = format!("there is no month {month}");
        return Some((message, format!("{year}-12-{day}{}", &value[date.len()..])));
    };
    let last = first.last_of_month();
    if day
        .parse::<i8>()
        .is_ok_and(|day| (1..=last.day()).contains(&day))
    {
        return None;
    }
    let message = format!("there is no day {}", shown(date));
    Some((message, format!("{last}{}", &value[date.len()..])))
}

/// Returns the help for a line that TOML cannot have, if its first or last character shows that.
fn of_another_format(line: &str) -> Option<String> {
    let looks_like = match (line.chars().next()?, line.chars().next_back()?) {
        ('<', _) => "XML",
        ('{' | '"', _) => "JSON",
        ('}', _) => "a block in braces",
        (_, '{') if !line.contains('=') => "a block in braces",
        _ => return None,
    };
    Some(format!(
        "this looks like {looks_like}, and a policy is TOML: version = 1, and [[limit]] above the \
         fields of each limit"
    ))
}

/// Returns the help for a line without `=`, which may be one of YAML.
fn without_equals(line: &str) -> String {
    if line.starts_with("- ") {
        return "a list of tables has a heading for each in place of `-`: [[limit]]".into();
    }
    match line.split_once(':') {
        Some(("limit" | "limits", "")) => "write [[limit]] above each limit".into(),
        Some(("domain" | "descriptors", _)) => {
            "a file of Envoy's rate limit service is read by [envoy] with config = \"FILE\"".into()
        }
        Some((name, "")) => {
            let name = shown(name.trim());
            format!(
                "write `=` and a list, as in {name} = [\"ip\"], or [{name}] above the fields of a table"
            )
        }
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
