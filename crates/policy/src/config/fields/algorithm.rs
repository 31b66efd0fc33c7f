//! How a limit counts: `bucket`, `algorithm`.

use ratekeeper_core::Quota;

use super::{
    DURATION, MAX_AT_ONCE, MAX_COLD_FACTOR, MAX_SUB_BUCKETS, ROLLING, optional, pattern, required,
    whole,
};
use crate::config::shape::{Shape, TableSpec};

pub(super) static BUCKET: TableSpec = TableSpec {
    what: "a bucket",
    fields: &[
        required(
            "size",
            Shape::Amount {
                least: 1,
                most: Quota::MAX_PERMITS,
            },
            "20",
            "Maximum number of permits that pass at once: the burst.",
        ),
        required(
            "refill",
            pattern(ROLLING),
            "\"10/1s\"",
            "Rate of the refill.",
        ),
        optional(
            "step",
            Shape::Either(&[Shape::Flag, Shape::Word(STEP)]),
            "\"clock\"",
            "Refills in whole amounts: each period from the \"first\" take from a full bucket (as \
             true does), or on the \"clock\".",
        ),
        optional(
            "start",
            Shape::Word(&["full"]),
            "\"full\"",
            "Initial state of a bucket.",
        ),
    ],
    ..TableSpec::EMPTY
};

const STEP: &[&str] = &["first", "clock"];

pub(super) static QUEUE: TableSpec = TableSpec {
    what: "a queue",
    fields: &[
        required(
            "max",
            Shape::Amount {
                least: 1,
                most: Quota::MAX_PERMITS,
            },
            "100",
            "Maximum number of requests that wait at once.",
        ),
        optional(
            "max_wait",
            pattern(DURATION),
            "\"2s\"",
            "Maximum wait of a request; a request that would wait longer is refused.",
        ),
        optional(
            "order",
            Shape::Word(&["fifo"]),
            "\"fifo\"",
            "Order in which requests leave the queue.",
        ),
    ],
    ..TableSpec::EMPTY
};

pub(super) static WARMUP: TableSpec = TableSpec {
    what: "a warm-up",
    fields: &[
        required(
            "period",
            pattern(DURATION),
            "\"10s\"",
            "Time from cold to warm, if requests keep coming.",
        ),
        optional(
            "cold_factor",
            whole(1, MAX_COLD_FACTOR),
            "3",
            "Ratio of the time between two permits when cold to that when warm.",
        ),
    ],
    ..TableSpec::EMPTY
};

pub(super) static BALANCE: TableSpec = TableSpec {
    what: "`balance`",
    fields: &[
        optional(
            "start",
            whole(0, Quota::MAX_PERMITS),
            "100",
            "Credits of a key that was never seen (default 0).",
        ),
        required(
            "max",
            Shape::Amount {
                least: 1,
                most: Quota::MAX_PERMITS,
            },
            "1000000",
            "Maximum number of credits of a key.",
        ),
    ],
    ..TableSpec::EMPTY
};

pub(super) static CONCURRENCY: TableSpec = TableSpec {
    what: "`concurrency`",
    fields: &[
        required(
            "max",
            whole(1, MAX_AT_ONCE),
            "50",
            "Maximum number of permits on loan at once.",
        ),
        optional(
            "lease",
            pattern(DURATION),
            "\"60s\"",
            "Time after which the permit of a crashed holder comes back (default 60s).",
        ),
    ],
    ..TableSpec::EMPTY
};

pub(super) const ALGORITHMS: &[&str] = &[
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
];

pub(super) static ALGORITHM: TableSpec = TableSpec {
    what: "`algorithm`",
    fields: &[
        required(
            "name",
            Shape::Word(ALGORITHMS),
            "\"sub-buckets\"",
            "Name of the algorithm.",
        ),
        optional(
            "count",
            whole(1, MAX_SUB_BUCKETS),
            "6",
            "For sub-buckets: their number.",
        ),
        optional(
            "edge",
            Shape::Word(&["full", "weighted", "drop"]),
            "\"full\"",
            "For sub-buckets: weight of the sub-bucket that leaves the window.",
        ),
        optional(
            "min_gap",
            pattern(DURATION),
            "\"200ms\"",
            "For a sliding window log: minimum time between two requests.",
        ),
        optional(
            "save_up",
            pattern(DURATION),
            "\"1s\"",
            "For smooth-bursty: time for which permits are saved up (default: the limit's period).",
        ),
    ],
    ..TableSpec::EMPTY
};
