//! Fields: the language as one table, which lists everything that the file may hold.
//!
//! A field has a shape and an example. Names of other programs, and what to write in their place,
//! are in `other_words.rs`.

use ratekeeper_core::Nanos;

use super::document::shape::{
    FieldSpec, Flag, NamedTables, Shape, TEXT, Table, Whole, Word, fields, tables,
};

mod algorithm;
mod clients;
mod correction;
mod gateway;
mod limit;
mod process;
mod requests;
mod store;
mod telemetry;

pub(crate) use self::algorithm::{ALGORITHMS, OWNED};
use self::clients::{CLIENT_IP, GEO, JWT};
pub(crate) use self::gateway::ERRORS;
use self::gateway::PROXY;
use self::limit::RESPONSE;
pub(crate) use self::limit::{DEFAULTS, LIMIT, QUANTITIES, QUANTITY};
use self::process::{ENVOY, LISTEN};
use self::requests::{EXEMPT, OVERRIDE, PLAN};
pub(crate) use self::requests::{MATCH, OVERRIDES};
use self::store::{MEMORY, REDIS, STORE};
use self::telemetry::{ALERTS, METRICS, OTLP};

/// Maximum number of limits of one policy.
const MAX_LIMITS: usize = 100_000;
/// Maximum number of overrides in the policy, and of those in the file that it names.
pub(crate) const MAX_OVERRIDES: usize = 100_000;
/// Maximum number of overrides with a pattern of one limit: they are compared one by one.
pub(crate) const MAX_PATTERNS: usize = 100;
/// Maximum number of different numbers that plans and overrides of one policy have: each takes
/// a table in the store.
pub(crate) const MAX_VARIANTS: usize = 10_000;
/// Maximum number of plans of one policy: names are compared one by one.
pub(crate) const MAX_PLANS: usize = 50;
/// Maximum number of keys with a plan in `from` of `[plan]`.
pub(crate) const MAX_PLAN_KEYS: usize = 100_000;
/// Maximum number of exemptions of one policy: each is checked per request and limit it names.
const MAX_EXEMPTIONS: usize = 100;
/// Maximum number of nodes that `url` of `[store.redis]` names.
pub(crate) const MAX_SEEDS: usize = 64;
/// Maximum number of names and patterns in `limits` of one exemption.
const MAX_EXEMPT_LIMITS: usize = 100;
/// Maximum number of responses of one policy.
const MAX_RESPONSES: usize = 1_000;
/// Largest `max_connections` of `[listen]`.
const MAX_CONNECTIONS: u64 = 1_000_000;
/// Maximum number of values of a list that is not indexed, because servers have a few of them.
const MAX_VALUES: usize = 1_000;
/// Maximum number of values of a field of `match`: they are indexed, so only memory grows.
pub(crate) const MAX_MATCH_VALUES: usize = 100_000;
/// Maximum number of parts of a key.
pub(crate) const MAX_KEY_PARTS: usize = 8;
/// Maximum number of distinct names in `header`, `query`, `cookie` or `attr` of one match.
pub(crate) const MAX_NAMES: usize = 32;
/// Maximum number of characters of a name.
pub(crate) const MAX_NAME: usize = 40;
/// Maximum number of permits on loan at once: core keeps a lease for each.
pub(crate) const MAX_AT_ONCE: u64 = 10_000;
/// Largest ratio of the price of a cold permit to that of a warm one.
const MAX_COLD_FACTOR: u64 = 1_000;
/// Largest percentage of an extra, and of a level that is no share of a limit.
pub(crate) const MAX_PERCENT: u32 = 1_000;
/// Largest factor by which a ban is longer than the last one.
pub(crate) const MAX_GROWTH: u64 = 100;
/// Maximum number of algorithms of tokens: all that there are.
const MAX_ALGORITHMS: usize = 12;
/// Maximum number of sub-buckets of a window.
const MAX_SUB_BUCKETS: u64 = 60;

/// A thousandth of a second: shorter times are not reported.
const MILLISECOND: Nanos = Nanos::from_millis(1);
const TEN_MINUTES: Nanos = Nanos::from_secs(600);
const HOUR: Nanos = Nanos::from_secs(3_600);
const DAY: Nanos = Nanos::from_secs(86_400);

const NAME: &str = "^[a-z0-9-]{1,40}$";
const QUOTA: &str = "^[0-9]+([.][0-9]+)?/([0-9]+(ns|us|ms|s|m|h|d|w)|hour|day|week|month|year)$";
const ROLLING: &str = "^[0-9]+([.][0-9]+)?/[0-9]+(ns|us|ms|s|m|h|d|w)$";
const ANCHOR: &str = "^(attr:.+|mon|tue|wed|thu|fri|sat|sun|[0-9]{4}-[0-9]{2}-[0-9]{2})$";
const AMOUNT_SOURCE: &str = "^(attr:|form:|json:/).+$";
const MISSING: &str = "^(skip|deny|shared|use:.+)$";
const STATUS: Shape = Whole(400, 599);

/// Heading of a limit.
const LIMITS: &str = "[[limit]]";

/// Place of a field that stands in another table than the one it was written in.
pub(crate) struct Owner {
    /// Heading of the table that has it: a limit, or a table of the top.
    pub(crate) heading: &'static str,
    pub(crate) field: &'static FieldSpec,
    /// Field of the limit that holds it: `match` of `path`.
    pub(crate) within: Option<&'static FieldSpec>,
}

/// Returns the owner of a field. A limit is meant before tables of the top, and one of these only
/// if no other has the field.
pub(crate) fn owner(name: &str) -> Option<Owner> {
    let owner = |(heading, field, within)| Owner {
        heading,
        field,
        within,
    };
    if let Some(field) = LIMIT.field(name) {
        return Some(owner((LIMITS, field, None)));
    }
    let inner = LIMIT.fields.iter().filter_map(|table| {
        let field = table.shape.find(Shape::table)?.field(name)?;
        Some((LIMITS, field, Some(table)))
    });
    let tables = [
        ("[client_ip]", &CLIENT_IP),
        ("[geo]", &GEO),
        ("[listen]", &LISTEN),
        ("[listen.proxy]", &PROXY),
        ("[envoy]", &ENVOY),
        ("[metrics]", &METRICS),
        ("[jwt]", &JWT),
        ("[store.memory]", &MEMORY),
        ("[store.redis]", &REDIS),
    ];
    let tables = tables.into_iter();
    let outer = tables.filter_map(|(heading, table)| Some((heading, table.field(name)?, None)));
    let mut found = inner.chain(outer);
    let first = found.next()?;
    found.next().is_none().then(|| owner(first))
}

/// Returns where to write a field of the top: behind the heading of a table it is one of this table.
pub(crate) fn above_tables(name: &str, value: Option<&str>) -> Option<String> {
    use Shape::{NamedTables, Table, Tables};
    let has_fields =
        |it: &&FieldSpec| matches!(it.shape, Table(_) | Tables { .. } | NamedTables(..));
    let field = POLICY.field(name).filter(|it| !has_fields(it))?;
    let value = value.unwrap_or(field.example);
    Some(format!(
        "write it above the first table of the file: {name} = {value}"
    ))
}

fields! {
    /// The whole file.
    pub(crate) POLICY = "the policy" {
        required version: Whole(1, 1), "1", "Version of the language.";
        optional timezone: TEXT, "\"UTC\"",
            "IANA time zone that calendar words (hour, day, week, month, year) follow.";
        optional headers: Word(&["ietf", "legacy", "both", "off"]), "\"ietf\"", "Headers that report limits to clients.";
        optional client_ip: Table(&CLIENT_IP), "{ trusted_proxies = [\"10.0.0.0/8\"] }",
            "Source of client addresses.";
        optional geo: Table(&GEO), "{ country_db = \"GeoLite2-Country.mmdb\" }",
            "Source of the country and the network of a client.";
        optional listen: Table(&LISTEN), "{ http = \"127.0.0.1:8080\" }",
            "Addresses of the listeners.";
        optional envoy: Table(&ENVOY), "{ config = \"ratelimit\" }", "Envoy's rate limit service.";
        optional store: Table(&STORE), "{ memory = { budget = \"256MiB\" } }",
            "Store of the counters.";
        optional alerts: Table(&ALERTS),
            "{ webhook = { url = \"https://hooks.example.com/ratekeeper\", secret = \
             \"env:RATEKEEPER_WEBHOOK_SECRET\" } }",
            "Where alerts go beside the log, the metrics and the admin listener.";
        optional reveal_keys: Word(&["hash", "prefix", "raw"]), "\"hash\"",
            "How keys are shown in lists of top keys and in the log of denials.";
        optional log_denials: Flag, "true",
            "Logs refused requests, the first of a key always and then fewer (default true).";
        optional log_requests: Flag, "true",
            "Shows method, path and X-Request-Id of refused requests in the log (default false).";
        optional otlp: Table(&OTLP), "{ endpoint = \"http://127.0.0.1:4318\" }",
            "Receiver of metrics and events by the OpenTelemetry protocol.";
        optional metrics: Table(&METRICS), "{ max_limits = 1000 }",
            "How much a scrape of the metrics shows.";
        optional defaults: Table(&DEFAULTS), "{ mode = \"shadow\" }",
            "Values for limits that do not set these fields themselves.";
        optional limit: tables(&LIMIT, 0..=MAX_LIMITS, "limit"),
            "[{ name = \"per-ip\", key = [\"ip\"], limit = \"100/1m\" }]",
            "The limits; all that match apply.";
        optional jwt: Table(&JWT), "{ keys = \"file:jwks.json\", algorithms = [\"ES256\"] }",
            "Valid tokens, for key parts jwt:X and matches jwt.X.";
        optional plan: Table(&PLAN), "{ from = \"header:x-plan\", default = \"free\" }",
            "Source of the plan of a request, for limits with `plans`.";
        optional r#override: tables(&OVERRIDE, 0..=MAX_OVERRIDES, "override"),
            "[{ limit = \"named\", key = { ip = \"192.0.2.7\" }, set = \"20/1m\" }]",
            "Other numbers for single keys.";
        optional overrides: TEXT, "\"overrides.csv\"",
            "File with more overrides, beside the policy: the columns limit,key,set,until,reason, \
             or [[override]] as here if its name ends in .toml.";
        optional exempt: tables(&EXEMPT, 0..=MAX_EXEMPTIONS, "exempt"),
            "[{ limits = [\"*\"], match = { path = \"/health\" } }]",
            "Requests that some limits do not count.";
        optional response: NamedTables(&RESPONSE, MAX_RESPONSES),
            "{ slow-down = { status = 429 } }",
            "Responses of refusals, by name.";
    }
}
