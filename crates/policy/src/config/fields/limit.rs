//! Fields of a limit, and of `[defaults]`.

use super::active::ACTIVE;
use super::alert::ALERT;
use super::algorithm::{ALGORITHM, ALGORITHMS, BALANCE, BUCKET, CONCURRENCY, QUEUE, WARMUP};
use super::ban::BAN;
use super::chain::{ELASTIC, OTHERWISE, SOFT};
use super::correction::{COST, COUNT, REPORT_WITHIN, RESET_ON};
use super::counting::{DISTINCT, PRIORITY};
use super::plan::PLANS;
use super::precedence::{ON_LIMIT, REPLACES, SCOPE};
use super::requests::MATCH;
use super::rollout::{CANDIDATE, PERCENT};
use super::unit::UNIT;
use super::{
    ANCHOR, DURATION, MAX_AT_ONCE, MAX_KEY_PARTS, MISSING, NAME, QUOTA, STATUS, TIMEZONE, list,
    optional, pattern, required, whole,
};
use crate::config::shape::{FieldSpec, NameHint, Shape, TableSpec, Words};

pub(super) static DEFAULTS: TableSpec = TableSpec {
    what: "`[defaults]`",
    fields: &[
        MODE,
        MISSING_KEY,
        RESPONSE_NAME,
        COUNT_DENIED,
        STATUS_FIELD,
        ON_STORE_ERROR,
        PATH_CASE,
    ],
    hints: hints! {
        "scope" => "set `scope` in each [[limit]]",
        "key" => "set `key` in each [[limit]]",
        "limit" => "set `limit` in each [[limit]]",
        "match" => "set `match` in each [[limit]]",
        "algorithm" => "set `algorithm` in each [[limit]]",
        "cost" => "set `cost` in each [[limit]]",
    },
    ..TableSpec::EMPTY
};

pub(super) const MODE: FieldSpec = optional(
    "mode",
    Shape::Word(Words {
        known: &["enforce", "shadow", "off"],
        hints: hints! {
            "on" => "write \"enforce\"",
            "block" => "write \"enforce\"",
            "deny" => "write \"enforce\"",
            "dry" => "to decide and count but never refuse, write \"shadow\"",
            "test" => "to decide and count but never refuse, write \"shadow\"",
            "warn" => "to decide and count but never refuse, write \"shadow\"",
            "observe" => "to decide and count but never refuse, write \"shadow\"",
            "simulate" => "to decide and count but never refuse, write \"shadow\"",
            "dry-run" => "to decide and count but never refuse, write \"shadow\"",
            "log" => "to decide and count but never refuse, write \"shadow\"",
            "monitor" => "to decide and count but never refuse, write \"shadow\"",
            "audit" => "to decide and count but never refuse, write \"shadow\"",
            "disabled" => "write \"off\"",
        },
    }),
    "\"shadow\"",
    "enforce: decides and refuses; shadow: decides and counts; off: does nothing.",
);
pub(super) const MISSING_KEY: FieldSpec = optional(
    "missing_key",
    pattern(MISSING),
    "\"use:ip\"",
    "Behaviour for a request without a part of the key: skip, deny, shared, or use:PART (default \
     use:ip).",
);
pub(super) const RESPONSE_NAME: FieldSpec = optional(
    "response",
    pattern(NAME),
    "\"slow-down\"",
    "Response of a refusal: the name of a [response.NAME].",
);
pub(super) const COUNT_DENIED: FieldSpec = optional(
    "count_denied",
    Shape::Flag,
    "true",
    "Counts refused requests as well.",
);
pub(super) const STATUS_FIELD: FieldSpec = optional(
    "status",
    STATUS,
    "429",
    "HTTP status of a refusal; overrides that of a `response` beside it.",
);

pub(super) const ON_STORE_ERROR: FieldSpec = optional(
    "on_store_error",
    Shape::Word(Words {
        known: &["local", "allow", "deny"],
        hints: hints! {
            "open" => "to let every request pass, write \"allow\"",
            "fail-open" => "to let every request pass, write \"allow\"",
            "closed" => "to refuse every request, write \"deny\"",
            "fail-closed" => "to refuse every request, write \"deny\"",
            "memory" => "to count in this process meanwhile, write \"local\"",
        },
    }),
    "\"local\"",
    "Decision while the Redis store fails: local (this process applies its share of the limit), \
     allow or deny. It also applies to a late call. The charge of a late call stays in the store, \
     so deny costs permits that no request used, and local counts the request twice.",
);

pub(super) const PATH_CASE: FieldSpec = optional(
    "path_case",
    Shape::Word(Words {
        known: &["insensitive", "sensitive"],
        hints: hints! {
            "ignore" => "write \"insensitive\"",
            "lower" => "write \"insensitive\"",
            "exact" => "write \"sensitive\"",
            "strict" => "write \"sensitive\"",
        },
    }),
    "\"sensitive\"",
    "Case of paths: insensitive (default) treats /Login and /login as one path, sensitive as two.",
);

const NUMBER_FIELD: FieldSpec = optional(
    "limit",
    pattern(QUOTA),
    "\"100/1m\"",
    "Requests in a period: a duration (1m), counted by the algorithm, or a calendar period (day).",
);
const BUCKET_FIELD: FieldSpec = optional(
    "bucket",
    Shape::Table(&BUCKET),
    "{ size = 20, refill = \"10/1s\" }",
    "Bucket of permits: its size (the burst) and its refill.",
);
const SPACING_FIELD: FieldSpec = optional(
    "spacing",
    pattern(DURATION),
    "\"200ms\"",
    "Minimum time between two requests.",
);
const CONCURRENCY_FIELD: FieldSpec = optional(
    "concurrency",
    Shape::Either(CONCURRENCIES),
    "{ max = 50, lease = \"60s\" }",
    "Maximum number of permits on loan at once; POST /v1/acquire takes a permit, POST /v1/release \
     returns it.",
);
const BALANCE_FIELD: FieldSpec = optional(
    "balance",
    Shape::Table(&BALANCE),
    "{ start = 100, max = 1000000 }",
    "Prepaid credits, which do not refill; POST /v1/grant of the admin listener adds some.",
);
const ALGORITHM_FIELD: FieldSpec = optional(
    "algorithm",
    Shape::Either(WAYS),
    "\"fixed-window\"",
    "Algorithm of `limit` (default token-bucket).",
);
const QUEUE_FIELD: FieldSpec = optional(
    "queue",
    Shape::Table(&QUEUE),
    "{ max = 100, max_wait = \"2s\" }",
    "Queue for excess requests, beside a token bucket, a leaky bucket or spacing.",
);
const WARMUP_FIELD: FieldSpec = optional(
    "warmup",
    Shape::Table(&WARMUP),
    "{ period = \"10s\", cold_factor = 3 }",
    "Warm-up beside `limit`: after a rest, requests are admitted slowly at first, as in Guava.",
);
const ANCHOR_FIELD: FieldSpec = optional(
    "anchor",
    Shape::Either(ANCHORS),
    "15",
    "Beside a calendar limit: the day on which its periods begin. For a month a number (in a shorter \
     month, its last day), a date or attr:NAME, an attribute with the day of each key; for a week \
     mon to sun; for a year a date.",
);
/// `anchor`: a day of the month, a word or an attribute, or a date.
const ANCHORS: &[Shape] = &[whole(1, 31), pattern(ANCHOR), Shape::Moment];
/// `concurrency`: a number, or a table.
const CONCURRENCIES: &[Shape] = &[whole(1, MAX_AT_ONCE), Shape::Table(&CONCURRENCY)];
/// `algorithm`: a word, or a table.
const WAYS: &[Shape] = &[Shape::Word(ALGORITHMS), Shape::Table(&ALGORITHM)];
/// Exactly one of these sets the quantity of a limit.
pub(in crate::config) const QUANTITIES: &[&str] =
    &["limit", "bucket", "spacing", "concurrency", "balance"];

/// One `[[limit]]`.
pub(in crate::config) static LIMIT: TableSpec = TableSpec {
    what: "a limit",
    fields: &[
        required(
            "name",
            pattern(NAME),
            "\"per-ip\"",
            "Unique name, which identifies the counters across reloads.",
        ),
        optional(
            "match",
            Shape::Table(&MATCH),
            "{ path = \"/login\" }",
            "Requests that the limit applies to (default: all).",
        ),
        required(
            "key",
            list(MAX_KEY_PARTS),
            "[\"ip\"]",
            "Parts of the key: one counter for each combination of their values.",
        ),
        NUMBER_FIELD,
        BUCKET_FIELD,
        SPACING_FIELD,
        CONCURRENCY_FIELD,
        BALANCE_FIELD,
        ANCHOR_FIELD,
        ALGORITHM_FIELD,
        QUEUE_FIELD,
        WARMUP_FIELD,
        UNIT,
        COST,
        COUNT,
        RESET_ON,
        REPORT_WITHIN,
        optional(
            "active",
            Shape::Table(&ACTIVE),
            "{ hours = \"01:00-06:00\", timezone = \"Europe/Oslo\" }",
            "Hours, days and dates at which the limit applies (default: always).",
        ),
        optional(
            "alert",
            Shape::Table(&ALERT),
            "{ above = \"80%\", for = \"2m\" }",
            "Reports keys that stay above a part of the limit.",
        ),
        MODE,
        MISSING_KEY,
        RESPONSE_NAME,
        STATUS_FIELD,
        ON_STORE_ERROR,
        COUNT_DENIED,
        PATH_CASE,
        PLANS,
        BAN,
        SOFT,
        ELASTIC,
        OTHERWISE,
        REPLACES,
        ON_LIMIT,
        PERCENT,
        CANDIDATE,
        SCOPE,
        DISTINCT,
        PRIORITY,
    ],
    hints: LIMIT_HINTS,
    one_of: QUANTITIES,
};

/// How much a limit allows, by itself: a limiter inside a program.
pub(in crate::config) static QUANTITY: TableSpec = TableSpec {
    what: "a limiter",
    fields: &[
        NUMBER_FIELD,
        BUCKET_FIELD,
        SPACING_FIELD,
        CONCURRENCY_FIELD,
        BALANCE_FIELD,
        ANCHOR_FIELD,
        ALGORITHM_FIELD,
        QUEUE_FIELD,
        WARMUP_FIELD,
        COUNT_DENIED,
        TIMEZONE,
    ],
    hints: LIMIT_HINTS,
    one_of: QUANTITIES,
};

pub(super) const LIMIT_HINTS: &[NameHint] = hints! {
    "plan" => "write plans = { pro = \"600/1m\" }",
    "overrides" => "write overrides as tables of their own: [[override]] with limit = \"per-ip\"",
    "override" => "write overrides as tables of their own: [[override]] with limit = \"per-ip\"",
    "extra" => "write soft = { extra = \"10%\" }",
    "up_to" => "write elastic = { up_to = \"200/1m\", while = { signal = \"load\", below = \"70%\" } }",
    "credits" => "write balance = { start = 100, max = 1000000 }",
    "grant" => "leave it out: credits are granted with POST /v1/grant of the admin listener",
    "fallback" => "name the limits that are asked when this one denies: otherwise = [\"promo\"]",
    "else" => "name the limits that are asked when this one denies: otherwise = [\"promo\"]",
    "block" => "write ban = { after = 3, within = \"24h\", for = \"1h\" }",
    "lockout" => "write ban = { after = 3, within = \"24h\", for = \"1h\" }",
    "expire" => "write report_within = \"2m\"",
    "settle" => "put it into `cost`: cost = { reserve = \"attr:max_tokens\", settle = \"response.header:x-tokens-used\" }",
    "reserve" => "put it into `cost`: cost = { reserve = \"attr:max_tokens\" }",
    "outcome" => "put it into `count`: count = { outcome = \"declined\" }",
    "hours" => "put it into `active`: active = { hours = \"01:00-06:00\" }",
    "days" => "put it into `active`: active = { days = [\"mon-fri\"] }",
    "schedule" => "write active = { hours = \"01:00-06:00\" }",
    "currency" => "write unit = { name = \"USD\", decimals = 2 }",
    "decimals" => "write unit = { name = \"USD\", decimals = 2 }",
    "rollout" => "enforce the limit for a share of its keys: percent = 10",
    "sample" => "enforce the limit for a share of its keys: percent = 10",
    "try" => "try another number beside this one: candidate = \"80/1m\"",
    "instead_of" => "name the limits that are not asked where this one applies: replaces = [\"api\"]",
    "unless" => "name the limits that are not asked where this one applies: replaces = [\"api\"]",
    "shed" => "write priority = { last = \"20%\", match = { path = \"/health\" } }",
    "unique" => "write distinct = \"attr:account\"",
    "alerts" => "write alert = { above = \"80%\", for = \"2m\" }",
    "billing_day" => "write anchor = \"attr:billing_day\"",
    "when" => "use `match`: match = { method = \"POST\", path = \"/login\" }",
    "burst" => "the burst of a bucket is its `size`: bucket = { size = 40, refill = \"20/1s\" \
        }",
    "rate" => "write number and period as one string: limit = \"100/1m\"",
    "quota" => "write number and period as one string: limit = \"100/1m\"",
    "requests" => "write number and period as one string: limit = \"100/1m\"",
    "max" => "write number and period as one string: limit = \"100/1m\"",
    "per" => "write number and period as one string: limit = \"100/1m\"",
    "period" => "write number and period as one string: limit = \"100/1m\"",
    "window" => "write number and period as one string: limit = \"100/1m\"",
    "interval" => "write number and period as one string: limit = \"100/1m\"",
    "by" => "group requests with `key`: key = [\"ip\"]",
    "group_by" => "group requests with `key`: key = [\"ip\"]",
    "path" => "put it into `match`: match = { path = \"/login\" }",
    "method" => "put it into `match`: match = { method = \"POST\" }",
    "host" => "put it into `match`: match = { host = \"api.example.com\" }",
    "ip" => "to count by address, write key = [\"ip\"]; to match some, match = { ip = \
        \"192.0.2.0/24\" }",
    "matches" => "write match = { path = \"/login\" }",
    "shadow" => "write mode = \"shadow\"",
    "dry_run" => "write mode = \"shadow\"",
    "enabled" => "write mode = \"enforce\" or mode = \"off\"",
    "disabled" => "write mode = \"off\"",
    "size" => "put it into `bucket`: bucket = { size = 20, refill = \"10/1s\" }",
    "max_wait" => "put it into `queue`: queue = { max = 100, max_wait = \"2s\" }",
    "case_sensitive" => "write path_case = \"sensitive\"",
    "second" => "write number and period as one string: limit = \"100/1s\"",
    "minute" => "write number and period as one string: limit = \"100/1m\"",
    "hour" => "write number and period as one string: limit = \"100/1h\"",
    "day" => "write number and period as one string: limit = \"100/24h\"",
    "month" => "write number and period as one string: limit = \"100/30d\"",
    "per_second" => "write number and period as one string: limit = \"100/1s\"",
    "average" => "write rate and burst as one table: bucket = { size = 20, refill = \"10/1s\" }",
    "throttle" => "write rate and burst as one table: bucket = { size = 20, refill = \"10/1s\" }",
    "replenishrate" => "write rate and burst as one table: bucket = { size = 20, refill = \"10/1s\" }",
    "burstcapacity" => "the burst of a bucket is its `size`: bucket = { size = 20, refill = \"10/1s\" }",
    "requests_per_period" => "write number and period as one string: limit = \"100/1m\"",
    "requests_per_unit" => "write number and period as one string: limit = \"100/1m\"",
    "permitspersecond" => "write number and period as one string: limit = \"100/1s\"",
    "nodelay" => "leave it out: a bucket refuses excess requests, unless it has a `queue` beside \
        it",
    "warm_up" => "write warmup = { period = \"10s\" }",
    "cold_factor" => "put it into `warmup`: warmup = { period = \"10s\", cold_factor = 3 }",
    "refill" => "put it into `bucket`: bucket = { size = 20, refill = \"10/1s\" }",
    "lease" => "put it into `concurrency`: concurrency = { max = 50, lease = \"60s\" }",
    "max_connections" => "write concurrency = { max = 50, lease = \"60s\" }",
    "in_flight" => "write concurrency = { max = 50, lease = \"60s\" }",
    "id" => "write name = \"per-ip\"",
    "description" => "write a comment: # what it is for",
    "message" => "put it into a response: [response.slow-down] with detail = \"Try again \
        in {retry_after}.\"",
    "exempt" => "write exemptions as tables of their own: [[exempt]] with limits = [\"per-ip\"]",
};
