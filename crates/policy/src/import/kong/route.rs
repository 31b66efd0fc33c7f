//! Route: the requests of a route of Kong, and its rank among the others.

use crate::envoy::yaml::{Content, YamlNode};
use crate::import::areas::{PathRange, Shape};
use crate::import::document::{field, fields, scalar, texts};
use crate::import::limits::quoted;

/// Rank of a kind of conditions of a route, above those of all paths.
const KIND_RANK: usize = 1 << 32;

/// Returns the requests of a route.
pub(super) fn shape(route: &YamlNode) -> Result<Shape, String> {
    let mut paths = Vec::new();
    for path in texts(route, "paths") {
        if !PathRange::is_plain(&path) {
            return Err(format!("path {path}: only prefixes are translated"));
        }
        paths.push(PathRange::Prefix(path));
    }
    if paths.iter().any(PathRange::is_any) {
        paths.clear();
    }
    let mut more = Vec::new();
    let headers = field(route, "headers").map(fields).unwrap_or_default();
    for (name, values) in headers {
        let name = scalar(name).unwrap_or_default();
        let values = match &values.content {
            Content::List(list) => list.iter().filter_map(scalar).collect(),
            _ => scalar(values).into_iter().collect::<Vec<_>>(),
        };
        let values = values.into_iter().map(str::to_owned).collect();
        more.push((format!("header.{}", quoted(name)), values));
    }
    if let Some(other) = ["snis", "sources", "destinations", "expression"]
        .iter()
        .find(|name| field(route, name).is_some())
    {
        return Err(format!("{other} has no counterpart"));
    }
    Ok(Shape {
        methods: texts(route, "methods"),
        hosts: texts(route, "hosts"),
        paths,
        more,
        ..Shape::default()
    })
}

/// Returns the rank of a route: Kong tries those with conditions of more kinds first, then those
/// with longer paths.
pub(super) fn rank(route: &YamlNode) -> usize {
    let paths = texts(route, "paths");
    let longest = paths.iter().map(String::len).max().unwrap_or_default();
    let kinds = ["methods", "hosts", "paths", "headers"].iter();
    let kinds = kinds.filter(|kind| field(route, kind).is_some()).count();
    1 + longest + kinds * KIND_RANK
}
