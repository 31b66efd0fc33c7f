//! Foreign: values of `match` in the syntax of other programs, which are read as text here.
//!
//! ```text
//!   written              there                       here
//!   "/users/:id"         Express: any segment        the text `:id`
//!   "/users/<int:id>"    Flask: any number           the text `<int:id>`
//!   "^/api/.*$"          nginx: a regular expression refused, or text with a star
//!   "PSOT"               -                           a method that no client sends
//! ```

use super::codes;
use super::diagnostic::{Findings, shown};
use super::lookalikes::{in_ascii, odd_letter};
use super::near::nearest;
use super::read::At;
use crate::Field;

/// Methods in use: the registry of IANA (2025), and those of caches and of `UPnP`.
const METHODS: [&str; 48] = [
    "GET",
    "POST",
    "PUT",
    "DELETE",
    "HEAD",
    "OPTIONS",
    "PATCH",
    "CONNECT",
    "TRACE",
    "QUERY",
    "ACL",
    "BAN",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "COPY",
    "LABEL",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "NOTIFY",
    "ORDERPATCH",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "REBIND",
    "REFRESH",
    "REPORT",
    "SEARCH",
    "SOURCE",
    "SUBSCRIBE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Warns of a valid value that looks as if it were written for another program.
pub(super) fn remark(field: &Field, text: &At<&str>, out: &mut Findings<'_>) {
    let value = text.value.strip_prefix('!').unwrap_or(text.value);
    match field {
        Field::Method => method(value, text, out),
        Field::Query(_) if decoded(value).is_some() => {
            let message = format!("\"{}\" is compared with decoded values", shown(value));
            let label = "`%` and two digits stand for themselves here";
            let decoded = decoded(value).unwrap_or_default();
            out.warning(codes::FOREIGN_PATTERN, text.at.clone(), message, label)
                .help(format!("write \"{}\"", shown(&decoded)));
        }
        Field::Path if is_foreign(value) => {
            let message = format!("path \"{}\" is read as text", shown(value));
            let label = "`:name`, `<name>` and regular expressions have no meaning here";
            out.warning(codes::FOREIGN_PATTERN, text.at.clone(), message, label)
                .help(format!("write \"{}\"", shown(&translated(value))));
        }
        _ => {}
    }
    if let Some(odd) = odd_letter(value) {
        let message = format!("\"{}\" holds a letter that looks like ASCII", shown(value));
        let label = format!("U+{:04X} matches only itself", u32::from(odd));
        let ascii = in_ascii(text.value);
        let help = ascii.map_or_else(
            || "write that letter in ASCII".to_owned(),
            |ascii| format!("write \"{}\"", shown(&ascii)),
        );
        out.warning(codes::FOREIGN_PATTERN, text.at.clone(), message, label)
            .help(help);
    }
}

/// Returns a text with its percent-encoded ASCII characters decoded, if it has some.
fn decoded(value: &str) -> Option<String> {
    let mut parts = value.split('%');
    let mut out = parts.next()?.to_owned();
    let mut found = false;
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        if let Some(code) = code.filter(|code| (b' '..=b'~').contains(code)) {
            found = true;
            out.push(char::from(code));
            out.push_str(&part[2..]);
        } else {
            out.push('%');
            out.push_str(part);
        }
    }
    found.then_some(out)
}

fn method(value: &str, text: &At<&str>, out: &mut Findings<'_>) {
    let in_use = |method: &str| method.eq_ignore_ascii_case(value);
    if value.contains('*') || METHODS.into_iter().any(in_use) {
        return;
    }
    let lower = METHODS.map(str::to_ascii_lowercase);
    let several: Vec<_> = value.split('|').map(str::trim).collect();
    let are_methods = |parts: &[&str]| {
        let known = |part: &&str| {
            METHODS
                .iter()
                .any(|method| method.eq_ignore_ascii_case(part))
        };
        parts.len() > 1 && parts.iter().all(known)
    };
    let help = match nearest(value, lower.iter().map(String::as_str)) {
        _ if are_methods(&several) => format!("write a list: [\"{}\"]", several.join("\", \"")),
        Some(near) => format!("did you mean \"{}\"?", near.to_ascii_uppercase()),
        None => "write the method that clients send, such as \"POST\"".into(),
    };
    let message = format!("\"{}\" is not a method in use", shown(value));
    let label = "matches no request, unless clients send a method of their own";
    out.warning(codes::UNUSUAL_METHOD, text.at.clone(), message, label)
        .help(help);
}

/// Returns true if a path is written in the syntax of a router or of regular expressions.
pub(super) fn is_foreign(path: &str) -> bool {
    let of_a_router = |segment: &str| {
        segment.starts_with(':') && segment.len() > 1
            || segment.starts_with('<') && segment.ends_with('>')
    };
    path.split('/').any(of_a_router)
        || path.starts_with('^')
        || path.ends_with('$')
        || [".*", ".+", "\\", "(?", "([", "(.", "[0-9", "[a-z", "[^/"]
            .iter()
            .any(|sign| path.contains(sign))
}

/// Returns the same path in the words of this language, as far as possible: the pattern of a
/// segment in a regular expression becomes `*`.
pub(super) fn translated(path: &str) -> String {
    let path = path.trim_start_matches('^').trim_end_matches('$');
    let path = path.trim_start_matches('/');
    let segments: Vec<String> = split(path).into_iter().map(segment).collect();
    format!("/{}", segments.join("/"))
}

/// Returns the segments; a slash in brackets separates nothing.
fn split(path: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    path.split(|c: char| {
        match c {
            '[' | '(' => depth += 1,
            ']' | ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == '/' && depth == 0
    })
    .collect()
}

fn segment(text: &str) -> String {
    let word = |text: &str| -> String {
        let is_word = |c: &char| c.is_ascii_alphanumeric() || *c == '_' || *c == '-';
        text.chars().take_while(is_word).collect()
    };
    if let Some(name) = text
        .strip_prefix(':')
        .map(word)
        .filter(|name| !name.is_empty())
    {
        return format!("{{{name}}}");
    }
    if let Some(inner) = text.strip_prefix('<').and_then(|t| t.strip_suffix('>')) {
        let (kind, name) = inner.split_once(':').unwrap_or(("", inner));
        let name = word(name);
        return match kind {
            "path" => "**".into(),
            _ if name.is_empty() => "*".into(),
            _ => format!("{{{name}}}"),
        };
    }
    if [".*", ".+", "(.*)", "(.+)", ".*?"].contains(&text) {
        return "**".into();
    }
    let text = text.replace("\\.", ".").replace("\\-", "-");
    match text
        .find(['\\', '(', '[', '^', '+', '?', '|'])
        .or_else(|| text.find(".*"))
    {
        Some(at) => format!("{}*", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_other_programs_are_known_and_translated() {
        for (path, expected) in [
            ("/users/:id", "/users/{id}"),
            ("/users/:id(\\d+)/posts", "/users/{id}/posts"),
            ("/users/<int:id>", "/users/{id}"),
            ("/files/<path:name>", "/files/**"),
            ("^/api/.*$", "/api/**"),
            ("/api/.*", "/api/**"),
            ("^/v[0-9]+/login$", "/v*/login"),
            ("/users/[^/]+/posts", "/users/*/posts"),
            ("^/a\\.html$", "/a.html"),
            ("/(?P<id>[0-9]+)", "/*"),
        ] {
            assert!(is_foreign(path), "{path}");
            assert_eq!(translated(path), expected, "{path}");
        }
        for path in [
            "/users/{id}",
            "/api/**",
            "/v*/users",
            "/a:b",
            "/:",
            "/Users(1)",
            "/a.b",
            "/a+b",
            "/$metadata",
            "/caf\u{e9}",
        ] {
            assert!(!is_foreign(path), "{path}");
        }
    }
}
