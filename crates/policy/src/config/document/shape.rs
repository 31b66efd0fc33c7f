//! Shape: the valid forms of a value of the policy file, as data.
//!
//! ```text
//!                    fields/: one table of fields
//!               |                   |                      |
//!            check.rs            read.rs               schema.rs
//!      text against the table    bounds of readers    the table as JSON Schema
//! ```
//!
//! The parser and the schema read the same table, so they cannot disagree about the fields, about
//! those that are required, and about their types. A check that a shape cannot express (that a
//! time zone exists, that an address is one) is made where the value is read.

use std::fmt;
use std::ops::RangeInclusive;

use ratekeeper_core::{Nanos, Quota};
use toml::de::DeValue;

use super::scalar::{SHORTEST, Scalar};

/// A table of the file: `[client_ip]`, one `[[limit]]`, `bucket = { .. }`.
#[derive(Debug)]
pub(crate) struct TableSpec {
    /// After "not a field of": `a limit`, `the policy`.
    pub(crate) what: &'static str,
    /// Fields that it may hold.
    pub(crate) fields: &'static [FieldSpec],
    /// Exactly one of these fields must be there.
    pub(crate) one_of: &'static [&'static str],
}

/// Declares tables: each field with its need, its shape, an example, and a sentence about it.
///
/// ```text
///   NAME = "what" {
///       required count: whole(1, 60), "6", "Number of sub-buckets.";
///       shared OTHER.named("status");        the same field as in another table
///   }
/// ```
macro_rules! fields {
    ($($(#[$doc:meta])* $vis:vis $spec:ident = $what:literal $(one of $one_of:ident)? {
        $($need:ident $name:ident $(: $shape:expr, $example:literal, $about:literal)?
            $({ $($field:ident)* })?;)*
    })*) => {$(
        $(#[$doc])* $vis static $spec: $crate::config::document::shape::TableSpec = $crate::config::document::shape::TableSpec {
            what: $what,
            fields: &[$(
                $($crate::config::document::shape::$need(stringify!($name), $shape, $example, $about))?
                $($($name.named(stringify!($field))),*)?
            ),*],
            one_of: fields!(@one_of $($one_of)?),
        };
    )*};
    (@one_of) => { &[] };
    (@one_of $names:ident) => { $names };
}
pub(crate) use fields;

impl TableSpec {
    /// Returns the field of that name, for another table that shares it.
    pub(crate) const fn named(&self, name: &str) -> FieldSpec {
        let mut at = 0;
        while !is_equal(self.fields[at].name, name) {
            at += 1;
        }
        self.fields[at]
    }

    /// Returns the field of that name.
    pub(crate) fn field(&self, name: &str) -> Option<&'static FieldSpec> {
        self.fields.iter().find(|field| field.name == name)
    }
}

const fn is_equal(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

/// One field of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FieldSpec {
    pub(crate) name: &'static str,
    pub(crate) need: Need,
    pub(crate) shape: Shape,
    /// A value, as it stands in the file.
    pub(crate) example: &'static str,
    /// One sentence, for the schema.
    pub(crate) about: &'static str,
}

/// Requirement of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Need {
    Required,
    Optional,
}

/// Valid form of a value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// A string; the pattern is for the schema, because the parser reports the exact reason.
    Text(Option<&'static str>),
    /// A string that reads itself.
    Scalar(Scalar),
    /// A whole number, from one number to another.
    Whole(u64, u64),
    /// A whole number; in a limit with a `unit` also a string with decimals, which is converted
    /// before it is checked.
    Amount(u64, u64),
    /// A number from 1 to another, whole or with decimals; the parser reports how many.
    Factor(u64),
    /// `true` or `false`.
    Flag,
    /// A date, or a date and a time, also as a string: JSON has no dates.
    Moment,
    /// One of a few words.
    Word(&'static [&'static str]),
    /// A list of strings, from one to so many.
    List(usize),
    /// A string, or a list of them.
    Texts(usize),
    /// A string or a number, or a list of them: `asn = ["AS3320", 15169]`.
    Numbers(usize),
    /// A value of one shape, or a list of them.
    Values(&'static Self, usize),
    /// Names of the writer's choice, each with a value of one shape: `plans`, `header.x-tier`.
    Map(&'static Self, usize),
    /// A table.
    Table(&'static TableSpec),
    /// `[[limit]]`.
    Tables {
        of: &'static TableSpec,
        least: usize,
        most: usize,
        /// What stands in the two brackets.
        heading: &'static str,
    },
    /// `[response.NAME]`.
    NamedTables(&'static TableSpec, usize),
    /// One of several shapes, distinguished by type.
    Either(&'static [Self]),
}

pub(crate) const fn required(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    about: &'static str,
) -> FieldSpec {
    FieldSpec {
        need: Need::Required,
        ..optional(name, shape, example, about)
    }
}

pub(crate) const fn optional(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    about: &'static str,
) -> FieldSpec {
    // A word of Rust is written r#match.
    let name = match name.as_bytes() {
        [b'r', b'#', ..] => name.split_at(2).1,
        _ => name,
    };
    FieldSpec {
        name,
        need: Need::Optional,
        shape,
        example,
        about,
    }
}

pub(crate) use Shape::{
    Amount, Either, Factor, Flag, List, Map, Moment, NamedTables, Numbers, Table, Texts, Values,
    Whole, Word,
};

/// Any string.
pub(crate) const TEXT: Shape = Shape::Text(None);
/// A number of permits.
pub(crate) const AMOUNT: Shape = Amount(1, Quota::MAX_PERMITS);

pub(crate) const fn pattern(pattern: &'static str) -> Shape {
    Shape::Text(Some(pattern))
}

/// A duration within these bounds.
pub(crate) const fn span(least: Nanos, most: Nanos) -> Shape {
    Shape::Scalar(Scalar::Span { least, most })
}

/// A duration above zero.
pub(crate) const SPAN: Shape = span(SHORTEST, Nanos::MAX);

/// A percentage from 1%.
pub(crate) const fn percent(most: u32) -> Shape {
    Shape::Scalar(Scalar::Percent { most })
}

/// A number of bytes.
pub(crate) const fn size(least: u64, most: u64) -> Shape {
    Shape::Scalar(Scalar::Size { least, most })
}

/// The source of a secret.
pub(crate) const SECRET: Shape = Shape::Scalar(Scalar::Secret);

/// The address of a listener; `port` is the usual one.
pub(crate) const fn address(port: u16) -> Shape {
    Shape::Scalar(Scalar::Address { port })
}

/// Letters, digits, and any of `others`.
pub(crate) const fn name(most: usize, others: &'static str) -> Shape {
    Shape::Scalar(Scalar::Name { most, others })
}

/// `[[heading]]`, so many times.
pub(crate) const fn tables(
    of: &'static TableSpec,
    number: RangeInclusive<usize>,
    heading: &'static str,
) -> Shape {
    Shape::Tables {
        of,
        least: *number.start(),
        most: *number.end(),
        heading,
    }
}

impl Shape {
    /// Returns a property of the shape, or of the first of several that has it.
    pub(crate) fn find<T>(
        &'static self,
        property: impl Fn(&'static Self) -> Option<T>,
    ) -> Option<T> {
        match self {
            Self::Either(shapes) => shapes.iter().find_map(property),
            shape => property(shape),
        }
    }

    /// Returns true if a value may be a string.
    pub(super) fn is_text(&self) -> bool {
        matches!(
            self,
            Self::Text(..) | Self::Scalar(_) | Self::Word(_) | Self::Amount(..) | Self::Moment
        )
    }

    /// Returns true if a text in quotes would be a value without them.
    pub(super) fn is_bare(&self, text: &str) -> bool {
        DeValue::parse(text).is_ok_and(|node| match node.get_ref() {
            DeValue::Integer(_) => {
                matches!(self, Self::Whole(..) | Self::Amount(..) | Self::Factor(..))
            }
            DeValue::Float(_) => matches!(self, Self::Factor(..)),
            DeValue::Boolean(_) => matches!(self, Self::Flag),
            _ => false,
        })
    }

    /// Returns true if a value may be `"off"`.
    pub(super) fn takes_off(&self) -> bool {
        match self {
            Self::Either(shapes) => shapes.iter().any(Self::takes_off),
            Self::Word(words) => words.contains(&"off"),
            Self::Scalar(Scalar::Address { .. }) => true,
            _ => false,
        }
    }

    /// Returns the bounds of a whole number.
    pub(crate) fn bounds(&self) -> Option<RangeInclusive<u64>> {
        match self {
            Self::Whole(least, most) | Self::Amount(least, most) => Some(*least..=*most),
            _ => None,
        }
    }

    /// Returns the maximum number of values of a list.
    pub(crate) fn most(&self) -> Option<usize> {
        match self {
            Self::List(most)
            | Self::Texts(most)
            | Self::Numbers(most)
            | Self::Values(_, most)
            | Self::Tables { most, .. } => Some(*most),
            _ => None,
        }
    }

    /// Returns the fields of a table.
    pub(crate) fn table(&self) -> Option<&'static TableSpec> {
        match self {
            Self::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Returns the fields of the tables in a list.
    pub(crate) fn tables(&self) -> Option<&'static TableSpec> {
        match self {
            Self::Tables { of, .. } => Some(of),
            Self::Values(of, _) => of.table(),
            _ => None,
        }
    }

    /// Returns the text after "must be".
    pub(crate) fn expected(&self) -> String {
        match self {
            Self::Text(..) | Self::Scalar(_) => "a string".into(),
            Self::Whole(..) | Self::Amount(..) => "a whole number".into(),
            Self::Factor(..) => "a number".into(),
            Self::Flag => "`true` or `false`".into(),
            Self::Moment => "a date, or a date and a time".into(),
            Self::Word(words) => format!("one of {}", quoted(words)),
            Self::List(..) => "a list of strings".into(),
            Self::Texts(..) => "a string or a list of strings".into(),
            Self::Numbers(..) => "a string, a number, or a list of them".into(),
            Self::Values(of, _) => format!("{}, or a list of these", of.expected()),
            Self::Map(..) => "a table of names and their values".into(),
            Self::Table(_) => "a table".into(),
            Self::Tables { .. } => "a list of tables".into(),
            Self::NamedTables(..) => "a table of named tables".into(),
            Self::Either(shapes) => {
                let each: Vec<_> = shapes.iter().map(Self::expected).collect();
                each.join(", or ")
            }
        }
    }
}

/// Returns `an integer`, `a string`, ...
pub(super) fn a_type(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a decimal point",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Returns the example of a table with another value of a field; `None` if it does not have the field.
pub(super) fn in_example(table: &str, name: &str, value: Option<&str>) -> Option<String> {
    let field = format!("{name} = ");
    let (before, after) = table.split_once(&field)?;
    let end = match after.split_once(']') {
        Some((list, _)) if list.starts_with('[') => list.len() + 1,
        _ => after
            .find([',', '}'])
            .map(|end| after[..end].trim_end().len())?,
    };
    let value = value.unwrap_or(&after[..end]);
    Some(format!("{before}{field}{value}{}", &after[end..]))
}

/// Returns `` `limit`, `bucket` ``.
pub(crate) fn in_backticks<T: fmt::Display>(names: &[T]) -> String {
    let each: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    each.join(", ")
}

/// Returns `"enforce", "shadow", "off"`.
pub(super) fn quoted(words: &[&str]) -> String {
    let each: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
    each.join(", ")
}
