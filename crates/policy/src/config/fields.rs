//! Fields: the language as one table; everything the file may say stands here.
//!
//! A field that is built has a shape and an example. One that the language knows but that
//! is not built yet is refused with what works today; a word that people try instead is
//! refused with the right one.

use super::shape::{Field, Hint, Inert, Need, Shape, Table, Words};

/// Limits of one policy.
pub(super) const MAX_LIMITS: usize = 10_000;
/// Exemptions, and responses, of one policy.
pub(super) const MAX_TABLES: usize = 1_000;
/// Values of a list.
pub(super) const MAX_VALUES: usize = 1_000;
/// Parts of a key.
pub(super) const MAX_KEY_PARTS: usize = 8;
/// Different names in `header`, `query`, `cookie` or `attr` of one match.
pub(super) const MAX_NAMES: usize = 32;
/// Characters of a name.
pub(super) const MAX_NAME: usize = 40;
/// Sub-buckets of a window.
pub(super) const MAX_SUB_BUCKETS: u64 = 60;

const NAME: &str = "^[a-z0-9-]{1,40}$";
const QUOTA: &str = "^[0-9]+/([0-9]+(ns|us|ms|s|m|h|d|w)|hour|day|week|month|year)$";
const ROLLING: &str = "^[0-9]+/[0-9]+(ns|us|ms|s|m|h|d|w)$";
const SPAN: &str = "^[0-9]+(ns|us|ms|s|m|h|d|w)$";
const BYTES: &str = "^[0-9]+(B|KiB|MiB|GiB)$";
const ATTRIBUTE: &str = "^attr:.+$";
const MISSING: &str = "^(skip|deny|shared|use:.+)$";
const STATUS: Shape = Shape::Whole {
    least: 400,
    most: 599,
};

const fn required(
    name: &'static str,
    shape: Shape,
    example: &'static str,
    about: &'static str,
) -> Field {
    Field {
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
) -> Field {
    Field {
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

/// The whole file.
pub(super) static POLICY: Table = Table {
    what: "the policy",
    fields: &[
        required(
            "version",
            Shape::Whole { least: 1, most: 1 },
            "1",
            "Version of the language.",
        ),
        optional(
            "timezone",
            Shape::TEXT,
            "\"UTC\"",
            "IANA time zone that calendar words (hour, day, week, month, year) follow.",
        ),
        optional(
            "headers",
            Shape::Word(HEADERS),
            "\"ietf\"",
            "Which headers tell clients about their limits.",
        ),
        optional(
            "client_ip",
            Shape::Table(&CLIENT_IP),
            "{ trusted_proxies = [\"10.0.0.0/8\"] }",
            "Where a client's address comes from.",
        ),
        optional(
            "listen",
            Shape::Table(&LISTEN),
            "{ http = \"127.0.0.1:8080\" }",
            "Addresses of the doors.",
        ),
        optional(
            "store",
            Shape::Table(&STORE),
            "{ memory = { budget = \"256MiB\" } }",
            "Where counters live.",
        ),
        optional(
            "defaults",
            Shape::Table(&DEFAULTS),
            "{ mode = \"shadow\" }",
            "Fields of every limit that does not set them itself.",
        ),
        optional(
            "limit",
            Shape::Tables {
                of: &LIMIT,
                most: MAX_LIMITS,
            },
            "[{ name = \"per-ip\", key = [\"ip\"], limit = \"100/1m\" }]",
            "The limits; all that match apply.",
        ),
        optional(
            "exempt",
            Shape::Tables {
                of: &EXEMPT,
                most: MAX_TABLES,
            },
            "[{ limits = [\"*\"], match = { path = \"/health\" } }]",
            "Requests that some limits do not count.",
        ),
        optional(
            "response",
            Shape::NamedTables {
                of: &RESPONSE,
                most: MAX_TABLES,
            },
            "{ slow-down = { status = 429 } }",
            "How refusals look, by name.",
        ),
    ],
    planned: &[
        (
            "geo",
            "match addresses by block today: match = { ip = [\"192.0.2.0/24\"] }",
        ),
        (
            "plan",
            "write one limit for each plan, each with its match = { attr.plan = \"pro\" }",
        ),
        (
            "override",
            "give the customer a limit of its own, with match = { attr.customer = \"acme\" }, and take it out of the other with match = { attr.customer = \"!acme\" }",
        ),
        (
            "secrets",
            "leave it out: nothing that is built needs a secret",
        ),
    ],
    mistaken: &[
        ("limits", "each limit is a table of its own: [[limit]]"),
        ("rule", "a rule is called a limit: [[limit]]"),
        ("rules", "a rule is called a limit: [[limit]]"),
        ("exemption", "write [[exempt]]"),
        (
            "responses",
            "each response has a name: [response.slow-down]",
        ),
        (
            "trusted_proxies",
            "it belongs under [client_ip]: trusted_proxies = [\"10.0.0.0/8\"]",
        ),
        (
            "ipv6_prefix",
            "it belongs under [client_ip]: ipv6_prefix = 64",
        ),
        ("tz", "write timezone = \"UTC\""),
        (
            "budget",
            "it belongs under [store.memory]: budget = \"256MiB\"",
        ),
        (
            "redis",
            "the Redis store is not built yet; leave it out, and the counters are kept in memory",
        ),
    ],
    one_of: &[],
};

const HEADERS: Words = Words {
    known: &["ietf", "legacy", "both", "off"],
    planned: &[],
    mistaken: &[
        ("x-ratelimit", "X-RateLimit-* headers are called \"legacy\""),
        (
            "draft",
            "RateLimit and RateLimit-Policy are called \"ietf\"",
        ),
        ("none", "to send no headers, write \"off\""),
        ("on", "write \"ietf\", or leave it out: it is the default"),
    ],
};

static CLIENT_IP: Table = Table {
    what: "`[client_ip]`",
    fields: &[
        optional(
            "trusted_proxies",
            Shape::List { most: MAX_VALUES },
            "[\"10.0.0.0/8\", \"fd00::/8\"]",
            "Proxies whose forwarding header is believed.",
        ),
        optional(
            "header",
            Shape::TEXT,
            "\"x-forwarded-for\"",
            "The forwarding header; its rightmost address that is not a trusted proxy counts.",
        ),
        optional(
            "ipv6_prefix",
            Shape::Whole {
                least: 1,
                most: 128,
            },
            "64",
            "Bits of an IPv6 address that make one client.",
        ),
    ],
    mistaken: &[
        ("proxies", "write trusted_proxies = [\"10.0.0.0/8\"]"),
        ("trust", "write trusted_proxies = [\"10.0.0.0/8\"]"),
        (
            "depth",
            "name the proxies instead of counting them: trusted_proxies = [\"10.0.0.0/8\"]",
        ),
    ],
    ..Table::EMPTY
};

static LISTEN: Table = Table {
    what: "`[listen]`",
    fields: &[
        optional(
            "http",
            Shape::TEXT,
            "\"127.0.0.1:8080\"",
            "The check API and forward-auth: address and port, or \"off\".",
        ),
        optional(
            "admin",
            Shape::TEXT,
            "\"127.0.0.1:9090\"",
            "Metrics, health, keys, reload: address and port, or \"off\".",
        ),
        optional(
            "grpc",
            Shape::Only {
                value: Inert::Off,
                instead: "Envoy can ask the HTTP door: ext_authz with an HTTP service, at /v1/auth",
            },
            "\"off\"",
            "Envoy's rate limit service; not built yet.",
        ),
        optional(
            "resp",
            Shape::Only {
                value: Inert::Off,
                instead: "ask the HTTP door: POST /v1/check",
            },
            "\"off\"",
            "The Redis protocol; not built yet.",
        ),
        optional(
            "proxy",
            Shape::Only {
                value: Inert::Off,
                instead: "put nginx, Caddy, Traefik or HAProxy in front, and let it ask /v1/auth of the HTTP door",
            },
            "\"off\"",
            "The reverse proxy; not built yet.",
        ),
    ],
    mistaken: &[
        ("address", "name the door: http = \"127.0.0.1:8080\""),
        (
            "port",
            "name the door, with its address: http = \"127.0.0.1:8080\"",
        ),
        (
            "metrics",
            "metrics are served by the admin door: admin = \"127.0.0.1:9090\"",
        ),
        (
            "https",
            "the doors speak plain HTTP; put a proxy in front for TLS: http = \"127.0.0.1:8080\"",
        ),
    ],
    ..Table::EMPTY
};

static STORE: Table = Table {
    what: "`[store]`",
    fields: &[optional(
        "memory",
        Shape::Table(&MEMORY),
        "{ budget = \"256MiB\" }",
        "Counters in the memory of this process.",
    )],
    planned: &[(
        "redis",
        "leave it out: the counters are kept in the memory of this process",
    )],
    mistaken: &[(
        "budget",
        "it belongs under [store.memory]: budget = \"256MiB\"",
    )],
    ..Table::EMPTY
};

static MEMORY: Table = Table {
    what: "`[store.memory]`",
    fields: &[optional(
        "budget",
        pattern(BYTES),
        "\"256MiB\"",
        "Bytes that counters may use, as in \"256MiB\".",
    )],
    mistaken: &[
        (
            "max_keys",
            "memory is bounded in bytes: budget = \"256MiB\"",
        ),
        ("size", "write budget = \"256MiB\""),
        ("limit", "write budget = \"256MiB\""),
    ],
    ..Table::EMPTY
};

static DEFAULTS: Table = Table {
    what: "`[defaults]`",
    fields: &[MODE, MISSING_KEY, RESPONSE_NAME, COUNT_DENIED, STATUS_FIELD],
    planned: &[
        (
            "on_store_error",
            "leave it out: the counters are in memory, which does not fail",
        ),
        ("scope", "leave it out: every limit counts on its own node"),
    ],
    mistaken: &[
        ("key", "each [[limit]] has its own key"),
        ("limit", "each [[limit]] has its own number"),
        ("match", "each [[limit]] has its own match"),
        ("algorithm", "each [[limit]] has its own algorithm"),
        ("cost", "each [[limit]] has its own cost"),
    ],
    ..Table::EMPTY
};

const MODE: Field = optional(
    "mode",
    Shape::Word(Words {
        known: &["enforce", "shadow", "off"],
        planned: &[],
        mistaken: &[
            ("on", "write \"enforce\""),
            ("block", "write \"enforce\""),
            ("deny", "write \"enforce\""),
            (
                "dry-run",
                "to decide and count but never refuse, write \"shadow\"",
            ),
            (
                "log",
                "to decide and count but never refuse, write \"shadow\"",
            ),
            (
                "monitor",
                "to decide and count but never refuse, write \"shadow\"",
            ),
            (
                "audit",
                "to decide and count but never refuse, write \"shadow\"",
            ),
            ("disabled", "write \"off\""),
        ],
    }),
    "\"shadow\"",
    "enforce: decides and refuses; shadow: decides and counts; off: does nothing.",
);
const MISSING_KEY: Field = optional(
    "missing_key",
    pattern(MISSING),
    "\"use:ip\"",
    "When a request lacks a part of the key: skip, deny, shared, or use:PART (default use:ip).",
);
const RESPONSE_NAME: Field = optional(
    "response",
    pattern(NAME),
    "\"slow-down\"",
    "How a refusal looks: the name of a [response.NAME].",
);
const COUNT_DENIED: Field = optional(
    "count_denied",
    Shape::Flag,
    "true",
    "Whether refused requests are counted as well.",
);
const STATUS_FIELD: Field = optional(
    "status",
    STATUS,
    "429",
    "HTTP status of a refusal; goes before that of the response.",
);

/// One `[[limit]]`.
pub(super) static LIMIT: Table = Table {
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
        optional(
            "limit",
            pattern(QUOTA),
            "\"100/1m\"",
            "Requests in a period: a duration rolls, a word (day) is of the calendar.",
        ),
        optional(
            "bucket",
            Shape::Table(&BUCKET),
            "{ size = 20, refill = \"10/1s\" }",
            "A burst, refilled at a pace.",
        ),
        optional(
            "spacing",
            pattern(SPAN),
            "\"200ms\"",
            "The least time between two requests.",
        ),
        optional(
            "algorithm",
            Shape::Either(&[Shape::Word(ALGORITHMS), Shape::Table(&ALGORITHM)]),
            "\"fixed\"",
            "How `limit` counts.",
        ),
        optional(
            "cost",
            Shape::Either(&[
                Shape::Whole {
                    least: 1,
                    most: u32::MAX as u64,
                },
                pattern(ATTRIBUTE),
            ]),
            "5",
            "What a request costs: a number, or the attribute that holds it.",
        ),
        MODE,
        MISSING_KEY,
        RESPONSE_NAME,
        STATUS_FIELD,
        COUNT_DENIED,
    ],
    planned: LIMIT_PLANNED,
    mistaken: LIMIT_MISTAKEN,
    one_of: &["limit", "bucket", "spacing"],
};

const LIMIT_PLANNED: &[Hint] = &[
    (
        "concurrency",
        "a small bucket keeps the number in flight low today: bucket = { size = 5, refill = \"10/1s\" }",
    ),
    (
        "queue",
        "what is over is refused with Retry-After today; leave `queue` out",
    ),
    (
        "plans",
        "write one limit for each plan, each with its match = { attr.plan = \"pro\" }",
    ),
    (
        "soft",
        "add a second limit with the lower number and mode = \"shadow\": it tells, and refuses nothing",
    ),
    (
        "elastic",
        "leave it out, and set `limit` to what the server always bears",
    ),
    (
        "ban",
        "count_denied = true keeps out a client that goes on trying",
    ),
    (
        "count",
        "every request that matches is counted today; leave `count` out, and ask only when the event has happened",
    ),
    (
        "reset_on",
        "leave it out, and let the application call POST /v1/reset",
    ),
    (
        "active",
        "leave it out: the limit is then active at all hours",
    ),
    (
        "unit",
        "count in the smallest unit, such as cents: cost = \"attr:amount_cents\"",
    ),
    ("scope", "leave it out: every limit counts on its own node"),
    (
        "priority",
        "write two limits, each with its own match, and give the important one more",
    ),
    (
        "on_limit",
        "leave it out; what a refusal looks like is said by `response` and `status`",
    ),
    (
        "percent",
        "try the limit on everybody without refusing anybody: mode = \"shadow\"",
    ),
    (
        "candidate",
        "add a second limit with the other number and mode = \"shadow\"",
    ),
    (
        "replaces",
        "all matching limits apply; take requests out of the wider one with `!`: match = { path = \"!/login\" }",
    ),
    (
        "distinct",
        "leave it out: events are counted, not different values",
    ),
    (
        "alert",
        "leave it out, and watch the metric ratekeeper_near_limit_total",
    ),
    (
        "anchor",
        "leave it out: calendar periods begin for everybody at once",
    ),
    (
        "warmup",
        "start with a smaller bucket: bucket = { size = 5, refill = \"10/1s\" }",
    ),
    (
        "on_store_error",
        "leave it out: the counters are in memory, which does not fail",
    ),
    (
        "when",
        "say it with `match`: match = { method = \"POST\", path = \"/login\" }",
    ),
];

const LIMIT_MISTAKEN: &[Hint] = &[
    (
        "burst",
        "the burst of a bucket is its `size`: bucket = { size = 40, refill = \"20/1s\" }",
    ),
    (
        "rate",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "quota",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "requests",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "max",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "per",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "period",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "window",
        "number and period are one string: limit = \"100/1m\"",
    ),
    (
        "interval",
        "number and period are one string: limit = \"100/1m\"",
    ),
    ("by", "whom to count is said by `key`: key = [\"ip\"]"),
    ("group_by", "whom to count is said by `key`: key = [\"ip\"]"),
    (
        "path",
        "it belongs into `match`: match = { path = \"/login\" }",
    ),
    (
        "method",
        "it belongs into `match`: match = { method = \"POST\" }",
    ),
    (
        "host",
        "it belongs into `match`: match = { host = \"api.example.com\" }",
    ),
    (
        "ip",
        "to count by address, write key = [\"ip\"]; to match some, match = { ip = \"192.0.2.0/24\" }",
    ),
    ("matches", "write match = { path = \"/login\" }"),
    ("shadow", "write mode = \"shadow\""),
    ("dry_run", "write mode = \"shadow\""),
    ("enabled", "write mode = \"enforce\" or mode = \"off\""),
    ("disabled", "write mode = \"off\""),
    (
        "size",
        "it belongs into `bucket`: bucket = { size = 20, refill = \"10/1s\" }",
    ),
    (
        "refill",
        "it belongs into `bucket`: bucket = { size = 20, refill = \"10/1s\" }",
    ),
    ("id", "write name = \"per-ip\""),
    ("description", "write a comment: # what it is for"),
    (
        "message",
        "it belongs into a response: [response.slow-down] with detail = \"Try again in {retry_after}.\"",
    ),
    (
        "exempt",
        "exemptions are tables of their own: [[exempt]] with limits = [\"per-ip\"]",
    ),
];

static MATCH: Table = Table {
    what: "`match`",
    fields: &[
        optional(
            "method",
            Shape::Texts { most: MAX_VALUES },
            "\"POST\"",
            "Request method.",
        ),
        optional(
            "host",
            Shape::Texts { most: MAX_VALUES },
            "\"api.example.com\"",
            "Host, without port.",
        ),
        optional(
            "path",
            Shape::Texts { most: MAX_VALUES },
            "\"/users/{id}\"",
            "Path: * is one segment, ** any number, {name} one segment with a name.",
        ),
        optional(
            "query",
            Shape::Named { most: MAX_NAMES },
            "{ page = \"1\" }",
            "Parameters of the query string.",
        ),
        optional(
            "header",
            Shape::Named { most: MAX_NAMES },
            "{ x-tier = \"free\" }",
            "Request headers.",
        ),
        optional(
            "cookie",
            Shape::Named { most: MAX_NAMES },
            "{ beta = \"yes\" }",
            "Cookies.",
        ),
        optional(
            "ip",
            Shape::Texts { most: MAX_VALUES },
            "\"192.0.2.0/24\"",
            "Client addresses, as blocks.",
        ),
        optional(
            "attr",
            Shape::Named { most: MAX_NAMES },
            "{ risky = \"true\" }",
            "Attributes that the application sends.",
        ),
    ],
    planned: &[
        (
            "country",
            "match addresses by block: match = { ip = [\"192.0.2.0/24\"] }",
        ),
        (
            "asn",
            "match addresses by block: match = { ip = [\"192.0.2.0/24\"] }",
        ),
        (
            "plan",
            "let the application send it as an attribute: match = { attr.plan = \"pro\" }",
        ),
        ("protocol", "leave it out: all requests come by HTTP"),
        (
            "descriptor",
            "let the caller send it as an attribute: match = { attr.NAME = \"value\" }",
        ),
    ],
    mistaken: &[
        (
            "url",
            "write path = \"/login\", and host = \"api.example.com\" if it matters",
        ),
        ("uri", "write path = \"/login\""),
        ("route", "write path = \"/users/{id}\""),
        ("verb", "write method = \"POST\""),
        ("domain", "write host = \"api.example.com\""),
        ("address", "write ip = \"192.0.2.0/24\""),
        ("cidr", "write ip = \"192.0.2.0/24\""),
        (
            "user_agent",
            "it is a header: header.user-agent = \"*bot*\"",
        ),
        (
            "user-agent",
            "it is a header: header.user-agent = \"*bot*\"",
        ),
        ("attribute", "write attr.NAME = \"value\""),
        ("not", "put `!` before the value: path = \"!/health\""),
    ],
    ..Table::EMPTY
};

static BUCKET: Table = Table {
    what: "a bucket",
    fields: &[
        required(
            "size",
            Shape::Whole {
                least: 1,
                most: u32::MAX as u64,
            },
            "20",
            "What may pass at once: the burst.",
        ),
        required(
            "refill",
            pattern(ROLLING),
            "\"10/1s\"",
            "How fast it refills.",
        ),
        optional(
            "step",
            Shape::Only {
                value: Inert::False,
                instead: "leave it out: the bucket then refills evenly, which admits no more",
            },
            "false",
            "Refill in whole amounts; not built yet.",
        ),
        optional(
            "start",
            Shape::Word(Words {
                known: &["full"],
                planned: &[("empty", "leave it out: buckets start full")],
                mistaken: &[],
            }),
            "\"full\"",
            "How a bucket starts.",
        ),
    ],
    mistaken: &[
        ("burst", "the burst of a bucket is its `size`: size = 20"),
        ("capacity", "write size = 20"),
        ("max", "write size = 20"),
        ("rate", "write refill = \"10/1s\""),
        (
            "per",
            "number and period are one string: refill = \"10/1s\"",
        ),
    ],
    ..Table::EMPTY
};

const ALGORITHMS: Words = Words {
    known: &[
        "sliding",
        "fixed",
        "quota-reset",
        "gcra",
        "token-bucket",
        "sub-buckets",
    ],
    planned: &[
        (
            "log",
            "the nearest is \"gcra\", which is exact, or sub-buckets with a full edge: algorithm = { name = \"sub-buckets\", count = 60, edge = \"full\" }",
        ),
        (
            "strict-log",
            "the nearest is \"gcra\" with count_denied = true",
        ),
        (
            "hybrid",
            "the nearest is bucket = { size = 20, refill = \"10/1s\" }",
        ),
        ("exponential", "the nearest is algorithm = \"sliding\""),
        (
            "warm-up",
            "the nearest is a small bucket: bucket = { size = 5, refill = \"10/1s\" }",
        ),
        ("interval", "the nearest is algorithm = \"quota-reset\""),
        (
            "permits",
            "a small bucket keeps the number in flight low: bucket = { size = 5, refill = \"10/1s\" }",
        ),
    ],
    mistaken: &[
        (
            "sliding-window",
            "write \"sliding\", or leave it out: it is the default",
        ),
        (
            "two-window",
            "write \"sliding\", or leave it out: it is the default",
        ),
        (
            "rolling",
            "write \"sliding\", or leave it out: it is the default",
        ),
        ("fixed-window", "write \"fixed\""),
        (
            "leaky-bucket",
            "the leaky bucket as a meter is the same as \"gcra\"",
        ),
        (
            "sliding-log",
            "\"log\" is not built yet; the nearest is \"gcra\", which is exact",
        ),
        ("spacing", "it is a field of its own: spacing = \"200ms\""),
    ],
};

static ALGORITHM: Table = Table {
    what: "`algorithm`",
    fields: &[
        required(
            "name",
            Shape::Word(ALGORITHMS),
            "\"sub-buckets\"",
            "Which algorithm.",
        ),
        optional(
            "count",
            Shape::Whole {
                least: 1,
                most: MAX_SUB_BUCKETS,
            },
            "6",
            "Of sub-buckets: how many.",
        ),
        optional(
            "edge",
            Shape::Word(Words {
                known: &["full", "weighted", "drop"],
                planned: &[],
                mistaken: &[],
            }),
            "\"full\"",
            "Of sub-buckets: what the one that slides out of sight still counts for.",
        ),
    ],
    mistaken: &[
        ("buckets", "write count = 6"),
        ("type", "write name = \"sub-buckets\""),
    ],
    ..Table::EMPTY
};

static EXEMPT: Table = Table {
    what: "an exemption",
    fields: &[
        required(
            "limits",
            Shape::List { most: MAX_VALUES },
            "[\"*\"]",
            "Names of limits, with * for any characters.",
        ),
        required(
            "match",
            Shape::Table(&MATCH),
            "{ path = \"/health\" }",
            "Which requests are exempt.",
        ),
        optional(
            "reason",
            Shape::TEXT,
            "\"uptime probes\"",
            "Why, for the record.",
        ),
    ],
    planned: &[(
        "until",
        "leave it out, and remove the exemption when its time is over",
    )],
    mistaken: &[
        ("limit", "it is a list: limits = [\"*\"]"),
        (
            "path",
            "it belongs into `match`: match = { path = \"/health\" }",
        ),
        (
            "ip",
            "it belongs into `match`: match = { ip = \"192.0.2.0/24\" }",
        ),
        (
            "name",
            "an exemption has no name; `reason` says what it is for",
        ),
    ],
    ..Table::EMPTY
};

static RESPONSE: Table = Table {
    what: "a response",
    fields: &[
        optional("status", STATUS, "429", "HTTP status of the refusal."),
        optional(
            "body",
            Shape::Either(&[Shape::Word(BODIES), Shape::Table(&BODY)]),
            "\"problem+json\"",
            "What the body holds.",
        ),
        optional(
            "detail",
            Shape::TEXT,
            "\"Try again in {retry_after}.\"",
            "The sentence of problem+json; {retry_after} and {limit} are filled in.",
        ),
    ],
    mistaken: &[
        ("code", "write status = 429"),
        ("message", "write detail = \"Try again in {retry_after}.\""),
        (
            "text",
            "it belongs into the body: body = { text = \"Slow down.\" }",
        ),
        (
            "headers",
            "the headers are chosen for the whole policy: headers = \"ietf\" at the top",
        ),
    ],
    ..Table::EMPTY
};

const BODIES: Words = Words {
    known: &["problem+json", "none"],
    planned: &[],
    mistaken: &[
        ("json", "write \"problem+json\""),
        ("empty", "write \"none\""),
        ("off", "write \"none\""),
        (
            "html",
            "write the text: body = { text = \"<p>Slow down.</p>\", type = \"text/html\" }",
        ),
        ("text", "write the text: body = { text = \"Slow down.\" }"),
    ],
};

static BODY: Table = Table {
    what: "a body",
    fields: &[
        required(
            "text",
            Shape::TEXT,
            "\"Slow down: try again in {retry_after}.\"",
            "What is sent; {retry_after} and {limit} are filled in.",
        ),
        optional(
            "type",
            Shape::TEXT,
            "\"text/plain; charset=utf-8\"",
            "Its content type; plain text if left out.",
        ),
    ],
    planned: &[(
        "file",
        "write the text into the policy: body = { text = \"...\", type = \"text/html\" }",
    )],
    mistaken: &[
        ("content", "write text = \"Slow down.\""),
        ("content_type", "write type = \"text/html\""),
    ],
    ..Table::EMPTY
};
