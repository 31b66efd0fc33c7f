//! Fields of a limit, and of `[defaults]`.

use super::algorithm::{ALGORITHM, ALGORITHMS, BUCKET, CONCURRENCY, QUEUE, WARMUP};
use super::requests::MATCH;
use super::{
    ATTRIBUTE, MAX_AT_ONCE, MAX_KEY_PARTS, MISSING, NAME, QUOTA, SPAN, STATUS, TIMEZONE, optional,
    pattern, required,
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
    planned: hints! {
        "scope" => "leave it out: a limit counts on its own node, and with [store.redis] on all \
            nodes together",
    },
    mistaken: hints! {
        "key" => "each [[limit]] has its own key",
        "limit" => "each [[limit]] has its own number",
        "match" => "each [[limit]] has its own match",
        "algorithm" => "each [[limit]] has its own algorithm",
        "cost" => "each [[limit]] has its own cost",
    },
    ..TableSpec::EMPTY
};

pub(super) const MODE: FieldSpec = optional(
    "mode",
    Shape::Word(Words {
        known: &["enforce", "shadow", "off"],
        planned: &[],
        mistaken: hints! {
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
    "When a request lacks a part of the key: skip, deny, shared, or use:PART (default use:ip).",
);
pub(super) const RESPONSE_NAME: FieldSpec = optional(
    "response",
    pattern(NAME),
    "\"slow-down\"",
    "How a refusal looks: the name of a [response.NAME].",
);
pub(super) const COUNT_DENIED: FieldSpec = optional(
    "count_denied",
    Shape::Flag,
    "true",
    "Whether refused requests are counted as well.",
);
pub(super) const STATUS_FIELD: FieldSpec = optional(
    "status",
    STATUS,
    "429",
    "HTTP status of a refusal; goes before that of a response beside it.",
);

pub(super) const ON_STORE_ERROR: FieldSpec = optional(
    "on_store_error",
    Shape::Word(Words {
        known: &["local", "allow", "deny"],
        planned: &[],
        mistaken: hints! {
            "open" => "to let everything pass, write \"allow\"",
            "fail-open" => "to let everything pass, write \"allow\"",
            "closed" => "to refuse everything, write \"deny\"",
            "fail-closed" => "to refuse everything, write \"deny\"",
            "memory" => "to count in this process meanwhile, write \"local\"",
        },
    }),
    "\"local\"",
    "While the Redis store fails, local: this process holds its share; allow; deny. Also of a \
     call that is late: what the store charges for it stays charged, so deny costs permits that \
     nobody used, and local counts the request twice.",
);

pub(super) const PATH_CASE: FieldSpec = optional(
    "path_case",
    Shape::Word(Words {
        known: &["insensitive", "sensitive"],
        planned: &[],
        mistaken: hints! {
            "ignore" => "write \"insensitive\"",
            "lower" => "write \"insensitive\"",
            "exact" => "write \"sensitive\"",
            "strict" => "write \"sensitive\"",
        },
    }),
    "\"sensitive\"",
    "Whether /Login is another path than /login: insensitive (default) or sensitive.",
);

const NUMBER_FIELD: FieldSpec = optional(
    "limit",
    pattern(QUOTA),
    "\"100/1m\"",
    "Requests in a period: of a duration by the algorithm, of a word (day) by the calendar.",
);
const BUCKET_FIELD: FieldSpec = optional(
    "bucket",
    Shape::Table(&BUCKET),
    "{ size = 20, refill = \"10/1s\" }",
    "A burst, refilled at a pace.",
);
const SPACING_FIELD: FieldSpec = optional(
    "spacing",
    pattern(SPAN),
    "\"200ms\"",
    "The least time between two requests.",
);
const CONCURRENCY_FIELD: FieldSpec = optional(
    "concurrency",
    Shape::Either(CONCURRENCIES),
    "{ max = 50, lease = \"60s\" }",
    "How many may be at work at once; POST /v1/acquire takes a permit, release returns it.",
);
const ALGORITHM_FIELD: FieldSpec = optional(
    "algorithm",
    Shape::Either(WAYS),
    "\"fixed-window\"",
    "How `limit` counts; a token bucket if left out.",
);
const QUEUE_FIELD: FieldSpec = optional(
    "queue",
    Shape::Table(&QUEUE),
    "{ max = 100, max_wait = \"2s\" }",
    "Beside a token bucket, a leaky bucket or spacing: what is over waits its turn.",
);
const WARMUP_FIELD: FieldSpec = optional(
    "warmup",
    Shape::Table(&WARMUP),
    "{ period = \"10s\", cold_factor = 3 }",
    "Beside `limit`: whoever has rested is served slowly at first, as by Guava.",
);
/// `concurrency`: a number, or a table.
const CONCURRENCIES: &[Shape] = &[
    Shape::Whole {
        least: 1,
        most: MAX_AT_ONCE,
    },
    Shape::Table(&CONCURRENCY),
];
/// `algorithm`: a word, or a table.
const WAYS: &[Shape] = &[Shape::Word(ALGORITHMS), Shape::Table(&ALGORITHM)];
/// Exactly one of these sets the quantity of a limit.
const QUANTITIES: &[&str] = &["limit", "bucket", "spacing", "concurrency"];

/// One `[[limit]]`.
pub(super) static LIMIT: TableSpec = TableSpec {
    what: "a limit",
    fields: &[
        required(
            "name",
            pattern(NAME),
            "\"per-ip\"",
            "Unique; the identity of the counters across reloads.",
        ),
        optional(
            "match",
            Shape::Table(&MATCH),
            "{ path = \"/login\" }",
            "Which requests it is for; all of them if left out.",
        ),
        required(
            "key",
            Shape::List {
                most: MAX_KEY_PARTS,
            },
            "[\"ip\"]",
            "Whom it counts: one counter for each combination of these.",
        ),
        NUMBER_FIELD,
        BUCKET_FIELD,
        SPACING_FIELD,
        CONCURRENCY_FIELD,
        ALGORITHM_FIELD,
        QUEUE_FIELD,
        WARMUP_FIELD,
        optional(
            "cost",
            Shape::Either(&[
                Shape::Whole {
                    least: 1,
                    most: u32::MAX as u64,
                },
                pattern(ATTRIBUTE),
                Shape::PlannedTable {
                    instead: "charge the whole cost at the request: cost = \"attr:max_tokens\"",
                },
            ]),
            "5",
            "What a request costs: a number, or the attribute that holds it.",
        ),
        MODE,
        MISSING_KEY,
        RESPONSE_NAME,
        STATUS_FIELD,
        ON_STORE_ERROR,
        COUNT_DENIED,
        PATH_CASE,
    ],
    planned: LIMIT_PLANNED,
    mistaken: LIMIT_MISTAKEN,
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
        ALGORITHM_FIELD,
        QUEUE_FIELD,
        WARMUP_FIELD,
        COUNT_DENIED,
        TIMEZONE,
    ],
    planned: LIMIT_PLANNED,
    mistaken: LIMIT_MISTAKEN,
    one_of: QUANTITIES,
};

pub(super) const LIMIT_PLANNED: &[NameHint] = hints! {
    "plans" => "write one limit for each plan, each with its match = { attr.plan = \"pro\" }",
    "soft" => "add a second limit with the lower number and mode = \"shadow\": it tells, and \
        refuses nothing",
    "elastic" => "leave it out, and set `limit` to what the server always bears",
    "ban" => "count_denied = true keeps out a client that goes on trying",
    "count" => "every request that matches is counted today; leave `count` out, and ask only \
        when the event has happened",
    "reset_on" => "leave it out, and let the application call POST /v1/reset",
    "active" => "leave it out: the limit is then active at all hours",
    "unit" => "count in the smallest unit, such as cents: cost = \"attr:amount_cents\"",
    "scope" => "leave it out: a limit counts on its own node, and with [store.redis] on all \
        nodes together",
    "priority" => "write two limits, each with its own match, and give the important one more",
    "on_limit" => "leave it out; what a refusal looks like is said by `response` and `status`",
    "percent" => "try the limit on everybody without refusing anybody: mode = \"shadow\"",
    "candidate" => "add a second limit with the other number and mode = \"shadow\"",
    "replaces" => "all matching limits apply; take requests out of the wider one with `!`: \
        match = { path = \"!/login\" }",
    "distinct" => "leave it out: events are counted, not different values",
    "alert" => "leave it out, and watch the metric ratekeeper_near_limit_total",
    "anchor" => "leave it out: calendar periods begin for everybody at once",
    "when" => "say it with `match`: match = { method = \"POST\", path = \"/login\" }",
};

pub(super) const LIMIT_MISTAKEN: &[NameHint] = hints! {
    "burst" => "the burst of a bucket is its `size`: bucket = { size = 40, refill = \"20/1s\" \
        }",
    "rate" => "number and period are one string: limit = \"100/1m\"",
    "quota" => "number and period are one string: limit = \"100/1m\"",
    "requests" => "number and period are one string: limit = \"100/1m\"",
    "max" => "number and period are one string: limit = \"100/1m\"",
    "per" => "number and period are one string: limit = \"100/1m\"",
    "period" => "number and period are one string: limit = \"100/1m\"",
    "window" => "number and period are one string: limit = \"100/1m\"",
    "interval" => "number and period are one string: limit = \"100/1m\"",
    "by" => "whom to count is said by `key`: key = [\"ip\"]",
    "group_by" => "whom to count is said by `key`: key = [\"ip\"]",
    "path" => "it belongs into `match`: match = { path = \"/login\" }",
    "method" => "it belongs into `match`: match = { method = \"POST\" }",
    "host" => "it belongs into `match`: match = { host = \"api.example.com\" }",
    "ip" => "to count by address, write key = [\"ip\"]; to match some, match = { ip = \
        \"192.0.2.0/24\" }",
    "matches" => "write match = { path = \"/login\" }",
    "shadow" => "write mode = \"shadow\"",
    "dry_run" => "write mode = \"shadow\"",
    "enabled" => "write mode = \"enforce\" or mode = \"off\"",
    "disabled" => "write mode = \"off\"",
    "size" => "it belongs into `bucket`: bucket = { size = 20, refill = \"10/1s\" }",
    "max_wait" => "it belongs into `queue`: queue = { max = 100, max_wait = \"2s\" }",
    "case_sensitive" => "write path_case = \"sensitive\"",
    "nodelay" => "a bucket refuses what is over, unless a `queue` stands beside it: leave it out",
    "warm_up" => "write warmup = { period = \"10s\" }",
    "cold_factor" => "it belongs into `warmup`: warmup = { period = \"10s\", cold_factor = 3 }",
    "refill" => "it belongs into `bucket`: bucket = { size = 20, refill = \"10/1s\" }",
    "lease" => "it belongs into `concurrency`: concurrency = { max = 50, lease = \"60s\" }",
    "max_connections" => "write concurrency = { max = 50, lease = \"60s\" }",
    "in_flight" => "write concurrency = { max = 50, lease = \"60s\" }",
    "id" => "write name = \"per-ip\"",
    "description" => "write a comment: # what it is for",
    "message" => "it belongs into a response: [response.slow-down] with detail = \"Try again \
        in {retry_after}.\"",
    "exempt" => "exemptions are tables of their own: [[exempt]] with limits = [\"per-ip\"]",
};
