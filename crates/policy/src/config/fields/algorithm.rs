//! How a limit counts: `bucket`, `algorithm`.

use super::{
    MAX_AT_ONCE, MAX_COLD_FACTOR, MAX_SUB_BUCKETS, ROLLING, SPAN, optional, pattern, required,
};
use crate::config::shape::{Shape, TableSpec, Words};

pub(super) static BUCKET: TableSpec = TableSpec {
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
            Shape::Either(&[Shape::Flag, Shape::Word(STEP)]),
            "\"clock\"",
            "Refill in whole amounts: each period from the \"first\" take from a full bucket (as \
             true does), or on the \"clock\".",
        ),
        optional(
            "start",
            Shape::Word(Words {
                known: &["full"],
                planned: hints! {
                    "empty" => "leave it out: buckets start full",
                },
                mistaken: &[],
            }),
            "\"full\"",
            "How a bucket starts.",
        ),
    ],
    mistaken: hints! {
        "burst" => "the burst of a bucket is its `size`: size = 20",
        "capacity" => "write size = 20",
        "max" => "write size = 20",
        "rate" => "write refill = \"10/1s\"",
        "per" => "number and period are one string: refill = \"10/1s\"",
    },
    ..TableSpec::EMPTY
};

const STEP: Words = Words {
    known: &["first", "clock"],
    planned: &[],
    mistaken: hints! {
        "aligned" => "write \"clock\"",
        "grid" => "write \"clock\"",
        "creation" => "write \"first\": until then the bucket is full",
    },
};

pub(super) static QUEUE: TableSpec = TableSpec {
    what: "a queue",
    fields: &[
        required(
            "max",
            Shape::Whole {
                least: 1,
                most: u32::MAX as u64,
            },
            "100",
            "How many may wait at once.",
        ),
        optional(
            "max_wait",
            pattern(SPAN),
            "\"2s\"",
            "The longest that one waits; what would wait longer is refused.",
        ),
        optional(
            "order",
            Shape::Word(Words {
                known: &["fifo"],
                planned: &[],
                mistaken: hints! {
                    "lifo" => "leave it out: a wait, once told, cannot be taken back, so who \
                        comes first goes first",
                    "random" => "leave it out: who comes first goes first",
                    "priority" => "leave it out, and give the important ones a limit of their own",
                },
            }),
            "\"fifo\"",
            "In which order they leave.",
        ),
    ],
    mistaken: hints! {
        "size" => "write max = 100",
        "length" => "write max = 100",
        "timeout" => "write max_wait = \"2s\"",
        "wait" => "write max_wait = \"2s\"",
        "delay" => "write max_wait = \"2s\"",
    },
    ..TableSpec::EMPTY
};

pub(super) static WARMUP: TableSpec = TableSpec {
    what: "a warm-up",
    fields: &[
        required(
            "period",
            pattern(SPAN),
            "\"10s\"",
            "How long it takes from cold to warm, if requests keep coming.",
        ),
        optional(
            "cold_factor",
            Shape::Whole {
                least: 1,
                most: MAX_COLD_FACTOR,
            },
            "3",
            "How many times slower permits come when it is cold.",
        ),
    ],
    mistaken: hints! {
        "time" => "write period = \"10s\"",
        "duration" => "write period = \"10s\"",
        "factor" => "write cold_factor = 3",
        "coldFactor" => "write cold_factor = 3",
        "rate" => "the rate is that of `limit`",
    },
    ..TableSpec::EMPTY
};

pub(super) static CONCURRENCY: TableSpec = TableSpec {
    what: "`concurrency`",
    fields: &[
        required(
            "max",
            Shape::Whole {
                least: 1,
                most: MAX_AT_ONCE,
            },
            "50",
            "How many may be at work at once.",
        ),
        optional(
            "lease",
            pattern(SPAN),
            "\"60s\"",
            "When a permit comes back whose holder has crashed; 60s if left out.",
        ),
    ],
    mistaken: hints! {
        "limit" => "write max = 50",
        "permits" => "write max = 50",
        "size" => "write max = 50",
        "ttl" => "write lease = \"60s\"",
        "timeout" => "write lease = \"60s\"",
        "expires" => "write lease = \"60s\"",
        "max_wait" => "leave it out: who finds nothing free is told when to try again",
    },
    ..TableSpec::EMPTY
};

pub(super) const ALGORITHMS: Words = Words {
    known: &[
        "token-bucket",
        "leaky-bucket",
        "fixed-window",
        "sliding-window-counter",
        "sliding-window-log",
        "sub-buckets",
        "quota-reset",
        "hybrid",
        "exponential",
        "smooth-bursty",
    ],
    planned: &[],
    mistaken: hints! {
        "gcra" => TOKEN_BUCKET,
        "linear" => TOKEN_BUCKET,
        "bucket" => "write \"token-bucket\", or bucket = { size = 20, refill = \"10/1s\" } in place \
            of `limit`",
        "leaky-meter" => "write \"token-bucket\": the meter counts alike",
        "leaky-queue" => "write \"leaky-bucket\" and queue = { max = 100 }",
        "limit-req" => "write \"leaky-bucket\"; its `burst` is queue = { max = 100 }, and with \
            `nodelay` bucket = { size = 101, refill = \"10/1s\" } in place of `limit`",
        "nodelay" => "write bucket = { size = 21, refill = \"10/1s\" } in place of `limit`: rate, \
            and burst + 1 at once",
        "shaping" => "write \"leaky-bucket\" and queue = { max = 100 }",
        "policing" => TOKEN_BUCKET,
        "spacing" => "write \"leaky-bucket\", or spacing = \"200ms\" in place of `limit`",
        "fixed" => "write \"fixed-window\"",
        "fixed-window-counter" => "write \"fixed-window\"",
        "window" => "write \"fixed-window\", or \"sliding-window-counter\"",
        "simple-rate-limiter" => "write \"fixed-window\"",
        "semaphore" => CONCURRENCY_INSTEAD,
        "bulkhead" => CONCURRENCY_INSTEAD,
        "permits" => CONCURRENCY_INSTEAD,
        "concurrency" => CONCURRENCY_INSTEAD,
        "calendar" => "leave it out: a word after the slash is of the calendar: limit = \"20/day\"",
        "sliding" => SLIDING_COUNTER,
        "sliding-window" => SLIDING_COUNTER,
        "sliding-counter" => SLIDING_COUNTER,
        "two-window" => SLIDING_COUNTER,
        "two-window-counter" => SLIDING_COUNTER,
        "weighted-window" => SLIDING_COUNTER,
        "rolling" => SLIDING_COUNTER,
        "rolling-window" => SLIDING_COUNTER,
        "log" => SLIDING_LOG,
        "sliding-log" => SLIDING_LOG,
        "sliding-window-logs" => SLIDING_LOG,
        "rolling-log" => "write \"sliding-window-log\"; for refused requests to count as well, \
            count_denied = true beside it",
        "strict-log" => "write algorithm = \"sliding-window-log\" and count_denied = true",
        "strict-sliding-window-log" => "write algorithm = \"sliding-window-log\" and count_denied \
            = true",
        "interval" => INTERVAL,
        "interval-bucket" => INTERVAL,
        "intervally" => INTERVAL,
        "greedy" => TOKEN_BUCKET,
        "quota-linear" => "write \"hybrid\"",
        "hybrid-quota-linear" => "write \"hybrid\"",
        "ewma" => "write \"exponential\"",
        "exponential-counter" => "write \"exponential\"",
        "warm-up" => WARM_UP,
        "warmup" => WARM_UP,
        "smooth-warming-up" => WARM_UP,
        "smoothwarmingup" => WARM_UP,
        "smooth-warmup" => WARM_UP,
        "bursty" => "write \"smooth-bursty\"",
        "smoothbursty" => "write \"smooth-bursty\"",
        "guava" => "write \"smooth-bursty\", or warmup = { period = \"10s\" } beside `limit`",
        "ratelimiter" => "write \"smooth-bursty\", or warmup = { period = \"10s\" } beside `limit`",
    },
};

const TOKEN_BUCKET: &str = "write \"token-bucket\", or leave it out: it is the default";
const SLIDING_COUNTER: &str = "write \"sliding-window-counter\", or \"sliding-window-log\" for the \
    exact one";
const SLIDING_LOG: &str = "write \"sliding-window-log\"";
const CONCURRENCY_INSTEAD: &str = "the number at work is a field of its own: concurrency = { max = \
    50, lease = \"60s\" }";
const INTERVAL: &str = "it is a bucket that refills in whole amounts: bucket = { size = 20, refill \
    = \"10/1s\", step = true }";
const WARM_UP: &str = "it is a field of its own, beside `limit`: warmup = { period = \"10s\" }";

pub(super) static ALGORITHM: TableSpec = TableSpec {
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
        optional(
            "min_gap",
            pattern(SPAN),
            "\"200ms\"",
            "Of a sliding window log: the least time between two requests.",
        ),
        optional(
            "save_up",
            pattern(SPAN),
            "\"1s\"",
            "Of smooth-bursty: for how long permits are saved up (default: the limit's period).",
        ),
    ],
    mistaken: hints! {
        "buckets" => "write count = 6",
        "type" => "write name = \"sub-buckets\"",
        "gap" => "write min_gap = \"200ms\"",
        "spacing" => "write min_gap = \"200ms\"",
        "burst" => "of smooth-bursty, a span: save_up = \"1s\"",
        "max_burst" => "write save_up = \"1s\"",
        "strict" => "of a limit with \"sliding-window-log\": count_denied = true beside `algorithm`",
    },
    ..TableSpec::EMPTY
};
