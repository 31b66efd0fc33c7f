//! How a limit counts: `bucket`, `algorithm`.

use super::{
    MAX_AT_ONCE, MAX_COLD_FACTOR, MAX_SUB_BUCKETS, ROLLING, SPAN, optional, pattern, required,
};
use crate::config::shape::{Shape, Table, Words};

pub(super) static BUCKET: Table = Table {
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
            Shape::Flag,
            "true",
            "Refill in whole amounts, as in floor(elapsed / period).",
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
    ..Table::EMPTY
};

pub(super) static QUEUE: Table = Table {
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
    ..Table::EMPTY
};

pub(super) static WARMUP: Table = Table {
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
    ..Table::EMPTY
};

pub(super) static CONCURRENCY: Table = Table {
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
    ..Table::EMPTY
};

pub(super) const ALGORITHMS: Words = Words {
    known: &[
        "sliding",
        "fixed",
        "quota-reset",
        "gcra",
        "token-bucket",
        "leaky-bucket",
        "sub-buckets",
        "log",
        "hybrid",
        "exponential",
        "smooth-bursty",
    ],
    planned: &[],
    mistaken: hints! {
        "permits" => "the number at work is a field of its own: concurrency = { max = 50, lease \
            = \"60s\" }",
        "concurrency" => "it is a field of its own: concurrency = { max = 50, lease = \"60s\" }",
        "sliding-window" => "write \"sliding\", or leave it out: it is the default",
        "two-window" => "write \"sliding\", or leave it out: it is the default",
        "rolling" => "write \"sliding\", or leave it out: it is the default",
        "fixed-window" => "write \"fixed\"",
        "leaky-meter" => "write \"leaky-bucket\": without a queue it is the meter",
        "leaky-queue" => "the queue is a field of its own: spacing = \"100ms\" with queue = { max = \
            100 }",
        "sliding-log" => "write \"log\"",
        "rolling-log" => "write \"log\"",
        "strict-log" => "write algorithm = \"log\" and count_denied = true",
        "quota-linear" => "write \"hybrid\"",
        "ewma" => "write \"exponential\"",
        "interval" => "it is a bucket that refills in whole amounts: bucket = { size = 20, refill = \
            \"10/1s\", step = true }",
        "spacing" => "it is a field of its own: spacing = \"200ms\"",
        "warm-up" => "it is a field of its own, beside `limit`: warmup = { period = \"10s\" }",
        "warmup" => "it is a field of its own, beside `limit`: warmup = { period = \"10s\" }",
        "bursty" => "write \"smooth-bursty\"",
        "guava" => "write \"smooth-bursty\", or warmup = { period = \"10s\" } beside `limit`",
    },
};

pub(super) static ALGORITHM: Table = Table {
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
            "Of a log: the least time between two requests.",
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
        "strict" => "of a limit with \"log\": count_denied = true beside `algorithm`",
    },
    ..Table::EMPTY
};
