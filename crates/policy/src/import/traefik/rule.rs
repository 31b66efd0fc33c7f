//! Rule: the requests of a router.
//!
//! ```text
//!   Host(`a.example`) && (PathPrefix(`/api`) || Path(`/v1`))
//!   hosts a.example      paths /api.., /v1
//! ```
//!
//! Conditions joined by `&&`, each of which may be several of one kind joined by `||`: what a
//! native `match` can express. Other rules are refused.

use crate::import::areas::{PathRange, Shape};
use crate::import::limits::quoted;

/// Maximum length of a rule in bytes.
const MAX_RULE: usize = 10_000;

/// Reads a rule.
pub(super) fn shape(rule: &str) -> Result<Shape, String> {
    if rule.len() > MAX_RULE {
        return Err(format!("the rule has more than {MAX_RULE} bytes"));
    }
    let mut shape = Shape::default();
    if rule.trim().is_empty() {
        return Err("it has no rule".to_owned());
    }
    let mut known: Vec<&str> = Vec::new();
    for term in split(inner(rule.trim()), "&&")? {
        let mut kinds: Vec<&str> = Vec::new();
        let conditions = split(inner(term), "||")?;
        let joined = conditions.len();
        for condition in conditions {
            let (kind, values) = call(condition)?;
            let kind = add(&mut shape, kind, &values)?;
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let [kind] = kinds[..] else {
            return Err(format!("`{term}` joins conditions of several kinds"));
        };
        // The fields of a `match` must all hold, and each header is a field.
        if joined > 1 && matches!(kind, "header" | "query") {
            return Err(format!(
                "`{term}`: one of several headers has no counterpart"
            ));
        }
        if known.contains(&kind) && kind != "header" && kind != "query" {
            return Err(format!("two conditions of the kind {kind} must both hold"));
        }
        known.push(kind);
    }
    if shape.paths.iter().any(PathRange::is_any) {
        shape.paths.clear();
    }
    Ok(shape)
}

/// Adds a condition; returns its kind.
fn add(shape: &mut Shape, function: &str, values: &[String]) -> Result<&'static str, String> {
    let refused = || format!("{function}(..) has no counterpart");
    let path = |text: &String| {
        let plain = PathRange::is_plain(text);
        plain
            .then(|| text.clone())
            .ok_or_else(|| format!("{function}(`{text}`) has no counterpart"))
    };
    match (function.to_ascii_lowercase().as_str(), values) {
        ("host", hosts) => {
            shape.hosts.extend(hosts.iter().cloned());
            Ok("host")
        }
        ("method", methods) => {
            shape.methods.extend(methods.iter().cloned());
            Ok("method")
        }
        ("path", paths) => {
            for text in paths {
                shape.paths.push(PathRange::Exact(path(text)?));
            }
            Ok("path")
        }
        ("pathprefix", prefixes) => {
            for text in prefixes {
                shape.paths.push(PathRange::Prefix(path(text)?));
            }
            Ok("path")
        }
        ("clientip", addresses) => {
            let field = ("ip".to_owned(), addresses.to_vec());
            match shape.more.iter_mut().find(|(name, _)| name == "ip") {
                Some((_, known)) => known.extend(field.1),
                None => shape.more.push(field),
            }
            Ok("ip")
        }
        (kind @ ("header" | "headers" | "query"), [name, value]) if !value.contains('*') => {
            let kind = if kind == "query" { "query" } else { "header" };
            let field = format!("{kind}.{}", quoted(name));
            if shape.more.iter().any(|(known, _)| *known == field) {
                return Err(refused());
            }
            shape.more.push((field, vec![value.clone()]));
            Ok(kind)
        }
        _ => Err(refused()),
    }
}

/// Splits at an operator outside of parentheses and quotes.
fn split<'t>(text: &'t str, operator: &str) -> Result<Vec<&'t str>, String> {
    let mut parts = Vec::new();
    let (mut depth, mut quote, mut start) = (0_usize, None, 0);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '`' | '"') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth = depth.checked_sub(1).ok_or("a parenthesis too many")?,
            (None, _) if depth == 0 && at >= start && text[at..].starts_with(operator) => {
                parts.push(text[start..at].trim());
                start = at + operator.len();
            }
            _ => {}
        }
    }
    if depth > 0 || quote.is_some() {
        return Err("a parenthesis or a quote has no end".to_owned());
    }
    parts.push(text[start..].trim());
    Ok(parts)
}

/// Returns the text within parentheses that enclose all of it.
fn inner(text: &str) -> &str {
    let within = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    within
        .filter(|within| split(within, "||").is_ok())
        .unwrap_or(text)
}

/// Reads `Host(`a`, `b`)`.
fn call(text: &str) -> Result<(&str, Vec<String>), String> {
    let refused = || format!("`{text}` has no counterpart");
    let (name, rest) = text.split_once('(').ok_or_else(refused)?;
    let arguments = rest.strip_suffix(')').ok_or_else(refused)?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(refused());
    }
    let mut values = Vec::new();
    for argument in split(arguments, ",")? {
        let quoted = [('`', '`'), ('"', '"')]
            .iter()
            .find_map(|(open, close)| argument.strip_prefix(*open)?.strip_suffix(*close));
        values.push(quoted.ok_or_else(refused)?.to_owned());
    }
    Ok((name, values))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rule: &str) -> String {
        match shape(rule) {
            Ok(shape) => format!(
                "{:?} {:?} {:?} {:?}",
                shape.hosts, shape.methods, shape.paths, shape.more
            ),
            Err(why) => why,
        }
    }

    #[test]
    fn rules_are_read_or_refused() {
        for (rule, expected) in [
            ("Host(`a`)", r#"["a"] [] [] []"#),
            ("Host(`a`) || Host(`b`)", r#"["a", "b"] [] [] []"#),
            (
                "(Host(`a`) && PathPrefix(`/x`))",
                r#"["a"] [] [Prefix("/x")] []"#,
            ),
            ("Host(`a`) && PathPrefix(`/`)", r#"["a"] [] [] []"#),
            (
                "Method(`GET`) && (Path(`/a`) || PathPrefix(`/b`))",
                r#"[] ["GET"] [Exact("/a"), Prefix("/b")] []"#,
            ),
            (
                "Header(`X-A`, `1`)",
                r#"[] [] [] [("header.\"X-A\"", ["1"])]"#,
            ),
            (
                "Host(`a`) || Path(`/b`)",
                "`Host(`a`) || Path(`/b`)` joins conditions of several kinds",
            ),
            (
                "Header(`X-A`, `1`) || Header(`X-B`, `2`)",
                "`Header(`X-A`, `1`) || Header(`X-B`, `2`)`: one of several headers has no counterpart",
            ),
            ("!Host(`a`)", "`!Host(`a`)` has no counterpart"),
            ("HostRegexp(`.*`)", "HostRegexp(..) has no counterpart"),
            (
                "Path(`/a`) && Path(`/b`)",
                "two conditions of the kind path must both hold",
            ),
            ("Host(`a`", "a parenthesis or a quote has no end"),
            ("", "it has no rule"),
        ] {
            assert_eq!(read(rule), expected, "{rule}");
        }
    }
}
