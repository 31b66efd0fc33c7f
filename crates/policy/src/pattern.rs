//! Pattern: one acceptable value of a `match` field.

use ipnet::IpNet;

use crate::ValueError;

/// What a matcher looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// `method`
    Method,
    /// `host`
    Host,
    /// `path`
    Path,
    /// `query.X`
    Query(String),
    /// `header.X`
    Header(String),
    /// `cookie.X`
    Cookie(String),
    /// `ip`
    Ip,
    /// `attr.X`
    Attribute(String),
}

/// One acceptable value. Built by [`Pattern::parse`] for the field it belongs to.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Written with `!`: anything but.
    pub negated: bool,
    // compiled form: private to this module
}

impl Pattern {
    /// Compiles one value of `field`: an exact string, `*` wildcards, a path pattern with
    /// `*`, `**` and `{name}`, or a CIDR block; `!` before it negates.
    pub fn parse(_field: &Field, _text: &str) -> Result<Self, ValueError> {
        todo!()
    }
}

/// Reads a CIDR block or a single address; IPv4-mapped IPv6 becomes IPv4.
///
/// # Errors
/// When it is neither, or when bits are set beyond the prefix.
pub fn network(_text: &str) -> Result<IpNet, ValueError> {
    todo!()
}
