//! A rule: one `[[limit]]` of the policy, compiled. Skeleton of the model.

use std::sync::Arc;

use ipnet::IpNet;
use ratekeeper_core::{Limit, Mode, Nanos, Permits};

/// One limit of the policy.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name, identity and algorithm.
    pub limit: Limit,
    /// Whether it decides, and whether it may refuse.
    pub mode: RuleMode,
    /// Which requests it is for.
    pub matcher: Matcher,
    /// Whom it counts; empty for everybody together.
    pub key: Vec<KeyPart>,
    /// What happens when a key part is missing.
    pub missing_key: MissingKey,
    /// What a request costs.
    pub cost: Cost,
    /// Who is exempt.
    pub exemptions: Vec<Arc<Exemption>>,
    /// How a refusal looks.
    pub refusal: Arc<Refusal>,
    /// `q` of the RateLimit-Policy header: what the limit holds at most.
    pub quota: Permits,
    /// `w` of the RateLimit-Policy header: the span of the quota; none for months and years.
    pub window: Option<Nanos>,
    /// The limit in the policy's words: `20/day`, `bucket of 40, 20/1s`.
    pub text: String,
    /// Line of the policy file where the limit begins, from 1.
    pub line: usize,
}

/// `mode = "enforce" | "shadow" | "off"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RuleMode {
    /// Decides and refuses.
    #[default]
    Enforce,
    /// Decides and counts, never refuses.
    Shadow,
    /// Does nothing.
    Off,
}

impl RuleMode {
    /// The mode of a charge; none if the rule is off.
    pub const fn charge_mode(self) -> Option<Mode> {
        match self {
            Self::Enforce => Some(Mode::Enforce),
            Self::Shadow => Some(Mode::Shadow),
            Self::Off => None,
        }
    }
}

/// `match = { .. }`: all fields must hold; within a field, one of the values.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    /// Field and its acceptable values.
    pub fields: Vec<(Field, Vec<Pattern>)>,
}

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

/// Why a value of the language is refused: reason, and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ValueError {
    /// Lower case, no full stop, shows the value.
    pub reason: String,
    /// A concrete edit.
    pub help: String,
}

/// Whom a limit counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// `all`: everybody together; adds nothing to the key.
    All,
    /// `ip` (the client's address, IPv6 cut to the prefix), `ip/24`.
    Ip {
        /// Bits of an IPv4 address; none: all 32, and the policy's prefix for IPv6.
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
    /// `api_key`: header `x-api-key`, else a bearer token; only its hash is kept.
    ApiKey,
    /// `attr:X`
    Attribute(String),
}

impl KeyPart {
    /// Reads `ip`, `ip/24`, `header:x-user-id`, ...
    pub fn parse(_text: &str) -> Result<Self, ValueError> {
        todo!()
    }
}

impl std::fmt::Display for KeyPart {
    fn fmt(&self, _f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        todo!()
    }
}

/// `missing_key`: what happens when a request has no value for a key part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MissingKey {
    /// `skip`: the limit does not apply.
    Skip,
    /// `deny`: the request is refused.
    Deny,
    /// `use:PART`: another part stands in, by default the address.
    Use(KeyPart),
    /// `shared`: all such requests share one counter.
    Shared,
}

impl Default for MissingKey {
    fn default() -> Self {
        Self::Use(KeyPart::Ip { bits: None })
    }
}

/// What a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// What the caller says, 1 if it says nothing. The default.
    Request,
    /// Always the same, whatever the caller says.
    Fixed(Permits),
    /// The value of an attribute; 1 if it is missing or no whole number.
    Attribute(String),
}

/// `[[exempt]]`: requests that some limits do not count.
#[derive(Clone, Debug)]
pub struct Exemption {
    /// Which requests.
    pub matcher: Matcher,
    /// Why, for the record.
    pub reason: String,
}

/// How a refusal looks: `[response.NAME]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status, 400 to 599.
    pub status: u16,
    /// What the body holds.
    pub body: Body,
    /// Text with `{retry_after}`, `{limit}`; none for the standard sentence.
    pub detail: Option<String>,
}

impl Default for Refusal {
    fn default() -> Self {
        Self {
            status: 429,
            body: Body::ProblemJson,
            detail: None,
        }
    }
}

/// The body of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// RFC 9457.
    ProblemJson,
    /// Nothing.
    Empty,
    /// Text of the policy's own, with its content type.
    Text {
        /// What is sent.
        content: String,
        /// Its content type.
        content_type: String,
    },
}

/// `headers = "ietf" | "legacy" | "both" | "off"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HeaderStyle {
    /// `RateLimit-Policy` and `RateLimit`.
    #[default]
    Ietf,
    /// `X-RateLimit-*`.
    Legacy,
    /// Both.
    Both,
    /// Neither.
    Off,
}

/// Settings of the process that the policy file may hold.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Settings {
    /// `[listen]`: addresses of the doors.
    pub listen: Listen,
    /// `[store.memory] budget`: bytes the store may use; none for the default.
    pub memory_budget: Option<usize>,
}

/// `[listen]`: none means not stated, `Some("off")` means off.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Listen {
    /// The check API and forward-auth.
    pub http: Option<String>,
    /// Metrics, health, keys, reload.
    pub admin: Option<String>,
}
