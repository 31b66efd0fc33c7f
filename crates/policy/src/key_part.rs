//! Key part: one word of a limit's `key` list.
//!
//! ```text
//!   word         value                              missing when
//!   all          none: all requests together        never
//!   ip           the address; IPv6 cut to           unknown
//!                `client_ip.ipv6_prefix`
//!   ip/N         N to 32: IPv4 cut to N bits,       unknown
//!                IPv6 as above; N above 32: IPv6
//!                cut to N bits, IPv4 whole
//!   path         the normal path, in lower case     never
//!                unless `path_case` is "sensitive"
//!   route        the value of `match.path` that     never
//!                matched, else the normal path
//!   method host  upper case; lower case, no port    unknown
//!   header:X     the first, no space around it      absent or empty
//!   cookie:X     the first, hashed                  absent or empty
//!   query:X      the first, decoded                 absent or empty
//!   bearer       the token of `authorization:       absent or empty
//!                Bearer`; hashed
//!   api_key      `x-api-key`, and the bearer        both absent or empty
//!                token; hashed
//!   attr:X       the first                          absent or empty
//!   descriptor:X the value of the entry             absent or empty
//! ```
//!
//! Headers that carry secrets (`authorization` and its like) are hashed too.
//!
//! A request with two credentials has two keys under `api_key`, and is charged under both,
//! because the application may read either of them and a made-up one must gain nothing.

mod unknown;

use std::fmt;
use std::str::FromStr;

use crate::pattern::is_token;
use crate::request::{RequestFacts, trim};
use crate::value::{self, Prefix};
use crate::{EntryName, KeyBytes, PathCase, ValueError};
use unknown::unknown;

/// Longest name of a header, cookie, query parameter or attribute, in bytes.
const MAX_NAME: usize = 128;

/// Headers with values that must not be readable in a key.
const SECRET_HEADERS: [&str; 5] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "x-api-key",
    "x-auth-token",
];

/// One component of a limit's key.
///
/// ```
/// use ratekeeper_policy::KeyPart;
/// let part = KeyPart::parse("header:X-User-Id").unwrap();
/// assert_eq!(part, KeyPart::Header("x-user-id".into()));
/// assert_eq!(part.to_string(), "header:x-user-id");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// `all`: one shared counter; adds nothing to the key.
    All,
    /// `ip` (the client's address, IPv6 cut to the prefix), `ip/24`.
    Ip {
        /// Up to 32: bits of an IPv4 address, the policy's prefix for IPv6. Above: bits of an
        /// IPv6 address, all 32 for IPv4. `None`: all 32, and the policy's prefix.
        bits: Option<u8>,
    },
    /// `path`: the normalised path.
    Path,
    /// `route`: the pattern of `match.path` that matched, or the path.
    Route,
    /// `method`
    Method,
    /// `host`
    Host,
    /// `header:X`
    Header(String),
    /// `cookie:X`
    Cookie(String),
    /// `query:X`
    Query(String),
    /// `bearer`: the token of `authorization: Bearer`; only its hash is kept.
    Bearer,
    /// `api_key`: header `x-api-key`, and a bearer token; only their hashes are kept. A
    /// request with both is charged under each.
    ApiKey,
    /// `attr:X`
    Attribute(String),
    /// `descriptor:X`: the value of an entry.
    Descriptor(EntryName),
}

impl KeyPart {
    /// Reads `ip`, `ip/24`, `header:x-user-id`, ...
    ///
    /// # Errors
    /// For unknown words and invalid names.
    pub fn parse(text: &str) -> Result<Self, ValueError> {
        if let Some((kind, name)) = text.split_once(':') {
            return Self::parse_named(text, kind, name);
        }
        if let Some(bits) = text.strip_prefix("ip/") {
            return Ok(Self::Ip {
                bits: Some(parse_bits(text, bits)?),
            });
        }
        match text {
            "all" => Ok(Self::All),
            "ip" => Ok(Self::Ip { bits: None }),
            "path" => Ok(Self::Path),
            "route" => Ok(Self::Route),
            "method" => Ok(Self::Method),
            "host" => Ok(Self::Host),
            "bearer" => Ok(Self::Bearer),
            "api_key" => Ok(Self::ApiKey),
            "header" | "cookie" | "query" | "attr" | "descriptor" => Err(ValueError::new(
                format!("key part `{text}` needs a name"),
                format!("write \"{text}:NAME\""),
            )),
            _ => Err(unknown(text, text)),
        }
    }

    /// Returns true if only descriptors have this part.
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Descriptor(_))
    }

    fn parse_named(text: &str, kind: &str, name: &str) -> Result<Self, ValueError> {
        let build = match kind {
            "descriptor" => |name: String| Self::Descriptor(EntryName::new(&name)),
            "header" => Self::Header,
            "cookie" => Self::Cookie,
            "query" => Self::Query,
            "attr" => Self::Attribute,
            _ => return Err(unknown(text, kind)),
        };
        let is_wire_name = matches!(kind, "header" | "cookie");
        if name.is_empty() || is_wire_name && !name.bytes().all(is_token) {
            return Err(ValueError::new(
                format!("`{name}` in key part `{text}` is not a valid {kind} name"),
                format!("write \"{kind}:NAME\", with letters, digits and `-`"),
            ));
        }
        if name.len() > MAX_NAME {
            return Err(ValueError::new(
                format!(
                    "a name in a key part has {} bytes, at most {MAX_NAME} are allowed",
                    name.len()
                ),
                "use a shorter name",
            ));
        }
        // Names of headers have no case.
        Ok(build(if kind == "header" {
            name.to_ascii_lowercase()
        } else {
            name.to_owned()
        }))
    }

    /// Appends the value of this part to the key, if the request has one.
    pub(crate) fn write(
        &self,
        request: &RequestFacts<'_>,
        around: Around<'_>,
        out: &mut KeyBytes,
    ) -> PartValue {
        let Around {
            route,
            ipv6_prefix,
            path_case,
            credential,
        } = around;
        let text = match self {
            Self::All => return PartValue::Written,
            Self::Ip { bits } => {
                let Some(ip) = request.ip else {
                    return PartValue::Missing;
                };
                value::write_ip(ip, prefix(*bits, ipv6_prefix), out);
                return PartValue::Written;
            }
            Self::Bearer => return written(bearer(request), value::write_hashed, out),
            Self::ApiKey => {
                return written(credential.of(request), value::write_hashed, out);
            }
            Self::Cookie(name) => {
                return written(request.cookies(name).next(), value::write_hashed, out);
            }
            Self::Header(name) if SECRET_HEADERS.contains(&name.as_str()) => {
                return written(request.headers(name).next(), value::write_hashed, out);
            }
            Self::Query(name) => {
                return written(request.queries(name).next(), value::write_encoded, out);
            }
            Self::Path => Some(request.path(path_case)),
            Self::Route => Some(route.map_or_else(|| request.path(path_case), str::as_bytes)),
            Self::Method => Some(request.method()),
            Self::Host => Some(request.host()),
            Self::Header(name) => request.headers(name).next(),
            Self::Attribute(name) => request.attribute(name).map(str::as_bytes),
            Self::Descriptor(name) => {
                let descriptor = request.facts.descriptor.as_ref();
                descriptor.and_then(|d| name.of(d)).map(str::as_bytes)
            }
        };
        written(text.filter(|text| !text.is_empty()), value::write_text, out)
    }
}

/// Values that a key part depends on besides the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Around<'a> {
    /// The value of `match.path` that matched.
    pub(crate) route: Option<&'a str>,
    pub(crate) ipv6_prefix: u8,
    pub(crate) path_case: PathCase,
    /// The credential that `api_key` stands for.
    pub(crate) credential: Credential,
}

/// One of the credentials of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Credential {
    /// `x-api-key`, or the bearer token of a request without it.
    First,
    /// The bearer token of a request that has another `x-api-key`.
    Second,
}

impl Credential {
    pub(crate) fn of<'a>(self, request: &RequestFacts<'a>) -> Option<&'a [u8]> {
        let (api_key, bearer) = (request.headers("x-api-key").next(), bearer(request));
        match self {
            Self::First => api_key.or(bearer),
            Self::Second => bearer.filter(|bearer| api_key.is_some_and(|key| key != *bearer)),
        }
    }
}

impl KeyPart {
    /// Appends a value that an operator writes: either as in a request (the API key itself, any
    /// address of a network), or as shown in a key (`sha256:...`, `2001:db8::/64`, `~`).
    ///
    /// ```
    /// use ratekeeper_policy::{KeyBytes, KeyPart};
    /// let written = |value| {
    ///     let mut key = KeyBytes::default();
    ///     KeyPart::ApiKey.write_plain(value, 64, &mut key);
    ///     key
    /// };
    /// assert_eq!(written("abc"), written("sha256:ba7816bf8f01cfea414140de5dae2223"));
    /// ```
    pub fn write_plain(&self, value: &str, ipv6_prefix: u8, out: &mut KeyBytes) {
        if value::is_as_shown(value.as_bytes()) {
            return value::write_as_shown(value.as_bytes(), out);
        }
        match self {
            Self::Ip { bits } => match value.parse::<std::net::IpAddr>() {
                Ok(ip) => value::write_ip(ip.to_canonical(), prefix(*bits, ipv6_prefix), out),
                Err(_) => value::write_text(value.as_bytes(), out),
            },
            _ if self.is_secret() => value::write_hashed(value.as_bytes(), out),
            _ => value::write_text(value.as_bytes(), out),
        }
    }

    /// Returns true if keys hold only the hash of its values.
    fn is_secret(&self) -> bool {
        match self {
            Self::ApiKey | Self::Cookie(_) => true,
            Self::Header(name) => SECRET_HEADERS.contains(&name.as_str()),
            _ => false,
        }
    }
}

/// Result of writing a key part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PartValue {
    Written,
    Missing,
}

fn written(text: Option<&[u8]>, write: fn(&[u8], &mut KeyBytes), out: &mut KeyBytes) -> PartValue {
    let Some(text) = text else {
        return PartValue::Missing;
    };
    write(text, out);
    PartValue::Written
}

fn prefix(bits: Option<u8>, ipv6_prefix: u8) -> Prefix {
    match bits {
        Some(bits @ ..=32) => Prefix {
            v4: bits,
            v6: ipv6_prefix,
        },
        Some(bits) => Prefix { v4: 32, v6: bits },
        None => Prefix {
            v4: 32,
            v6: ipv6_prefix,
        },
    }
}

/// Returns the token of `authorization: Bearer`.
fn bearer<'a>(request: &RequestFacts<'a>) -> Option<&'a [u8]> {
    let token = |value: &'a [u8]| {
        let (scheme, token) = value.split_at_checked("Bearer ".len())?;
        scheme.eq_ignore_ascii_case(b"Bearer ").then(|| trim(token))
    };
    let mut values = request.headers("authorization");
    values.find_map(token).filter(|token| !token.is_empty())
}

/// Formats the part as in the policy file.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Ip { bits: None } => f.write_str("ip"),
            Self::Ip { bits: Some(bits) } => write!(f, "ip/{bits}"),
            Self::Path => f.write_str("path"),
            Self::Route => f.write_str("route"),
            Self::Method => f.write_str("method"),
            Self::Host => f.write_str("host"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Bearer => f.write_str("bearer"),
            Self::ApiKey => f.write_str("api_key"),
            Self::Attribute(name) => write!(f, "attr:{name}"),
            Self::Descriptor(name) => write!(f, "descriptor:{name}"),
        }
    }
}

impl FromStr for KeyPart {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Self::parse(text)
    }
}

fn parse_bits(text: &str, bits: &str) -> Result<u8, ValueError> {
    match bits.parse() {
        Ok(0) => Err(ValueError::new(
            format!("key part `{text}` is the same for every address"),
            "write \"all\" to count all requests together",
        )),
        Ok(bits @ 1..=128) => Ok(bits),
        _ => Err(ValueError::new(
            format!("`{bits}` in key part `{text}` is not a valid number of bits"),
            "write \"ip/24\" (1 to 32 for IPv4, 33 to 128 for IPv6)",
        )),
    }
}

#[cfg(test)]
mod tests {
    use ratekeeper_core::Key;

    use super::*;
    use crate::Facts;

    #[test]
    fn key_parts_print_as_they_are_written() {
        for text in [
            "all",
            "ip",
            "ip/1",
            "ip/24",
            "ip/32",
            "ip/48",
            "ip/128",
            "path",
            "route",
            "method",
            "host",
            "header:x-user-id",
            "cookie:SID",
            "query:a[b]",
            "query:a b",
            "bearer",
            "api_key",
            "attr:user_id",
            "attr:a:b",
            "descriptor:user",
            "descriptor:generic_key#2",
        ] {
            assert_eq!(KeyPart::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_key_parts_are_refused_with_a_correction() {
        for (text, reason, help) in [
            ("", "unknown key part ``", "one of: all"),
            ("ipp", "unknown key part `ipp`", "`ip`"),
            ("IP", "unknown key part `IP`", "`ip`"),
            ("apikey", "unknown", "`api_key`"),
            ("api-key", "unknown", "`api_key`"),
            ("headers:x-a", "unknown", "`header:x-a`"),
            ("Header:x-a", "unknown", "`header:x-a`"),
            ("paht", "unknown", "`path`"),
            ("user", "unknown", "one of: all"),
            ("ip:24", "unknown", "`ip`"),
            ("header", "needs a name", "\"header:NAME\""),
            ("attr", "needs a name", "\"attr:NAME\""),
            ("header:", "is not a valid header name", "\"header:NAME\""),
            ("header: x", "is not a valid header name", "\"header:NAME\""),
            (
                "cookie:a;b",
                "is not a valid cookie name",
                "\"cookie:NAME\"",
            ),
            ("attr:", "is not a valid attr name", "\"attr:NAME\""),
            ("ip/0", "same for every address", "\"all\""),
            ("ip/129", "not a valid number of bits", "1 to 32"),
            ("ip/x", "not a valid number of bits", "1 to 32"),
            ("ip/-1", "not a valid number of bits", "1 to 32"),
            ("ip/", "not a valid number of bits", "1 to 32"),
            ("country", "unknown key part", "one of: all"),
            ("asn", "unknown key part", "`all`"),
            ("jwt:sub", "unknown key part", ""),
            ("form:username", "unknown key part", ""),
            ("descriptor", "needs a name", "\"descriptor:NAME\""),
        ] {
            let error = KeyPart::parse(text).unwrap_err();
            assert!(error.reason.contains(reason), "{text}: {error}");
            assert!(error.help.contains(help), "{text}: {error}");
        }
        let long = format!("attr:{}", "x".repeat(MAX_NAME + 1));
        let error = KeyPart::parse(&long).unwrap_err();
        assert!(error.reason.contains("129 bytes"), "{error}");
    }

    #[test]
    fn values_come_in_one_spelling() {
        let facts = Facts {
            method: "post",
            host: "API.example.com.:443",
            path: "//a/../Users/7/",
            query: "q=a+b%21&q=second&e=",
            ip: Some("2001:db8:1:2:3:4:5:6".parse().unwrap()),
            headers: &[
                ("X-User", b""),
                ("x-user", b" u1 "),
                ("x-user", b"u2"),
                ("authorization", b"bearer  abc "),
                ("cookie", b"sid=\"abc\""),
            ],
            attributes: &[("user_id", "u1"), ("none", "")],
            ..Facts::default()
        };
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223";
        for (part, expected) in [
            ("ip", Some("2001:db8:1:2::/64")),
            ("ip/24", Some("2001:db8:1:2::/64")),
            ("ip/48", Some("2001:db8:1::/48")),
            ("ip/128", Some("2001:db8:1:2:3:4:5:6")),
            ("path", Some("/users/7")),
            ("route", Some("/users/{id}")),
            ("method", Some("POST")),
            ("host", Some("api.example.com")),
            ("header:x-user", Some("u1")),
            ("header:x-none", None),
            ("cookie:sid", Some(abc)),
            ("cookie:none", None),
            ("query:q", Some("a b!")),
            ("query:e", None),
            ("query:none", None),
            ("bearer", Some(abc)),
            ("api_key", Some(abc)),
            ("attr:user_id", Some("u1")),
            ("attr:none", None),
        ] {
            check(part, &facts, Some("/users/{id}"), expected);
        }
        check("route", &facts, None, Some("/users/7"));
    }

    #[test]
    fn an_operator_writes_a_value_as_a_request_brings_it_or_as_a_key_shows_it() {
        let abc = "sha256:ba7816bf8f01cfea414140de5dae2223";
        for (part, value, expected) in [
            ("api_key", "abc", abc),
            ("api_key", abc, abc),
            ("header:x-api-key", "abc", abc),
            ("cookie:sid", "abc", abc),
            ("header:x-user", "abc", "abc"),
            ("attr:user", "~ip=192.0.2.1", "~ip=192.0.2.1"),
            ("ip", "2001:db8::1", "2001:db8::/64"),
            ("ip", "2001:db8::/64", "2001:db8::/64"),
            ("ip", "::ffff:192.0.2.7", "192.0.2.7"),
            ("ip/24", "192.0.2.7", "192.0.2.0/24"),
            ("ip/24", "192.0.2.0/24", "192.0.2.0/24"),
        ] {
            let mut out = KeyBytes::default();
            KeyPart::parse(part)
                .unwrap()
                .write_plain(value, 64, &mut out);
            let key = Key::from_bytes(&out);
            let parts: Vec<_> = key.display_parts().collect();
            assert_eq!(parts, [expected], "{part} {value}");
        }
        // A value that only begins like a hash is treated as any other.
        let mut out = KeyBytes::default();
        KeyPart::ApiKey.write_plain("sha256:abc", 64, &mut out);
        let key = Key::from_bytes(&out);
        assert_ne!(key.display_parts().next().as_deref(), Some("sha256:abc"));
    }

    #[test]
    fn an_api_key_is_the_header_or_the_bearer_token() {
        let abc = Some("sha256:ba7816bf8f01cfea414140de5dae2223");
        for (headers, expected) in [
            (&[("x-api-key", &b"abc"[..])][..], abc),
            (&[("X-API-Key", b" abc ")], abc),
            (&[("authorization", b"Bearer abc")], abc),
            (&[("authorization", b"BEARER abc")], abc),
            (
                &[("authorization", b"Bearer other"), ("x-api-key", b"abc")],
                abc,
            ),
            (&[("x-api-key", b""), ("authorization", b"Bearer abc")], abc),
            (&[("authorization", b"Basic abc")], None),
            (&[("authorization", b"Bearer")], None),
            (&[("authorization", b"Bearer  ")], None),
            (&[("authorization", b"Bearerabc")], None),
            (&[], None),
        ] {
            let facts = Facts {
                headers,
                ..Facts::default()
            };
            check("api_key", &facts, None, expected);
        }
    }

    #[test]
    fn ipv4_is_cut_only_up_to_32_bits() {
        let facts = Facts {
            ip: Some("::ffff:192.0.2.77".parse().unwrap()),
            ..Facts::default()
        };
        for (part, expected) in [
            ("ip", "192.0.2.77"),
            ("ip/24", "192.0.2.0/24"),
            ("ip/32", "192.0.2.77"),
            ("ip/64", "192.0.2.77"),
        ] {
            check(part, &facts, None, Some(expected));
        }
    }

    #[test]
    fn an_unknown_value_is_missing() {
        let nothing = Facts::default();
        for part in [
            "ip", "ip/24", "method", "host", "header:a", "cookie:a", "query:a",
        ] {
            check(part, &nothing, None, None);
        }
        check("path", &nothing, None, Some("/"));
        check("api_key", &nothing, None, None);
    }

    fn check(part: &str, facts: &Facts<'_>, route: Option<&str>, expected: Option<&str>) {
        let mut out = KeyBytes::default();
        let request = RequestFacts::new(facts);
        let around = Around {
            route,
            ipv6_prefix: 64,
            path_case: PathCase::Insensitive,
            credential: Credential::First,
        };
        let part = KeyPart::parse(part).unwrap();
        let value = part.write(&request, around, &mut out);
        let key = Key::from_bytes(&out);
        let mut written = key.display_parts();
        assert_eq!(written.next().as_deref(), expected, "{part}");
        assert_eq!(value == PartValue::Written, expected.is_some(), "{part}");
    }
}
