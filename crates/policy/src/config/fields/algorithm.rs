//! How a limit counts: `bucket`, `algorithm`.

use super::{MAX_SUB_BUCKETS, ROLLING, SPAN, optional, pattern, required};
use crate::config::shape::{Inert, Shape, Table, Words};

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

pub(super) const ALGORITHMS: Words = Words {
    known: &[
        "sliding",
        "fixed",
        "quota-reset",
        "gcra",
        "token-bucket",
        "leaky-bucket",
        "sub-buckets",
    ],
    planned: hints! {
        "log" => "the nearest is \"gcra\", which is exact, or sub-buckets with a full edge: \
            algorithm = { name = \"sub-buckets\", count = 60, edge = \"full\" }",
        "strict-log" => "the nearest is \"gcra\" with count_denied = true",
        "hybrid" => "the nearest is bucket = { size = 20, refill = \"10/1s\" }",
        "exponential" => "the nearest is algorithm = \"sliding\"",
        "warm-up" => "the nearest is a small bucket: bucket = { size = 5, refill = \"10/1s\" }",
        "interval" => "the nearest is algorithm = \"quota-reset\"",
        "permits" => "a small bucket keeps the number in flight low: bucket = { size = 5, refill \
            = \"10/1s\" }",
    },
    mistaken: hints! {
        "sliding-window" => "write \"sliding\", or leave it out: it is the default",
        "two-window" => "write \"sliding\", or leave it out: it is the default",
        "rolling" => "write \"sliding\", or leave it out: it is the default",
        "fixed-window" => "write \"fixed\"",
        "leaky-meter" => "write \"leaky-bucket\": without a queue it is the meter",
        "leaky-queue" => "the queue is a field of its own: spacing = \"100ms\" with queue = { max = \
            100 }",
        "sliding-log" => "\"log\" is not built yet; the nearest is \"gcra\", which is exact",
        "spacing" => "it is a field of its own: spacing = \"200ms\"",
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
    ],
    mistaken: hints! {
        "buckets" => "write count = 6",
        "type" => "write name = \"sub-buckets\"",
    },
    ..Table::EMPTY
};
