//! Document: YAML, JSON and TOML as one tree of nodes, and the readers of its fields.

use toml::de::{DeTable, DeValue};

use crate::config::{Findings, codes};
use crate::envoy::yaml::{Content, YamlNode};

/// Maximum size of a TOML file in bytes.
const MAX_BYTES: usize = 1 << 20;
/// Maximum depth of lists and tables within one another in a TOML file.
const MAX_DEPTH: usize = 64;

/// Parses a TOML file; `None` if it cannot be read, which is reported.
pub(super) fn parse_toml(text: &str, out: &mut Findings<'_>) -> Option<YamlNode> {
    if text.len() > MAX_BYTES {
        let message = format!("the file has {} bytes", text.len());
        out.error(codes::TOO_LARGE, 0..0, message, "at most 1 MiB");
        return None;
    }
    match DeTable::parse(text) {
        Ok(table) => Some(toml_table(table.get_ref(), table.span(), 0)),
        Err(error) => {
            let at = error.span().unwrap_or_default();
            out.error(
                codes::SYNTAX,
                at,
                "this is not TOML",
                error.message().to_owned(),
            );
            None
        }
    }
}

fn toml_table(table: &DeTable<'_>, at: std::ops::Range<usize>, depth: usize) -> YamlNode {
    let each = table.iter().map(|(key, value)| {
        let name = YamlNode {
            at: key.span(),
            content: Content::Quoted(key.get_ref().to_string()),
        };
        (name, toml_value(value.get_ref(), value.span(), depth + 1))
    });
    let content = Content::Table(if depth < MAX_DEPTH {
        each.collect()
    } else {
        Vec::new()
    });
    YamlNode { at, content }
}

fn toml_value(value: &DeValue<'_>, at: std::ops::Range<usize>, depth: usize) -> YamlNode {
    let content = match value {
        DeValue::Table(table) => return toml_table(table, at, depth),
        DeValue::Array(list) if depth < MAX_DEPTH => {
            let each = list.iter();
            let each = each.map(|item| toml_value(item.get_ref(), item.span(), depth + 1));
            Content::List(each.collect())
        }
        DeValue::Array(_) => Content::List(Vec::new()),
        DeValue::String(text) => Content::Quoted(text.to_string()),
        DeValue::Integer(number) => Content::Plain(number.to_string()),
        DeValue::Float(number) => Content::Plain(number.to_string()),
        DeValue::Boolean(flag) => Content::Plain(flag.to_string()),
        DeValue::Datetime(time) => Content::Quoted(time.to_string()),
    };
    YamlNode { at, content }
}

/// Returns a field of a table, without regard to upper and lower case.
pub(super) fn field<'n>(node: &'n YamlNode, name: &str) -> Option<&'n YamlNode> {
    let is_named = |key: &YamlNode| scalar(key).is_some_and(|key| key.eq_ignore_ascii_case(name));
    let found = fields(node).iter().find(|(key, _)| is_named(key));
    found
        .map(|(_, value)| value)
        .filter(|value| !value.is_null())
}

/// Returns a field below other fields: `http`, `routers`.
pub(super) fn below<'n>(node: &'n YamlNode, names: &[&str]) -> Option<&'n YamlNode> {
    names.iter().try_fold(node, |node, name| field(node, name))
}

/// Returns the fields of a table; none of any other node.
pub(super) fn fields(node: &YamlNode) -> &[(YamlNode, YamlNode)] {
    match &node.content {
        Content::Table(fields) => fields,
        _ => &[],
    }
}

/// Returns the fields of a table by name.
pub(super) fn named(node: &YamlNode) -> impl Iterator<Item = (&str, &YamlNode)> {
    let fields = fields(node).iter();
    fields.filter_map(|(key, value)| Some((scalar(key)?, value)))
}

/// Returns the items of a list field; an empty slice if there is no such list.
pub(super) fn items<'n>(node: &'n YamlNode, name: &str) -> &'n [YamlNode] {
    match field(node, name).map(|node| &node.content) {
        Some(Content::List(list)) => list,
        _ => &[],
    }
}

/// Returns the texts of a list field.
pub(super) fn texts(node: &YamlNode, name: &str) -> Vec<String> {
    let items = items(node, name).iter();
    items.filter_map(scalar).map(str::to_owned).collect()
}

/// Returns a field that is a text, and not an empty one.
pub(super) fn text<'n>(node: &'n YamlNode, name: &str) -> Option<&'n str> {
    scalar(field(node, name)?).filter(|text| !text.is_empty())
}

/// Returns true if a field is written as `true`.
pub(super) fn is_true(node: &YamlNode, name: &str) -> bool {
    text(node, name).is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

pub(super) fn scalar(node: &YamlNode) -> Option<&str> {
    match &node.content {
        Content::Plain(text) | Content::Quoted(text) => Some(text),
        _ => None,
    }
}
