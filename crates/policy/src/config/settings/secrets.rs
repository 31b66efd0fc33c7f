//! Secrets: where the policy finds them, and values that a finding must not repeat, because
//! findings end up in logs.
//!
//! ```text
//!   url = "redis://:hunter2@127.0.0.1"    url = "redis://********@127.0.0.1"
//!   password = "hunter2"                  password = "*******"
//!   password = "env:REDIS_PASSWORD"       the same: it names the source
//! ```
//!
//! The text is examined, not the document, because the file that holds the secret may be one that
//! cannot be parsed.

use std::borrow::Cow;
use std::ops::Range;

/// Parts of the names of fields that hold a secret.
const NAMES: [&str; 5] = ["pass", "secret", "token", "authorization", "api-key"];

/// Returns `text` with its secrets as stars, of the same length so that positions stay valid.
pub(crate) fn masked(text: &str) -> Cow<'_, str> {
    let mut ranges = logins(text);
    ranges.extend(values(text));
    if ranges.is_empty() {
        return Cow::Borrowed(text);
    }
    let stars = |range: &Range<usize>| "*".repeat(range.len());
    let mut masked = text.to_owned();
    for range in ranges {
        masked.replace_range(range.clone(), &stars(&range));
    }
    Cow::Owned(masked)
}

/// Returns the ranges between `://` and `@` of each URL.
fn logins(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, sign) in text.match_indices("://") {
        let start = at + sign.len();
        let rest = &text[start..];
        let end = rest.find(|c: char| c.is_whitespace() || "\"'".contains(c));
        let url = &rest[..end.unwrap_or(rest.len())];
        if let Some(at) = url.rfind('@') {
            found.push(start..start + at);
        }
    }
    found
}

/// Returns the values of fields with the name of a secret, except `env:` and `file:`.
fn values(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices('=') {
        let before = text[..at].trim_end();
        let is_name = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        let name = before.trim_end_matches(['"', '\'']);
        let name = &name[name.trim_end_matches(is_name).len()..];
        let name = name.to_ascii_lowercase();
        if !NAMES.iter().any(|part| name.contains(part)) {
            continue;
        }
        let rest = &text[at + 1..];
        let value = rest.trim_start_matches([' ', '\t']);
        let start = text.len() - value.len();
        let (start, value) = if let Some(quote @ ('"' | '\'')) = value.chars().next() {
            let quotes = value.len() - value.trim_start_matches(quote).len();
            let inner = &value[if quotes == 2 { 1 } else { quotes }..]; // two are an empty value
            let length = inner.find([quote, '\n']).unwrap_or(inner.len());
            (text.len() - inner.len(), &inner[..length])
        } else {
            let length = value.find(|c: char| c.is_whitespace() || ",}".contains(c));
            (start, &value[..length.unwrap_or(value.len())])
        };
        let is_reference = value.starts_with("env:") || value.starts_with("file:");
        let is_count = name.contains("tokens") && value.parse::<u64>().is_ok();
        let is_any = value.trim_matches(['!', '*']).is_empty(); // a pattern of `match`
        if !is_reference && !is_count && !is_any && !value.starts_with(['[', '{']) {
            found.push(start..start + value.len());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn secrets_are_masked_and_references_are_not() {
        for (text, expected) in [
            ("password = \"hunter2\"", "password = \"*******\""),
            ("pass_word='x' # y", "pass_word='*' # y"),
            (
                "{ Passwort = \"a b\", x = 1 }",
                "{ Passwort = \"***\", x = 1 }",
            ),
            ("password = hunter2", "password = *******"),
            ("password = \"hunter2", "password = \"*******"),
            (
                "password = \"\"\"hunter2\"\"\"",
                "password = \"\"\"*******\"\"\"",
            ),
            ("password = \"env:P\"", "password = \"env:P\""),
            ("{ x-api-key = \"\" }", "{ x-api-key = \"\" }"),
            ("x-api-key = ''", "x-api-key = ''"),
            ("x-api-key = \"!\"", "x-api-key = \"!\""),
            ("x-api-key = \"!k*\"", "x-api-key = \"***\""),
            ("admin_token = \"file:/t\"", "admin_token = \"file:/t\""),
            ("url = \"redis://u:p@h:1\"", "url = \"redis://***@h:1\""),
            ("url = \"redis://h:1\"", "url = \"redis://h:1\""),
            (
                "url = [\"redis://:a@b\", \"redis://c\"]",
                "url = [\"redis://**@b\", \"redis://c\"]",
            ),
            ("max_tokens = 5, token = 5", "max_tokens = 5, token = *"),
            ("name = \"per-ip\"", "name = \"per-ip\""),
            ("password = \"\u{e9}\"", "password = \"**\""),
        ] {
            assert_eq!(masked(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_length_stays(text in "(pass|token|=|\"|'|://|@|\u{e9}|[ a-z\n]){0,24}") {
            prop_assert_eq!(masked(&text).len(), text.len());
        }
    }
}
