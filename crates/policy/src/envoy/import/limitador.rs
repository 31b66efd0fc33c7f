//! Limitador: limits of Kuadrant's rate limiter as native limits.
//!
//! ```text
//!   - namespace: edge                                   domain = "edge"
//!     max_value: 10                                     limit = "10/60s"
//!     seconds: 60
//!     conditions: ["descriptors[0].method == 'GET'"]    descriptor.method = "GET"
//!     variables: ["descriptors[0]['user']"]             key = ["descriptor:user"]
//! ```
//!
//! Conditions are comparisons of one entry with one text, in the form above or in the older one,
//! `method == GET`; others are not supported.

use crate::config::{Diagnostic, Findings, codes};
use crate::envoy::yaml::{self, Content, YamlNode};
use crate::import::Imported;
use crate::import::document::{field, scalar, text};
use crate::import::limits::{ImportedLimit, Writer, quoted};

const HEADING: &str = "\
Made by `ratekeeper import --from limitador`. Lines that begin with UNSUPPORTED name features
that a native policy does not support.

A native limit is for descriptors that have exactly the entries it names; a limit of Limitador
is for descriptors that have at least its entries. Give each combination that callers send a
limit of its own.";

/// Converts the limits of a file to native limits.
///
/// # Errors
/// Returns findings if the text is not a list of limits.
pub fn limitador(text: &str) -> Result<Imported, Vec<Diagnostic>> {
    let mut out = Findings::new(text);
    let node = yaml::parse(text, &mut out);
    let list = node.as_ref().and_then(|node| limits(node, &mut out));
    if out.has_errors() {
        return Err(out.finish());
    }
    let mut writer = Writer::new(HEADING);
    for (number, limit) in list.into_iter().flatten().enumerate() {
        match draft(number, limit) {
            Ok(draft) => {
                writer.limit(&draft);
            }
            Err(why) => writer.unsupported(&why),
        }
    }
    Ok(writer.finish())
}

/// Returns the list of limits: the file itself, or its field `limits`.
fn limits<'n>(node: &'n YamlNode, out: &mut Findings<'_>) -> Option<&'n [YamlNode]> {
    let list = field(node, "limits").unwrap_or(node);
    if let Content::List(list) = &list.content {
        return Some(list);
    }
    let message = "a configuration of Limitador must be a list of limits";
    out.error(codes::TYPE, list.at.clone(), message, "expected a list")
        .help("begin each limit with `- namespace: NAME`");
    None
}

fn draft(number: usize, limit: &YamlNode) -> Result<ImportedLimit, String> {
    let namespace = text(limit, "namespace").unwrap_or_default();
    let named = || format!("{namespace} {}", number + 1);
    let called = text(limit, "name").map_or_else(named, str::to_owned);
    let fail = |why: &str| format!("{called}: not imported: {why}");
    let number = |name: &str| text(limit, name).and_then(|text| text.parse::<u32>().ok());
    let (Some(most), Some(seconds)) = (number("max_value"), number("seconds")) else {
        return Err(fail("`max_value` and `seconds` must be whole numbers"));
    };
    if most == 0 {
        return Err(fail("a limit of 0, which refuses every request"));
    }
    let mut draft = ImportedLimit {
        matches: vec![("domain".to_owned(), vec![namespace.to_owned()])],
        lines: vec![
            format!("limit = \"{most}/{seconds}s\""),
            "algorithm = \"quota-reset\"".to_owned(),
        ],
        ..ImportedLimit::default()
    };
    for condition in texts(limit, "conditions") {
        let Some((entry, value)) = comparison(condition) else {
            return Err(fail(&format!("unsupported condition `{condition}`")));
        };
        let field = format!("descriptor.{}", quoted(&entry));
        match draft.matches.iter_mut().find(|(known, _)| *known == field) {
            Some((_, values)) if values.iter().chain([&value]).all(|v| v.starts_with('!')) => {
                values.push(value);
            }
            Some(_) => return Err(fail("two conditions on one entry")),
            None => draft.matches.push((field, vec![value])),
        }
    }
    for variable in texts(limit, "variables") {
        let Some(entry) = entry(variable) else {
            return Err(fail(&format!("unsupported variable `{variable}`")));
        };
        draft.key.push(format!("descriptor:{entry}"));
    }
    if let Content::Table(fields) = &limit.content {
        let known = [
            "namespace",
            "name",
            "max_value",
            "seconds",
            "conditions",
            "variables",
        ];
        for (key, _) in fields {
            let name = scalar(key).unwrap_or("?");
            if !known.contains(&name) {
                draft.lost.push(format!("unsupported field `{name}`"));
            }
        }
    }
    draft.called = called;
    Ok(draft)
}

/// Reads `descriptors[0].a == 'b'`, `descriptors[0]['a'] != "b"`, `a == b`: returns the entry and
/// its value, with `!` before an excluded value.
fn comparison(text: &str) -> Option<(String, String)> {
    let (left, right, negated) = match (text.split_once("=="), text.split_once("!=")) {
        (Some((left, right)), None) => (left, right, ""),
        (None, Some((left, right))) => (left, right, "!"),
        _ => return None,
    };
    let entry = entry(left)?;
    let right = right.trim();
    let unquoted = [('\'', '\''), ('"', '"')].iter().find_map(|(open, close)| {
        let inner = right.strip_prefix(*open)?.strip_suffix(*close)?;
        (!inner.contains(['\'', '"', '\\'])).then_some(inner)
    });
    let bare = |text: &str| !text.is_empty() && text.chars().all(is_bare);
    let value = unquoted.or_else(|| bare(right).then_some(right))?;
    if value.is_empty() || value.starts_with('!') || value.contains('*') {
        return None;
    }
    Some((entry, format!("{negated}{value}")))
}

/// Reads `descriptors[0].a`, `descriptors[0]['a']`, `a`.
fn entry(text: &str) -> Option<String> {
    let text = text.trim();
    let name = match text.strip_prefix("descriptors[0]") {
        Some(rest) => rest.strip_prefix('.').or_else(|| {
            let inner = rest.strip_prefix('[')?.strip_suffix(']')?;
            let single = || inner.strip_prefix('\'')?.strip_suffix('\'');
            let double = || inner.strip_prefix('"')?.strip_suffix('"');
            single().or_else(double)
        })?,
        None => text,
    };
    (!name.is_empty() && name.chars().all(is_bare)).then(|| name.to_owned())
}

fn is_bare(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '/' | ':')
}

fn texts<'n>(node: &'n YamlNode, name: &str) -> Vec<&'n str> {
    let list = field(node, name).map(|node| match &node.content {
        Content::List(list) => &list[..],
        _ => &[],
    });
    // An item that is no text is an unsupported condition.
    let each = list.unwrap_or_default().iter();
    each.map(|node| scalar(node).unwrap_or("")).collect()
}
