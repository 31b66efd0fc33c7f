//! Read: values out of a table with a shape that has been checked.
//!
//! A value of the wrong type reads as `None`: `check` has reported it.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fields::MAX_VALUES;

/// A value of the document, with its place.
pub(super) type SpannedValue<'t> = Spanned<DeValue<'t>>;

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    pub(super) at: Range<usize>,
}

impl<T> At<T> {
    pub(super) fn new(value: T, at: Range<usize>) -> Self {
        Self { value, at }
    }
}

/// Reads a string.
pub(super) fn text<'a>(table: &'a DeTable<'_>, name: &str) -> Option<At<&'a str>> {
    let node = table.get(name)?;
    Some(At::new(node.get_ref().as_str()?, node.span()))
}

/// Reads a number within `1..=most`.
pub(super) fn number(table: &DeTable<'_>, name: &str, most: u64) -> Option<At<u64>> {
    let node = table.get(name)?;
    let number = whole(node).filter(|number| (1..=most).contains(number))?;
    Some(At::new(number, node.span()))
}

/// Returns an integer of the document, if it is not negative and not huge.
pub(super) fn whole(node: &SpannedValue<'_>) -> Option<u64> {
    let number = node.get_ref().as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// Reads `true` or `false`.
pub(super) fn flag(table: &DeTable<'_>, name: &str) -> Option<bool> {
    table.get(name)?.get_ref().as_bool()
}

/// Reads a table.
pub(super) fn table<'a, 't>(table: &'a DeTable<'t>, name: &str) -> Option<At<&'a DeTable<'t>>> {
    let node = table.get(name)?;
    Some(At::new(node.get_ref().as_table()?, node.span()))
}

/// Returns the strings of a list, or a single one; at most 1,000.
pub(super) fn texts<'a>(node: &'a SpannedValue<'_>) -> Vec<At<&'a str>> {
    texts_up_to(MAX_VALUES, node)
}

/// Returns the first `most` strings of a list, or a single one.
pub(super) fn texts_up_to<'a>(most: usize, node: &'a SpannedValue<'_>) -> Vec<At<&'a str>> {
    let text = |node: &'a SpannedValue<'_>| Some(At::new(node.get_ref().as_str()?, node.span()));
    match node.get_ref() {
        DeValue::Array(values) => values.iter().take(most).filter_map(text).collect(),
        _ => text(node).into_iter().collect(),
    }
}

/// Returns the first `most` strings and whole numbers of a list, or a single one, as text.
pub(super) fn numbers_up_to(most: usize, node: &SpannedValue<'_>) -> Vec<At<String>> {
    let text = |node: &SpannedValue<'_>| {
        let number = || whole(node).map(|number| number.to_string());
        let text = node.get_ref().as_str().map(str::to_owned).or_else(number);
        Some(At::new(text?, node.span()))
    };
    match node.get_ref() {
        DeValue::Array(values) => values.iter().take(most).filter_map(text).collect(),
        _ => text(node).into_iter().collect(),
    }
}

/// Returns the tables of `[[name]]`, with their index.
pub(super) fn tables<'a, 't>(
    table: &'a DeTable<'t>,
    name: &str,
    most: usize,
) -> impl Iterator<Item = (usize, At<&'a DeTable<'t>>)> {
    let list = table.get(name).and_then(|node| node.get_ref().as_array());
    let read = |(index, node): (usize, &'a SpannedValue<'t>)| {
        Some((index, At::new(node.get_ref().as_table()?, node.span())))
    };
    list.into_iter()
        .flat_map(|list| list.iter())
        .take(most)
        .enumerate()
        .filter_map(read)
}
