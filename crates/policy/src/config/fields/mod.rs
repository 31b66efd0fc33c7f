//! Fields: the language as one table, which lists everything that the file may hold.
//!
//! A field that is built has a shape and an example. One that the language has but that is not
//! built yet is refused with what works today; a word that people try instead is refused with the
//! right one.

use super::shape::{FieldSpec, Need, Shape, TableSpec};

/// Pairs of a name and what to write in its place.
macro_rules! hints {
    ($($name:literal => $instead:expr,)*) => {
        &[$(($name, $instead)),*]
    };
}

mod active;
mod alert;
mod algorithm;
mod ban;
mod chain;
mod correction;
mod counting;
mod gateway;
mod geo;
mod jwt;
mod limit;
mod plan;
mod precedence;
mod process;
mod requests;
mod response;
mod rollout;
mod store;
mod telemetry;
mod unit;

use self::alert::ALERTS;
use self::gateway::PROXY;
use self::geo::GEO;
use self::jwt::JWT;
use self::limit::DEFAULTS;
pub(in crate::config) use self::limit::{LIMIT, QUANTITIES, QUANTITY};
pub(in crate::config) use self::plan::OVERRIDES;
use self::plan::{OVERRIDE_TABLES, PLAN};
use self::process::{CLIENT_IP, ENVOY, HEADERS, LISTEN, METRICS, REVEAL_KEYS};
use self::requests::EXEMPT;
pub(in crate::config) use self::requests::MATCH;
use self::response::RESPONSE;
use self::store::STORE;
use self::telemetry::OTLP;

/// Maximum number of limits of one policy.
const MAX_LIMITS: usize = 100_000;
/// Maximum number of overrides in the policy, and of those in the file that it names.
pub(in crate::config) const MAX_OVERRIDES: usize = 100_000;
/// Maximum number of overrides with a pattern of one limit: they are compared one by one.
pub(in crate::config) const MAX_PATTERNS: usize = 100;
/// Maximum number of different numbers that plans and overrides of one policy have: each takes
/// a table in the store.
pub(in crate::config) const MAX_VARIANTS: usize = 10_000;
/// Maximum number of plans of one policy: names are compared one by one.
pub(in crate::config) const MAX_PLANS: usize = 50;
/// Maximum number of keys with a plan in `from` of `[plan]`.
pub(in crate::config) const MAX_PLAN_KEYS: usize = 100_000;
/// Maximum number of exemptions of one policy: each is checked per request and limit it names.
const MAX_EXEMPTIONS: usize = 100;
/// Maximum number of nodes that `url` of `[store.redis]` names.
pub(in crate::config) const MAX_SEEDS: usize = 64;
/// Maximum number of names and patterns in `limits` of one exemption.
const MAX_EXEMPT_LIMITS: usize = 100;
/// Maximum number of responses of one policy.
const MAX_RESPONSES: usize = 1_000;
/// Largest `max_connections` of `[listen]`.
const MAX_CONNECTIONS: u64 = 1_000_000;
/// Maximum number of values of a list that is not indexed, because servers have a few of them.
const MAX_VALUES: usize = 1_000;
/// Maximum number of values of a field of `match`: they are indexed, so only memory grows.
pub(in crate::config) const MAX_MATCH_VALUES: usize = 100_000;
/// Maximum number of parts of a key.
pub(in crate::config) const MAX_KEY_PARTS: usize = 8;
/// Maximum number of distinct names in `header`, `query`, `cookie` or `attr` of one match.
pub(in crate::config) const MAX_NAMES: usize = 32;
/// Maximum number of characters of a name.
pub(in crate::config) const MAX_NAME: usize = 40;
/// Maximum number of permits on loan at once: core keeps a lease for each.
pub(in crate::config) const MAX_AT_ONCE: u64 = 10_000;
/// Largest ratio of the price of a cold permit to that of a warm one.
const MAX_COLD_FACTOR: u64 = 1_000;
/// Largest factor by which a ban is longer than the last one.
pub(in crate::config) const MAX_GROWTH: u64 = 100;
/// Maximum number of algorithms of tokens: all that there are.
const MAX_ALGORITHMS: usize = 12;
/// Maximum number of sub-buckets of a window.
const MAX_SUB_BUCKETS: u64 = 60;

const NAME: &str = "^[a-z0-9-]{1,40}$";
const QUOTA: &str = "^[0-9]+([.][0-9]+)?/([0-9]+(ns|us|ms|s|m|h|d|w)|hour|day|week|month|year)$";
const ROLLING: &str = "^[0-9]+([.][0-9]+)?/[0-9]+(ns|us|ms|s|m|h|d|w)$";
const UNIT_NAME: &str = "^[A-Za-z0-9]{1,16}$";
pub(in crate::config) const DURATION: &str = "^[0-9]+(ns|us|ms|s|m|h|d|w)$";
const BYTES: &str = "^[0-9]+(B|KiB|MiB|GiB)$";
const SECRET: &str = "^(env|file):.+$";
const PREFIX: &str = "^[A-Za-z0-9:._-]{1,40}$";
const ANCHOR: &str = "^(attr:.+|mon|tue|wed|thu|fri|sat|sun|[0-9]{4}-[0-9]{2}-[0-9]{2})$";
const AMOUNT_SOURCE: &str = "^(attr:|form:|json:/).+$";
const MISSING: &str = "^(skip|deny|shared|use:.+)$";
const STATUS: Shape = whole(400, 599);

const fn required(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    about: &'static str,
) -> FieldSpec {
    FieldSpec {
        name,
        need: Need::Required,
        shape,
        example,
        about,
    }
}

const fn optional(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    about: &'static str,
) -> FieldSpec {
    FieldSpec {
        name,
        need: Need::Optional,
        shape,
        example,
        about,
    }
}

const fn pattern(pattern: &'static str) -> Shape {
    Shape::Text {
        pattern: Some(pattern),
    }
}

const fn whole(least: u64, most: u64) -> Shape {
    Shape::Whole { least, most }
}

const fn texts(most: usize) -> Shape {
    Shape::Texts { most }
}

const fn list(most: usize) -> Shape {
    Shape::List { most }
}

const fn named(most: usize) -> Shape {
    Shape::Named { most }
}

const TIMEZONE: FieldSpec = optional(
    "timezone",
    Shape::TEXT,
    "\"UTC\"",
    "IANA time zone that calendar words (hour, day, week, month, year) follow.",
);

/// Returns the table that has a field, as its heading, and the field: a limit, or a table of the top.
pub(in crate::config) fn owner(name: &str) -> Option<(&'static str, &'static FieldSpec)> {
    let tables = [
        ("[[limit]]", &LIMIT),
        ("[client_ip]", &CLIENT_IP),
        ("[geo]", &GEO),
        ("[listen]", &LISTEN),
        ("[listen.proxy]", &PROXY),
        ("[envoy]", &ENVOY),
        ("[metrics]", &METRICS),
        ("[jwt]", &JWT),
    ];
    let mut found = tables
        .into_iter()
        .filter_map(|(heading, table)| Some((heading, table.field(name)?)));
    let first = found.next()?;
    // A field of a limit is meant before others; of other tables only one that no other has.
    (first.0 == "[[limit]]" || found.next().is_none()).then_some(first)
}

/// The whole file.
pub(in crate::config) static POLICY: TableSpec = TableSpec {
    what: "the policy",
    fields: &[
        required("version", whole(1, 1), "1", "Version of the language."),
        TIMEZONE,
        optional(
            "headers",
            Shape::Word(HEADERS),
            "\"ietf\"",
            "Headers that report limits to clients.",
        ),
        optional(
            "client_ip",
            Shape::Table(&CLIENT_IP),
            "{ trusted_proxies = [\"10.0.0.0/8\"] }",
            "Source of client addresses.",
        ),
        optional(
            "geo",
            Shape::Table(&GEO),
            "{ country_db = \"GeoLite2-Country.mmdb\" }",
            "Source of the country and the network of a client.",
        ),
        optional(
            "listen",
            Shape::Table(&LISTEN),
            "{ http = \"127.0.0.1:8080\" }",
            "Addresses of the listeners.",
        ),
        optional(
            "envoy",
            Shape::Table(&ENVOY),
            "{ config = \"ratelimit\" }",
            "Envoy's rate limit service.",
        ),
        optional(
            "store",
            Shape::Table(&STORE),
            "{ memory = { budget = \"256MiB\" } }",
            "Store of the counters.",
        ),
        optional(
            "alerts",
            Shape::Table(&ALERTS),
            "{ webhook = { url = \"https://hooks.example.com/ratekeeper\", secret = \
             \"env:RATEKEEPER_WEBHOOK_SECRET\" } }",
            "Where alerts go beside the log, the metrics and the admin listener.",
        ),
        optional(
            "reveal_keys",
            Shape::Word(REVEAL_KEYS),
            "\"hash\"",
            "How keys are shown in lists of top keys and in the log of denials.",
        ),
        optional(
            "log_denials",
            Shape::Flag,
            "true",
            "Logs refused requests, the first of a key always and then fewer (default true).",
        ),
        optional(
            "log_requests",
            Shape::Flag,
            "true",
            "Shows method, path and X-Request-Id of refused requests in the log (default false).",
        ),
        optional(
            "otlp",
            Shape::Table(&OTLP),
            "{ endpoint = \"http://127.0.0.1:4318\" }",
            "Receiver of metrics and events by the OpenTelemetry protocol.",
        ),
        optional(
            "metrics",
            Shape::Table(&METRICS),
            "{ max_limits = 1000 }",
            "How much a scrape of the metrics shows.",
        ),
        optional(
            "defaults",
            Shape::Table(&DEFAULTS),
            "{ mode = \"shadow\" }",
            "Values for limits that do not set these fields themselves.",
        ),
        optional(
            "limit",
            Shape::Tables {
                of: &LIMIT,
                most: MAX_LIMITS,
                heading: "limit",
            },
            "[{ name = \"per-ip\", key = [\"ip\"], limit = \"100/1m\" }]",
            "The limits; all that match apply.",
        ),
        optional(
            "jwt",
            Shape::Table(&JWT),
            "{ keys = \"file:jwks.json\", algorithms = [\"ES256\"] }",
            "Valid tokens, for key parts jwt:X and matches jwt.X.",
        ),
        optional(
            "plan",
            Shape::Table(&PLAN),
            "{ from = \"header:x-plan\", default = \"free\" }",
            "Source of the plan of a request, for limits with `plans`.",
        ),
        OVERRIDE_TABLES,
        optional(
            "overrides",
            Shape::TEXT,
            "\"overrides.csv\"",
            "File with more overrides, beside the policy: the columns limit,key,set,until,reason, or \
             [[override]] as here if its name ends in .toml.",
        ),
        optional(
            "exempt",
            Shape::Tables {
                of: &EXEMPT,
                most: MAX_EXEMPTIONS,
                heading: "exempt",
            },
            "[{ limits = [\"*\"], match = { path = \"/health\" } }]",
            "Requests that some limits do not count.",
        ),
        optional(
            "response",
            Shape::NamedTables {
                of: &RESPONSE,
                most: MAX_RESPONSES,
            },
            "{ slow-down = { status = 429 } }",
            "Responses of refusals, by name.",
        ),
    ],
    hints: hints! {
        "alert" => "write `alert` in each [[limit]], and [alerts] for where alerts go",
        "webhook" => "move it under [alerts]: webhook = { url = \"https://hooks.example.com/\", secret = \
            \"env:RATEKEEPER_WEBHOOK_SECRET\" }",
        "geoip" => "write [geo] with country_db = \"GeoLite2-Country.mmdb\"",
        "country_db" => "move it under [geo]: country_db = \"GeoLite2-Country.mmdb\"",
        "asn_db" => "move it under [geo]: asn_db = \"GeoLite2-ASN.mmdb\"",
        "plans" => "write [plan] with from and default, and `plans` in each [[limit]]",
        "secrets" => "leave it out: no supported field needs it",
        "limits" => "write each limit as a table of its own: [[limit]]",
        "rule" => "write [[limit]]: a rule is called a limit",
        "rules" => "write [[limit]]: a rule is called a limit",
        "exemption" => "write [[exempt]]",
        "responses" => "give each response a name: [response.slow-down]",
        "trusted_proxies" => "move it under [client_ip]: trusted_proxies = [\"10.0.0.0/8\"]",
        "ipv6_prefix" => "move it under [client_ip]: ipv6_prefix = 64",
        "events" => "write log_denials = true for lines about refused requests",
        "opentelemetry" => "write [otlp] with endpoint = \"http://127.0.0.1:4318\"",
        "otel" => "write [otlp] with endpoint = \"http://127.0.0.1:4318\"",
        "log" => "write log_denials = true for lines about refused requests",
        "proxy" => "it belongs under [listen]: [listen.proxy] with upstream = \"http://127.0.0.1:3000\"",
        "gateway" => "write [listen.proxy] with upstream = \"http://127.0.0.1:3000\"",
        "server" => "write [listen] with http = \"127.0.0.1:8080\"",
        "domain" => "match it in a limit: match = { domain = \"edge\" }; a file of Envoy's rate limit \
            service is read by [envoy] with config = \"FILE\"",
        "descriptors" => "match entries in a limit: match = { descriptor.user = \"*\" }; a file of \
            Envoy's rate limit service is read by [envoy] with config = \"FILE\"",
        "whitelist" => "write [[exempt]] with limits = [\"*\"] and match = { ip = \"192.0.2.0/24\" }",
        "allowlist" => "write [[exempt]] with limits = [\"*\"] and match = { ip = \"192.0.2.0/24\" }",
        "tz" => "write timezone = \"UTC\"",
        "budget" => "move it under [store.memory]: budget = \"256MiB\"",
        "redis" => "move it under [store]: [store.redis] with url = \"redis://127.0.0.1:6379\"",
    },
    one_of: &[],
};
