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
//!   path         each reading of the path that      never
//!                matched, in lower case unless
//!                `path_case` is "sensitive"
//!   route        each value of `match.path` that    never
//!                matched a reading, else as `path`
//!   method host  upper case; lower case, no port    unknown
//!   country      NO, or that of unknown addresses   never
//!   continent    EU, or ZZ
//!   asn          AS3320, or AS0
//!   header:X     each, no space around it           absent or empty
//!   cookie:X     each, in one spelling, hashed      absent or empty
//!   query:X      each, decoded                      absent or empty
//!   bearer       each token of `authorization:      absent or empty
//!                Bearer`; hashed
//!   api_key      each `x-api-key`, and each bearer  both absent or empty
//!                token; hashed
//!   attr:X       the first                          absent or empty
//!   jwt:X        the claim of a verified token      no valid token, or not in it
//!   form:X       the value in a form                absent, empty or unreadable; a request
//!   json:/X      the value of the pointer           with two values is refused
//!   descriptor:X the value of the entry             absent or empty
//! ```
//!
//! Headers that carry secrets (`authorization` and its like) are hashed too.
//!
//! A request that states several values of a part has a key for each, and is charged under all of
//! them, because the application may read any of them and a made-up one must gain nothing.

mod plain;
mod values;

use std::fmt;

use crate::model::keys::value::Prefix;
use crate::{BodyField, EntryName, ValueError, is_token};
pub(crate) use values::{Around, PartValue};

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

/// The parts without a name, by their words.
pub(crate) static PLAIN: [(&str, KeyPart); 11] = [
    ("all", KeyPart::All),
    ("ip", KeyPart::Ip { bits: None }),
    ("path", KeyPart::Path),
    ("route", KeyPart::Route),
    ("method", KeyPart::Method),
    ("host", KeyPart::Host),
    ("country", KeyPart::Country),
    ("continent", KeyPart::Continent),
    ("asn", KeyPart::Asn),
    ("bearer", KeyPart::Bearer),
    ("api_key", KeyPart::ApiKey),
];

/// Returns the part of a name, or of the text that ends with it.
type NamedPart = fn(&str, &str) -> Result<KeyPart, ValueError>;

/// The kinds of parts that a name follows. Names of headers have no case.
static KINDS: [(&str, NamedPart); 8] = [
    ("header", |name, _| {
        Ok(KeyPart::Header(name.to_ascii_lowercase()))
    }),
    ("cookie", |name, _| Ok(KeyPart::Cookie(name.into()))),
    ("query", |name, _| Ok(KeyPart::Query(name.into()))),
    ("attr", |name, _| Ok(KeyPart::Attribute(name.into()))),
    ("jwt", |name, _| Ok(KeyPart::Claim(name.into()))),
    ("form", |_, text| BodyField::parse(text).map(KeyPart::Body)),
    ("json", |_, text| BodyField::parse(text).map(KeyPart::Body)),
    ("descriptor", |name, _| {
        Ok(KeyPart::Descriptor(EntryName::new(name)))
    }),
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
    /// `country`: its code.
    Country,
    /// `continent`: its code.
    Continent,
    /// `asn`: the number of the network.
    Asn,
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
    /// `jwt:X`: a claim of the verified token.
    Claim(String),
    /// `form:X`, `json:/X`: a value of the body.
    Body(BodyField),
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
        if let Some((_, part)) = PLAIN.iter().find(|(word, _)| *word == text) {
            return Ok(part.clone());
        }
        match text {
            "json" => BodyField::parse("json:").map(Self::Body),
            kind if KINDS.iter().any(|(known, _)| *known == kind) => Err(ValueError::new(
                format!("key part `{kind}` needs a name"),
                format!("write \"{kind}:NAME\""),
            )),
            _ => Err(unknown(text, text)),
        }
    }

    /// Returns true if only descriptors have this part.
    pub fn is_of_descriptors(&self) -> bool {
        matches!(self, Self::Descriptor(_))
    }

    fn parse_named(text: &str, kind: &str, name: &str) -> Result<Self, ValueError> {
        let Some((_, build)) = KINDS.iter().find(|(known, _)| *known == kind) else {
            return Err(unknown(text, kind));
        };
        let is_wire_name = matches!(kind, "header" | "cookie");
        if name.is_empty() || is_wire_name && !name.bytes().all(is_token) {
            return Err(ValueError::new(
                format!("`{name}` in key part `{text}` is not a valid {kind} name"),
                match kind {
                    "json" => "write a JSON pointer: \"json:/NAME\"".to_owned(),
                    _ => format!("write \"{kind}:NAME\", with letters, digits and `-`"),
                },
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
        build(name, text)
    }

    /// Returns true if keys hold only the hash of its values.
    pub(crate) fn is_secret(&self) -> bool {
        match self {
            Self::Bearer | Self::ApiKey | Self::Cookie(_) => true,
            Self::Header(name) => SECRET_HEADERS.contains(&name.as_str()),
            _ => false,
        }
    }
}

fn prefix(bits: Option<u8>, ipv6_prefix: u8) -> Prefix {
    let (v4, v6) = match bits {
        Some(bits @ ..=32) => (bits, ipv6_prefix),
        Some(bits) => (32, bits),
        None => (32, ipv6_prefix),
    };
    Prefix { v4, v6 }
}

/// Formats the part as in the policy file.
impl fmt::Display for KeyPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip { bits: Some(bits) } => write!(f, "ip/{bits}"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Attribute(name) => write!(f, "attr:{name}"),
            Self::Claim(name) => write!(f, "jwt:{name}"),
            Self::Body(field) => field.fmt(f),
            Self::Descriptor(name) => write!(f, "descriptor:{name}"),
            plain => {
                let word = PLAIN.iter().find(|(_, part)| part == plain);
                f.write_str(word.map_or("", |(word, _)| word))
            }
        }
    }
}

/// Explains a word that is no key part, by the nearest one that is.
fn unknown(text: &str, kind: &str) -> ValueError {
    /// Maximum number of edits of a near spelling.
    const NEAR: usize = 2;
    let lower = kind.to_ascii_lowercase();
    let distance = |known: &str| {
        // A long word costs nothing but its length.
        let is_close = lower.len().abs_diff(known.len()) <= NEAR;
        is_close.then(|| strsim::damerau_levenshtein(&lower, known))
    };
    let words = PLAIN.iter().map(|(word, _)| (*word, ""));
    let near = words
        .chain(KINDS.iter().map(|(kind, _)| (*kind, ":")))
        .filter_map(|(known, sign)| Some((distance(known)?, known, sign)))
        .min_by_key(|(far, ..)| *far)
        .filter(|(far, known, _)| *far <= NEAR.min(known.len() - 1));
    let name = text.strip_prefix(kind);
    let name = name.and_then(|rest| rest.strip_prefix(':'));
    let help = match near {
        Some((_, near, ":")) => format!("did you mean `{near}:{}`?", name.unwrap_or("NAME")),
        Some((_, near, _)) => format!("did you mean `{near}`?"),
        None => {
            "write one of: all, ip, ip/24, path, route, method, host, country, continent, asn, \
                 header:X, cookie:X, query:X, bearer, api_key, attr:X, jwt:X, form:X, json:/X, \
                 descriptor:X"
                .into()
        }
    };
    ValueError::new(format!("unknown key part `{text}`"), help)
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
mod tests;
