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
use crate::config::shape::{FieldSpec, Shape, TableSpec};

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
    ..TableSpec::EMPTY
};

pub(super) const MODE: FieldSpec = optional(
    "mode",
    Shape::Word(&["enforce", "shadow", "off"]),
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
    Shape::Word(&["local", "allow", "deny"]),
    "\"local\"",
    "Decision while the Redis store fails: local (this process applies its share of the limit), \
     allow or deny. It also applies to a late call. The charge of a late call stays in the store, \
     so deny costs permits that no request used, and local counts the request twice.",
);

pub(super) const PATH_CASE: FieldSpec = optional(
    "path_case",
    Shape::Word(&["insensitive", "sensitive"]),
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
    one_of: QUANTITIES,
};
