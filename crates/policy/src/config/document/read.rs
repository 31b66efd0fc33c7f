//! Read: values out of a table with a shape that has been checked.
//!
//! ```text
//!   fields/   name, shape, example, ..      check.rs compares the text with it
//!      ^
//!      '--- table.number("max")             a reader: its bounds are those of the shape
//! ```
//!
//! A value of the wrong type reads as `None`: `check` has reported it. In builds with debug
//! assertions, a reader panics if it names a field that the table does not list, or one of another
//! shape. So every test that reads a policy compares the readers with the fields; `schema.rs` tests
//! that every field has a reader.

use std::borrow::Cow;
use std::fmt;

use ratekeeper_core::Nanos;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::scalar;
use super::shape::{Shape, TableSpec};
use crate::config::{Findings, Spot, codes, error, shown};
use crate::{Secret, is_token};

/// Maximum number of characters of a header name.
const MAX_HEADER: usize = 100;

/// A value of the document, with its place.
pub(crate) type SpannedValue<'t> = Spanned<DeValue<'t>>;

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'a, T> {
    pub(crate) value: T,
    pub(crate) at: Spot<'a>,
}

/// A text of the file.
pub(crate) type Text<'a> = At<'a, &'a str>;
/// A value of the document.
pub(crate) type Node<'a> = At<'a, &'a DeValue<'a>>;

impl<'a, T> At<'a, T> {
    pub(crate) fn new(value: T, at: Spot<'a>) -> Self {
        Self { value, at }
    }
}

impl<'a> Spot<'a> {
    /// Returns a value of the same document.
    pub(crate) fn node(self, node: &'a SpannedValue<'a>) -> Node<'a> {
        At::new(node.get_ref(), self.of(node.span()))
    }

    /// Returns the name of a field of the same document.
    pub(crate) fn name(self, name: &'a Spanned<DeString<'a>>) -> Text<'a> {
        At::new(name.get_ref(), self.of(name.span()))
    }
}

impl<'a> Node<'a> {
    /// Returns the values of a list, or the single one.
    pub(crate) fn each(self) -> impl Iterator<Item = Self> {
        let (values, single) = match self.value {
            DeValue::Array(values) => (&values[..], None),
            _ => (&[][..], Some(self)),
        };
        let values = values.iter().map(move |node| self.at.node(node));
        single.into_iter().chain(values)
    }

    /// Returns the fields of a table; empty for another value.
    pub(crate) fn fields(self) -> impl Iterator<Item = (Text<'a>, Self)> {
        let fields = self.value.as_table().into_iter().flatten();
        fields.map(move |(name, value)| (self.at.name(name), self.at.node(value)))
    }

    /// Returns the number of values of a list, or of names in a table.
    pub(super) fn len(self) -> usize {
        match self.value {
            DeValue::Array(values) => values.len(),
            DeValue::Table(names) => names.len(),
            _ => 1,
        }
    }

    /// Returns a string.
    pub(crate) fn text(self) -> Option<Text<'a>> {
        Some(At::new(self.value.as_str()?, self.at))
    }

    /// Returns a string, or the digits of a whole number.
    pub(crate) fn text_or_number(self) -> Option<At<'a, Cow<'a, str>>> {
        let text = match self.value.as_str() {
            Some(text) => text.into(),
            None => whole(self.value)?.to_string().into(),
        };
        Some(At::new(text, self.at))
    }
}

/// Formats a text as messages show it.
impl<T: AsRef<str>> fmt::Display for At<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.value.as_ref()))
    }
}

/// A table of the document, with the fields that it may hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table<'a> {
    written: &'a DeTable<'a>,
    pub(super) spec: &'static TableSpec,
    at: Spot<'a>,
    /// Name of the list that holds it; empty if none does.
    list: &'static str,
    /// Its index in that list.
    index: usize,
}

impl<'a> Table<'a> {
    /// Returns the table of a whole file.
    pub(crate) fn root(
        written: &'a DeTable<'a>,
        spec: &'static TableSpec,
        findings: &'a Findings<'a>,
    ) -> Self {
        Self::new(written, spec, findings.at(0..0))
    }

    pub(super) fn new(written: &'a DeTable<'a>, spec: &'static TableSpec, at: Spot<'a>) -> Self {
        Self {
            written,
            spec,
            at,
            list: "",
            index: 0,
        }
    }

    /// Returns the place of the table; empty for that of a whole file.
    pub(crate) fn at(self) -> Spot<'a> {
        self.at
    }

    /// Returns the findings about its text.
    pub(crate) fn findings(self) -> &'a Findings<'a> {
        self.at.findings
    }

    /// Returns the names and values as they are written.
    pub(crate) fn written(self) -> &'a DeTable<'a> {
        self.written
    }

    /// Returns the fields that are written, known or not.
    pub(crate) fn fields(self) -> impl Iterator<Item = (Text<'a>, Node<'a>)> {
        let fields = self.written.iter();
        fields.map(move |(name, value)| (self.at.name(name), self.at.node(value)))
    }

    /// Returns true if no field is written.
    pub(crate) fn is_empty(self) -> bool {
        self.written.is_empty()
    }

    /// Returns the same table with other values, and findings of their own.
    pub(crate) fn with<'b>(
        self,
        written: &'b DeTable<'b>,
        findings: &'b Findings<'b>,
    ) -> Table<'b> {
        let at = findings.at(self.at.range());
        Table {
            written,
            at,
            ..self
        }
    }

    /// Returns true if tables of this kind may hold the field, for readers of several kinds.
    pub(crate) fn lists(self, name: &str) -> bool {
        self.spec.field(name).is_some()
    }

    /// Returns a field, whatever its type.
    pub(crate) fn get(self, name: &str) -> Option<Node<'a>> {
        debug_assert!(
            self.spec.field(name).is_some(),
            "`{name}` is read, but is not a field of {}",
            self.spec.what
        );
        Some(self.at.node(self.written.get(name)?))
    }

    /// Returns true if a field is written.
    pub(crate) fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns the first of `names` that is written.
    pub(crate) fn first_of(self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// Returns the place of a field; empty if it is not written.
    pub(crate) fn place(self, name: &str) -> Spot<'a> {
        self.get(name).map_or(self.at.of(0..0), |node| node.at)
    }

    /// Returns a field that is written, with a property of its shape.
    fn find<T>(
        self,
        name: &str,
        property: impl Fn(&'static Shape) -> Option<T>,
    ) -> Option<(Node<'a>, T)> {
        if !cfg!(debug_assertions) && !self.written.contains_key(name) {
            return None; // most fields are not written, and need no search for their shape
        }
        let field = self.spec.field(name);
        let found = field.and_then(|field| field.shape.find(property));
        debug_assert!(
            found.is_some(),
            "`{name}` of {} is read as another type than that of its field",
            self.spec.what
        );
        Some((self.at.node(self.written.get(name)?), found?))
    }

    /// Reads a string; `None` for one that is no value of its kind, which is reported.
    pub(crate) fn text(self, name: &str) -> Option<Text<'a>> {
        let (node, shape) = self.find(name, |shape| shape.is_text().then_some(shape))?;
        node.text().filter(|text| match shape {
            Shape::Scalar(scalar) => scalar.accepts(text.value),
            _ => true,
        })
    }

    /// Reads a string as text of another type, such as a path.
    pub(crate) fn owned<T: From<&'a str>>(self, name: &str) -> Option<T> {
        Some(self.text(name)?.value.into())
    }

    /// Reads a word; `None` if it is unknown, which is reported elsewhere.
    pub(crate) fn word<T: std::str::FromStr>(self, name: &str) -> Option<T> {
        self.text(name)?.value.parse().ok()
    }

    /// Reads a duration.
    pub(crate) fn span(self, name: &str) -> Option<Nanos> {
        self.text(name)?.value.parse().ok()
    }

    /// Reads a percentage.
    pub(crate) fn percent(self, name: &str) -> Option<u32> {
        scalar::percentage(self.text(name)?.value)
    }

    /// Reads a number of bytes.
    pub(crate) fn size(self, name: &str) -> Option<usize> {
        usize::try_from(scalar::bytes(self.text(name)?.value)?).ok()
    }

    /// Reads the source of a secret.
    pub(crate) fn secret(self, name: &str) -> Option<Secret> {
        scalar::secret(self.text(name)?.value)
    }

    /// Reads a factor, in thousandths.
    pub(crate) fn factor(self, name: &str) -> Option<u32> {
        let (node, most) = self.find(name, |shape| match shape {
            Shape::Factor(most) => Some(*most),
            _ => None,
        })?;
        factor(node.value, most)
    }

    /// Reads a whole number within the bounds of the field.
    pub(crate) fn number<T: TryFrom<u64>>(self, name: &str) -> Option<T> {
        let (node, bounds) = self.find(name, Shape::bounds)?;
        debug_assert!(
            T::try_from(*bounds.end()).is_ok(),
            "the maximum of `{name}` is none of the type that it is read as"
        );
        let number = whole(node.value).filter(|number| bounds.contains(number))?;
        T::try_from(number).ok()
    }

    /// Reads a whole number as [`number`](Self::number) does; `usual` if none is written.
    pub(crate) fn number_or<T: TryFrom<u64>>(self, name: &str, usual: T) -> Option<T> {
        self.get(name).map_or(Some(usual), |_| self.number(name))
    }

    /// Reads `true` or `false`.
    pub(crate) fn flag(self, name: &str) -> Option<bool> {
        let (node, ()) = self.find(name, |shape| matches!(shape, Shape::Flag).then_some(()))?;
        node.value.as_bool()
    }

    /// Reads a table.
    pub(crate) fn table(self, name: &str) -> Option<Self> {
        let (node, spec) = self.find(name, Shape::table)?;
        Some(Table::new(node.value.as_table()?, spec, node.at))
    }

    /// Reads a table of names of the writer's choice.
    pub(crate) fn names(
        self,
        name: &str,
    ) -> Option<impl Iterator<Item = (Text<'a>, Node<'a>)> + use<'a>> {
        let (node, ()) = self.find(name, |shape| matches!(shape, Shape::Map(..)).then_some(()))?;
        node.value.is_table().then(|| node.fields())
    }

    /// Returns the values of a list, or a single one; at most as many as the field may have.
    pub(crate) fn values(self, name: &str) -> impl Iterator<Item = Node<'a>> + use<'a> {
        let found = self.find(name, Shape::most).into_iter();
        found.flat_map(|(node, most)| node.each().take(most))
    }

    /// Returns the strings of a list, or a single one.
    pub(crate) fn texts(self, name: &str) -> Vec<Text<'a>> {
        self.values(name).filter_map(Node::text).collect()
    }

    /// Returns the tables of `[[name]]`, or a single one.
    pub(crate) fn tables(self, list: &'static str) -> impl Iterator<Item = Self> {
        let spec = self.find(list, Shape::tables).map(|(_, spec)| spec);
        let nodes = self.values(list).enumerate();
        nodes.filter_map(move |(index, node)| {
            let table = Table::new(node.value.as_table()?, spec?, node.at);
            Some(Table {
                list,
                index,
                ..table
            })
        })
    }

    /// Returns the tables of `[name.NAME]`, with their names.
    pub(crate) fn named_tables(self, name: &str) -> impl Iterator<Item = (Text<'a>, Table<'a>)> {
        let found = self.find(name, |shape| match shape {
            Shape::NamedTables(of, most) => Some((*of, *most)),
            _ => None,
        });
        found.into_iter().flat_map(|(node, (spec, most))| {
            let tables = node.fields().take(most);
            tables.filter_map(move |(name, node)| {
                Some((name, Table::new(node.value.as_table()?, spec, node.at)))
            })
        })
    }
}

/// Formats a table of a list by its name.
impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&called(self.list, self.index, self.written))
    }
}

/// Returns ``limit `per-ip` ``, or `limit 3` if it has no name.
pub(super) fn called(kind: &str, index: usize, table: &DeTable<'_>) -> String {
    match table.get("name").and_then(|name| name.get_ref().as_str()) {
        Some(name) => format!("{kind} `{}`", shown(name)),
        None => format!("{kind} {}", index + 1),
    }
}

/// Returns a header's name in lower case; reports an invalid one (RFC 9110, section 5.1).
pub(crate) fn header_name(text: &Text<'_>) -> Option<String> {
    let name = text.value;
    if !name.is_empty() && name.len() <= MAX_HEADER && name.bytes().all(is_token) {
        return Some(name.to_ascii_lowercase());
    }
    let message = format!("\"{text}\" cannot be the name of a header");
    let label = format!("expected 1 to {MAX_HEADER} letters, digits or hyphens");
    error(codes::HEADER_NAME, text.at, message, label)
        .help("write the name alone, as in \"x-forwarded-for\"");
    None
}

/// Returns a factor up to `most`, in thousandths.
pub(super) fn factor(value: &DeValue<'_>, most: u64) -> Option<u32> {
    let text = match value {
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        _ => return None,
    };
    scalar::thousandths(&text, most)
}

/// Returns an integer of the document, if it is not negative and not huge.
pub(crate) fn whole(value: &DeValue<'_>) -> Option<u64> {
    let number = value.as_integer()?;
    u64::from_str_radix(number.as_str(), number.radix()).ok()
}
