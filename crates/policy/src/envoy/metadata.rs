//! Metadata: the free-form table of a descriptor, as JSON.

use serde_json::{Map, Number, Value};

use super::read::not_a_name;
use super::yaml::{Content, YamlNode, flag, is_null, is_number};
use crate::config::Findings;

/// Returns the table as JSON; keys that are no scalars are reported and left out.
pub(super) fn metadata(node: &YamlNode, out: &mut Findings<'_>) -> Map<String, Value> {
    let Content::Table(fields) = &node.content else {
        return Map::new();
    };
    let mut map = Map::new();
    for (key, value) in fields {
        let (Content::Plain(name) | Content::Quoted(name)) = &key.content else {
            not_a_name(key, key.kind(), out);
            continue;
        };
        map.insert(name.clone(), json(value, out));
    }
    map
}

fn json(node: &YamlNode, out: &mut Findings<'_>) -> Value {
    match &node.content {
        Content::Plain(text) => scalar(text),
        Content::Quoted(text) => Value::String(text.clone()),
        Content::List(list) => list.iter().map(|node| json(node, out)).collect(),
        Content::Table(_) => Value::Object(metadata(node, out)),
    }
}

fn scalar(text: &str) -> Value {
    if is_null(text) {
        return Value::Null;
    }
    if let Some(flag) = flag(text) {
        return Value::Bool(flag);
    }
    if is_number(text) {
        let whole = text.parse::<i64>().ok().map(Number::from);
        let float = || text.parse().ok().and_then(Number::from_f64);
        if let Some(number) = whole.or_else(float) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}
