//! Pattern: one acceptable value of a `match` field.
//!
//! ```text
//!   field               value                      means
//!   method              "POST"                     in any case
//!   host                "*.example.com"            any case; port and last dots ignored
//!   path                "/users/{id}", "/api/**"   see path patterns; normal paths, in any
//!                                                  case unless `path_case` is "sensitive"
//!   query header cookie "beta", "beta-*", "*"      this text; some run for `*`; any value
//!     and attr          "!*"                       no value
//!   domain descriptor   "edge", "user-*", "*"      as above; an empty value is one, too
//!   ip                  "10.0.0.0/8", "192.0.2.1"  a block; one address
//!   country continent   "NO", "EU", "AS3320"       this one, in any case; ZZ, AS0: unknown
//!     and asn
//!   any                 "!VALUE"                   anything but
//! ```
//!
//! Values of one field without `!` are alternatives, and no value with `!` may match. A request
//! without a value (or with an empty one) matches no value, so `"!VALUE"` holds.

use std::fmt;
use std::hash::Hasher;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::http::network::network;
use crate::http::path::{PathCase, Reading};
use crate::model::client::geo::normal_place;
use crate::model::matching::common_part::{CommonPart, leading_bits};
use crate::model::matching::gram_index::grams;
use crate::model::matching::path_pattern::PathPattern;
use crate::{EntryName, Glob, GlobPiece, ValueError};

/// Longest pattern, in bytes: bounds the work of a match.
pub(crate) const MAX_PATTERN: usize = 1024;

/// Part of a request that a matcher compares. Names of headers are case-insensitive.
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
    /// `country`
    Country,
    /// `continent`
    Continent,
    /// `asn`
    Asn,
    /// `attr.X`
    Attribute(String),
    /// `jwt.X`: a claim of the verified token.
    Claim(String),
    /// `domain` of a descriptor.
    Domain,
    /// `descriptor.X`: the value of an entry.
    Descriptor(EntryName),
}

impl Field {
    /// Returns true if its value is looked up by the address.
    pub fn is_located(&self) -> bool {
        matches!(self, Self::Country | Self::Continent | Self::Asn)
    }

    /// Returns true if only descriptors have this field.
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Domain | Self::Descriptor(_))
    }
}

/// One acceptable value. Built by [`Pattern::parse`] for the field it belongs to.
///
/// ```
/// use ratekeeper_policy::{Field, Pattern};
/// let pattern = Pattern::parse(&Field::Path, "!/users/{id}").unwrap();
/// assert!(pattern.negated);
/// assert_eq!(pattern.text(), "/users/{id}");
/// assert!(Pattern::parse(&Field::Ip, "10.0.0.300").is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// True if written with `!`: anything but the value.
    pub negated: bool,
    text: Box<str>,
    form: Form,
}

/// Compiled form of a pattern.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Form {
    Text(Glob),
    Path {
        written: PathPattern,
        /// The same pattern in lower case.
        folded: PathPattern,
    },
    Network(IpNet),
}

impl Pattern {
    /// Compiles one value of `field`: an exact string, `*` wildcards, a path pattern with
    /// `*`, `**` and `{name}`, or a CIDR block; `!` before it negates.
    ///
    /// # Errors
    /// If the value is empty, longer than 1,024 bytes, or can never match.
    pub fn parse(field: &Field, text: &str) -> Result<Self, ValueError> {
        let (negated, value) = match text.strip_prefix('!') {
            Some(value) => (true, value),
            None => (false, text),
        };
        if value.is_empty() {
            return Err(ValueError::new(
                format!("value `{text}` is empty"),
                match field {
                    Field::Path => "write \"/**\" for any path",
                    _ => "write \"*\" for any value, \"!*\" for no value",
                },
            ));
        }
        if value.len() > MAX_PATTERN {
            return Err(ValueError::new(
                format!(
                    "the value has {} bytes, at most {MAX_PATTERN} are allowed",
                    value.len()
                ),
                "match a shorter part of it with `*`",
            ));
        }
        let form = match field {
            Field::Method => Form::Text(method(value)?),
            Field::Host => Form::Text(host(value)?),
            Field::Path => Form::Path {
                written: PathPattern::parse(value, PathCase::Sensitive)?,
                folded: PathPattern::parse(value, PathCase::Insensitive)?,
            },
            Field::Ip => Form::Network(network(value)?),
            Field::Country | Field::Continent | Field::Asn => {
                Form::Text(Glob::new(&normal_place(field, value)?))
            }
            Field::Header(_) | Field::Cookie(_) => Form::Text(trimmed(value)?),
            Field::Descriptor(_) if text == "!*" => {
                return Err(ValueError::new(
                    "`!*` can never match: an entry that is named must be there",
                    "leave it out: a limit is for descriptors with exactly the entries it names",
                ));
            }
            Field::Query(_)
            | Field::Attribute(_)
            | Field::Claim(_)
            | Field::Domain
            | Field::Descriptor(_) => Form::Text(Glob::new(value.as_bytes())),
        };
        Ok(Self {
            negated,
            text: value.into(),
            form,
        })
    }

    /// Returns the value as written, without `!`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if a value of the field matches, negation aside. Methods come in upper case,
    /// hosts in lower case.
    pub(crate) fn matches_text(&self, value: &[u8]) -> bool {
        matches!(&self.form, Form::Text(glob) if glob.matches(value))
    }

    /// Returns true if a reading of a path matches, negation aside.
    pub(crate) fn matches_path(&self, reading: &Reading<'_>, case: PathCase) -> bool {
        let Form::Path { written, folded } = &self.form else {
            return false;
        };
        let pattern = match case {
            PathCase::Sensitive => written,
            PathCase::Insensitive => folded,
        };
        pattern.matches(reading.path(case))
    }

    /// Returns true if an address matches, negation aside.
    pub(crate) fn matches_ip(&self, ip: IpAddr) -> bool {
        matches!(&self.form, Form::Network(network) if network.contains(&ip))
    }

    /// Returns true if each text or address that matches the other pattern matches this one, too,
    /// negation aside; false for paths.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        match (&self.form, &other.form) {
            (Form::Network(network), Form::Network(inner)) => network.contains(inner),
            // A zero is matched by a `*` alone, as any run of bytes would be.
            (Form::Text(glob), Form::Text(inner)) => glob.matches(&inner.with_zeros()),
            _ => false,
        }
    }

    /// Returns the fixed beginning or end of every text that matches, if there is one.
    pub(crate) fn fixed(&self) -> Option<(GlobPiece, &[u8])> {
        match &self.form {
            Form::Text(glob) => glob.fixed(),
            Form::Path { .. } | Form::Network(_) => None,
        }
    }

    /// Returns the grams that all values that match contain; of paths, in lower case.
    pub(crate) fn grams(&self) -> Vec<u32> {
        let text = match &self.form {
            Form::Text(glob) => glob.with_zeros(),
            Form::Path { folded, .. } => folded.with_zeros(),
            Form::Network(_) => Vec::new(),
        };
        let is_fixed = |gram: &u32| !gram.to_le_bytes().contains(&0);
        grams(&text).filter(is_fixed).collect()
    }

    /// Returns the part that all values that match have in common, and writes its bytes to
    /// `hasher`; `None` if there is no such part. Paths are in lower case, because that leaves
    /// out no match.
    pub(crate) fn common_part(&self, hasher: &mut impl Hasher) -> Option<CommonPart> {
        match &self.form {
            Form::Text(glob) => {
                let (piece, text) = glob.fixed()?;
                hasher.write(text);
                Some(CommonPart::Text(piece))
            }
            Form::Path { folded, .. } => folded.common_part(hasher),
            Form::Network(network) => {
                let (address, bits) = (network.addr(), network.prefix_len());
                hasher.write_u128(leading_bits(address, bits));
                Some(match address {
                    IpAddr::V4(_) => CommonPart::V4(bits),
                    IpAddr::V6(_) => CommonPart::V6(bits),
                })
            }
        }
    }
}

/// Formats the pattern as written, with `!`.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.negated { "!" } else { "" };
        write!(f, "{sign}{}", self.text)
    }
}

fn method(text: &str) -> Result<Glob, ValueError> {
    let is_any = ["ANY", "ALL"].contains(&&*text.to_ascii_uppercase());
    // RFC 9110, section 5.6.2: `*` is a token character as well, and so is `|`.
    if is_any || !text.bytes().all(|byte| is_token(byte) && byte != b'|') {
        let help = "write \"POST\", or a list: [\"POST\", \"PUT\"]; without `method`, any matches";
        return Err(ValueError::new(format!("`{text}` is not a method"), help));
    }
    Ok(Glob::new(text.to_ascii_uppercase().as_bytes()))
}

/// Returns true for a token character (RFC 9110, section 5.6.2).
pub(crate) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn host(text: &str) -> Result<Glob, ValueError> {
    let wrong = |reason, help: &str| Err(ValueError::new(format!("`{text}` {reason}"), help));
    let name = without_port(text.as_bytes());
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b"-._*:[]".contains(&b);
    if text.contains('/') {
        let help = "write the host alone, \"api.example.com\", and the path as `path = \"/..\"`";
        return wrong("is not a host name", help);
    }
    if !text.is_ascii() {
        let help = "write the name in its ASCII form: \"xn--...\"";
        return wrong("is not in ASCII, and would match no request", help);
    }
    if let Some(domain) = text.strip_prefix('.').filter(|it| !it.is_empty()) {
        let help = format!("write \"*.{domain}\", and \"{domain}\" for the name itself");
        return wrong("begins with a dot, and would match no request", &help);
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        let help = format!("write \"[{text}]\"");
        return wrong("lacks the brackets that requests have", &help);
    }
    if name.is_empty() || !text.bytes().all(is_host) {
        let help = "write \"api.example.com\" or \"*.example.com\"";
        return wrong("is not a host name", help);
    }
    if name.len() != text.trim_end_matches('.').len() {
        let help = format!("write \"{}\"", String::from_utf8_lossy(name));
        return wrong("has a port, and hosts are compared without it", &help);
    }
    Ok(Glob::new(&name.to_ascii_lowercase()))
}

/// Returns a host without its port and without the dots at its end: the root's, and those that
/// some servers take for it. A host ends at its first comma or colon, because applications read
/// `a.example:1:1` and `a.example,b` as `a.example`.
pub(crate) fn without_port(host: &[u8]) -> &[u8] {
    let is_address = || std::str::from_utf8(host).is_ok_and(|it| it.parse::<Ipv6Addr>().is_ok());
    // An IPv6 address has colons of its own, and is in brackets before a port.
    let address = host.iter().position(|byte| *byte == b']').unwrap_or(0);
    let end = host[address..].iter().position(|byte| b":,".contains(byte));
    let name = match end {
        Some(end) if !is_address() => &host[..address + end],
        _ => host,
    };
    let dots = name.iter().rev().take_while(|byte| **byte == b'.').count();
    &name[..name.len() - dots]
}

fn trimmed(text: &str) -> Result<Glob, ValueError> {
    if text.trim_matches([' ', '\t']) != text {
        return Err(ValueError::new(
            format!("`{text}` can never match: values are compared without space around them"),
            format!("write \"{}\"", text.trim_matches([' ', '\t'])),
        ));
    }
    Ok(Glob::new(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_refused_with_a_correction() {
        let long = "x".repeat(MAX_PATTERN + 1);
        let header = Field::Header("x-a".into());
        for (field, text, reason, help) in [
            (Field::Method, "", "is empty", "\"*\" for any"),
            (
                Field::Method,
                "!",
                "value `!` is empty",
                "\"!*\" for no value",
            ),
            (Field::Method, "GET, POST", "is not a method", "a list"),
            (Field::Method, "P\u{d6}ST", "is not a method", "POST"),
            (
                Field::Host,
                "example.com:8080",
                "has a port",
                "write \"example.com\"",
            ),
            (Field::Host, "[::1]:80", "has a port", "write \"[::1]\""),
            (Field::Host, "::1", "lacks the brackets", "write \"[::1]\""),
            (Field::Host, ".a.example", "a dot", "write \"*.a.example\""),
            (Field::Method, "GET|POST", "is not a method", "a list"),
            (
                Field::Method,
                "!any",
                "`any` is not a method",
                "without `method`",
            ),
            (
                Field::Host,
                "http://example.com",
                "not a host name",
                "the host alone",
            ),
            (Field::Host, "b\u{fc}cher.example", "not in ASCII", "xn--"),
            (Field::Host, ".", "not a host name", "*.example.com"),
            (Field::Host, "a b", "not a host name", "*.example.com"),
            (Field::Path, "login", "does not begin", "\"/login\""),
            (Field::Ip, "10.0.0.300", "neither an address", "CIDR"),
            (Field::Ip, "10.0.0.0/33", "neither an address", "10.0.0.0/8"),
            (
                Field::Ip,
                "10.0.0.1/8",
                "beyond its prefix",
                "\"10.0.0.0/8\"",
            ),
            (
                Field::Ip,
                "fe80::1%eth0",
                "neither an address",
                "2001:db8::/32",
            ),
            (Field::Ip, "localhost", "neither an address", "192.0.2.1"),
            (header.clone(), " a", "without space", "write \"a\""),
            (header, &long, "1025 bytes, at most 1024", "shorter"),
        ] {
            let error = Pattern::parse(&field, text).unwrap_err();
            let shown = format!("{} {}", error.reason, error.help);
            assert!(error.reason.contains(reason), "{text}: {shown}");
            assert!(shown.contains(help), "{text}: {shown}");
        }
    }

    #[test]
    fn ports_and_root_dots_are_not_part_of_a_host() {
        for (host, name) in [
            ("example.com", "example.com"),
            ("example.com:80", "example.com"),
            ("example.com.", "example.com"),
            ("example.com.:80", "example.com"),
            ("example.com..", "example.com"),
            ("example.com...:80", "example.com"),
            ("example.com:", "example.com"),
            ("[::1]", "[::1]"),
            ("[::1]:80", "[::1]"),
            ("::1", "::1"),
            ("192.0.2.1:80", "192.0.2.1"),
            ("example.com::1", "example.com"),
            ("example.com:1:1", "example.com"),
            ("example.com,x", "example.com"),
            ("[::1]:80,[::2]", "[::1]"),
            (":80", ""),
            (".", ""),
            ("", ""),
        ] {
            assert_eq!(without_port(host.as_bytes()), name.as_bytes(), "{host}");
        }
    }

    #[test]
    fn patterns_show_as_written() {
        for text in ["!/a/{id}", "/a/**", "/%6c"] {
            assert_eq!(
                Pattern::parse(&Field::Path, text).unwrap().to_string(),
                text
            );
        }
    }
}
