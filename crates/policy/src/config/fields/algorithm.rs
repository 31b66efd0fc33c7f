//! How a limit counts: `bucket`, `algorithm`.

use ratekeeper_core::Quota;

use super::{
    DURATION, MAX_AT_ONCE, MAX_COLD_FACTOR, MAX_SUB_BUCKETS, ROLLING, optional, pattern, required,
    whole,
};
use crate::config::shape::{Shape, TableSpec, Words};

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
            Shape::Word(Words {
                known: &["full"],
                hints: hints! {
                    "empty" => "leave it out: buckets start full",
                },
            }),
            "\"full\"",
            "Initial state of a bucket.",
        ),
    ],
    hints: hints! {
        "burst" => "the burst of a bucket is its `size`: size = 20",
        "capacity" => "write size = 20",
        "max" => "write size = 20",
        "rate" => "write refill = \"10/1s\"",
        "per" => "write number and period as one string: refill = \"10/1s\"",
    },
    ..TableSpec::EMPTY
};

const STEP: Words = Words {
    known: &["first", "clock"],
    hints: hints! {
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
            Shape::Word(Words {
                known: &["fifo"],
                hints: hints! {
                    "lifo" => "leave it out: a wait that was granted cannot be changed, so \
                        requests leave in the order of their arrival",
                    "random" => "leave it out: requests leave in the order of their arrival",
                    "priority" => "leave it out, and give important requests a limit of their own",
                },
            }),
            "\"fifo\"",
            "Order in which requests leave the queue.",
        ),
    ],
    hints: hints! {
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
    hints: hints! {
        "time" => "write period = \"10s\"",
        "duration" => "write period = \"10s\"",
        "factor" => "write cold_factor = 3",
        "coldFactor" => "write cold_factor = 3",
        "rate" => "leave it out: the rate is that of `limit`",
    },
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
    hints: hints! {
        "initial" => "write start = 100",
        "credits" => "write start = 100",
        "limit" => "write max = 1000000",
        "size" => "write max = 1000000",
        "refill" => "leave it out: credits are granted with POST /v1/grant; for a limit that \
            refills write bucket = { size = 20, refill = \"10/1s\" }",
        "expires" => "leave it out: credits do not expire",
    },
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
    hints: hints! {
        "limit" => "write max = 50",
        "permits" => "write max = 50",
        "size" => "write max = 50",
        "ttl" => "write lease = \"60s\"",
        "timeout" => "write lease = \"60s\"",
        "expires" => "write lease = \"60s\"",
        "max_wait" => "leave it out: a request without a free permit is refused, with the time \
            to retry",
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
    hints: hints! {
        "gcra" => TOKEN_BUCKET,
        "linear" => TOKEN_BUCKET,
        "bucket" => "write \"token-bucket\", or bucket = { size = 20, refill = \"10/1s\" } in place \
            of `limit`",
        "leaky-meter" => "write \"token-bucket\", which counts the same",
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
        "calendar" => "leave it out, and write a calendar period after the slash: limit = \
            \"20/day\"",
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
const CONCURRENCY_INSTEAD: &str = "write it as a field of its own: concurrency = { max = \
    50, lease = \"60s\" }";
const INTERVAL: &str = "write a bucket that refills in whole amounts: bucket = { size = 20, refill \
    = \"10/1s\", step = true }";
const WARM_UP: &str =
    "write it as a field of its own, beside `limit`: warmup = { period = \"10s\" }";

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
            Shape::Word(Words {
                known: &["full", "weighted", "drop"],
                hints: &[],
            }),
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
    hints: hints! {
        "buckets" => "write count = 6",
        "type" => "write name = \"sub-buckets\"",
        "gap" => "write min_gap = \"200ms\"",
        "spacing" => "write min_gap = \"200ms\"",
        "burst" => "for smooth-bursty, write a duration: save_up = \"1s\"",
        "max_burst" => "write save_up = \"1s\"",
        "strict" => "with \"sliding-window-log\", write count_denied = true beside `algorithm`",
    },
    ..TableSpec::EMPTY
};
