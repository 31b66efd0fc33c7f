//! Syntax: text to a TOML document, with helps for common mistakes.

use jiff::civil;
use toml::Spanned;
use toml::de::DeTable;

use super::shape::Shape;
use crate::config::diagnostic::line_start;
use crate::config::fields::{POLICY, owner};
use crate::config::{Findings, MAX_BYTES, Spot, ValueError, codes, error, first_reason, shown};

/// Parses the readable part of the document; `None` if there is nothing to read.
pub(crate) fn document<'t>(text: &'t str, out: &Findings<'_>) -> Option<Spanned<DeTable<'t>>> {
    if text.len() > MAX_BYTES {
        let message = format!("the policy has {} bytes", text.len());
        let label = format!("at most {MAX_BYTES} bytes are read");
        error(codes::TOO_LARGE, out.at(0..0), message, label).help(
            "check that this is the policy file; keep long lists in the application, which \
                 sends the result as an attribute",
        );
        return None;
    }
    let document = parsed(text, out);
    if !out.has_errors() && document.get_ref().is_empty() {
        let message = "the policy is empty";
        let label = "the file sets no field";
        error(codes::EMPTY_FILE, out.at(0..0), message, label)
            .help("begin with the line: version = 1");
        return None;
    }
    Some(document)
}

/// Parses the readable part of a text.
pub(crate) fn parsed<'t>(text: &'t str, out: &Findings<'_>) -> Spanned<DeTable<'t>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut reported = 0..0; // the line that was reported last
    for mistake in &errors {
        let at = mistake.span().unwrap_or(text.len()..text.len());
        if mistake.message().contains("duplicate key") {
            twice(text, out.at(at));
            continue;
        }
        if reported.contains(&at.start) {
            continue; // what follows on the same line mostly follows from the first
        }
        out.unreadable(at.start);
        let (start, line) = line_of(text, at.start);
        reported = start..start + line.len() + 1; // with its end
        let rest = &line[(at.start - start).min(line.len())..];
        let ValueError { reason, help } = advice(mistake.message(), line, rest);
        error(codes::SYNTAX, out.at(at), reason, "not valid TOML").help(help);
    }
    document
}

fn twice(text: &str, at: Spot<'_>) {
    let name = text.get(at.range()).unwrap_or_default();
    let message = format!("`{}` is set twice", shown(name));
    let (_, line) = line_of(text, at.range().start);
    let help = if line.trim_start().starts_with('[') {
        "put both into one table; lists of tables have two brackets, as in [[limit]]"
    } else {
        "keep one of them"
    };
    let label = "set here a second time";
    error(codes::DUPLICATE_FIELD, at, message, label).help(help);
}

/// Explains an error from the message of the parser, its line, and the rest of the line from the
/// place of the error: the reason is the message.
fn advice(message: &str, line: &str, rest: &str) -> ValueError {
    let line = line.trim();
    let (name, value) = line
        .split_once('=')
        .map_or((line, ""), |(name, value)| (name.trim(), value.trim()));
    let typographic = ['\u{201c}', '\u{201d}', '\u{201e}', '\u{2018}', '\u{2019}'];
    let bare = |c: char| c.is_ascii_alphanumeric() || "/-.:_*".contains(c);
    let list = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let words = list.unwrap_or(value).split(',').map(str::trim);
    let values = || {
        let values = words.clone().map(quoted).collect::<Vec<_>>().join(", ");
        match list {
            None if !value.contains(',') => values,
            _ => format!("[{values}]"),
        }
    };
    let of_list =
        message.contains("unclosed array,") || message.contains("missing comma between array");
    let of_form = first_reason! {
        line.starts_with("limit_req") || line.starts_with("limit_conn") => sentence(message),
            "this is nginx, and a policy is TOML: `ratekeeper import --from nginx FILE` translates it";
        line.contains(typographic) => sentence(message), "use straight quotes: \"...\"";
        of_list => sentence(message),
            "close the list with `]`, and put a comma between its values: [\"a\", \"b\"]";
        message.contains("unclosed inline table") => sentence(message), "close the table with `}`";
    };
    let other = || {
        first_reason! {
            line.starts_with('[') => sentence(message),
                "close the brackets: [[limit]] begins a limit, [defaults] a table";
            !line.contains('=') => sentence(message), without_equals(line);
            value.is_empty() => format!("`{}` has no value", shown(name)),
                format!("write a value after `=`, as in {} = \"...\"", shown(name));
            words.clone().all(|word| word.chars().all(bare)) => "a string must be in quotes",
                format!("write {} = {}", shown(name), values());
            value.matches('"').count() % 2 == 1 => "a string has no closing quote",
                "close the quotes: every string begins and ends with `\"`";
        }
    };
    let of_format = || Some(ValueError::new(sentence(message), of_another_format(line)?));
    let found = of_form.or_else(of_format);
    let found = found.or_else(|| of_another_language(message, line, rest));
    let toml = "write TOML: name = \"text\", name = 5, name = true, name = [\"a\", \"b\"], name = { a = 1 }";
    let found = found.or_else(other);
    found.unwrap_or_else(|| ValueError::new(sentence(message), toml))
}

/// Explains a value or a sign of another language, or a date that does not exist.
fn of_another_language(message: &str, line: &str, rest: &str) -> Option<ValueError> {
    let mut comments = ["//", "--", "/*", ";"].into_iter();
    if let Some(start) = comments.find(|start| line.starts_with(start)) {
        let message = format!("`{start}` begins no comment");
        return Some(ValueError::new(message, "begin comments with `#`"));
    }
    let end = rest.find([',', '}', ']', ' ', '#', ';']);
    let value = rest[..end.unwrap_or(rest.len())].trim();
    let before = line.find(value).map_or(line, |at| &line[..at]);
    let name = before.trim_end().strip_suffix('=').unwrap_or_default();
    let name = name.trim_end();
    let name = &name[name.rfind([' ', ',', '{']).map_or(0, |at| at + 1)..];
    if let Some((message, date)) = no_such_date(value) {
        let help = format!("write {} = {}", shown(name), shown(&date));
        return Some(ValueError::new(message, help));
    }
    let literal = match value.to_ascii_lowercase().as_str() {
        "yes" | "on" | "true" => "true",
        "no" | "off" | "false" => "false",
        _ => "",
    };
    // A country `NO` is a string, and so are methods and plans: only flags are in lower case.
    let is_flag = !literal.is_empty() && !name.is_empty() && value != value.to_ascii_uppercase();
    let is_inline = line.contains('{') && before.contains('{') && !name.is_empty();
    let is_word = value.starts_with(|c: char| c.is_ascii_alphabetic())
        && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let field = owner(name).map(|owner| owner.field);
    let literal = match (literal, field.or_else(|| POLICY.field(name))) {
        ("false", Some(it)) if it.shape.takes_off() => "\"off\"",
        ("true", Some(it)) if !matches!(it.shape, Shape::Flag | Shape::Either(_)) => it.example,
        _ => literal,
    };
    first_reason! {
        is_flag => format!("`{value}` is neither `true` nor `false`"),
            format!("write {} = {literal}", shown(name));
        matches!(value, "null" | "nil" | "None" | "~") => "a field cannot be without a value",
            "remove the field";
        message.contains("missing assignment") && rest.trim_start().starts_with(':') =>
            "TOML has no `:` between a name and its value",
            "write `=` instead of `:`, as in { path = \"/login\" }";
        message.contains("escape") || message.contains("unicode value") =>
            "a backslash in double quotes begins an escape",
            "write the string in single quotes, or each backslash twice";
        message.contains("extra `=`") => "a field has one `=`", "remove the second `=`";
        line.contains('=') && line.ends_with(';') => "a line does not end with `;`",
            "remove the `;`: a line ends by itself";
        is_inline && is_word => "a string must be in quotes",
            format!("write {} = {}", shown(name), quoted(value));
    }
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
    let start = line_start(text, at);
    (start, text[start..].lines().next().unwrap_or_default())
}
