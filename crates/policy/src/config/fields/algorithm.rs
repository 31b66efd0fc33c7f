//! How a limit counts: `bucket`, `algorithm`.

use ratekeeper_core::{Nanos, Quota};

use super::{MAX_AT_ONCE, MAX_COLD_FACTOR, MAX_SUB_BUCKETS, MILLISECOND, ROLLING};
use crate::config::document::shape::{
    AMOUNT, Amount, Either, Flag, SPAN, Shape, Whole, Word, fields, pattern, span,
};

/// `lease`: leases are reported in milliseconds.
const LEASE: Shape = span(MILLISECOND, Nanos::MAX);

pub(crate) const ALGORITHMS: &[&str] = &[
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

fields! {
    pub(super) BUCKET = "a bucket" {
        required size: AMOUNT, "20",
            "Maximum number of permits that pass at once: the burst.";
        required refill: pattern(ROLLING), "\"10/1s\"", "Rate of the refill.";
        optional step: Either(&[Flag, Word(&["first", "clock"])]), "\"clock\"",
            "Refills in whole amounts: each period from the \"first\" take from a full bucket (as \
             true does), or on the \"clock\".";
        optional start: Word(&["full"]), "\"full\"", "Initial state of a bucket.";
    }

    pub(super) QUEUE = "a queue" {
        required max: Whole(1, Quota::MAX_PERMITS), "100",
            "Maximum number of requests that wait at once.";
        optional max_wait: SPAN, "\"2s\"",
            "Maximum wait of a request, rounded down to whole permits of the rate; one that would wait \
             longer is refused.";
        optional order: Word(&["fifo"]), "\"fifo\"", "Order in which requests leave the queue.";
    }

    pub(super) WARMUP = "a warm-up" {
        required period: SPAN, "\"10s\"",
            "Time from cold to warm, if requests keep coming.";
        optional cold_factor: Whole(1, MAX_COLD_FACTOR), "3",
            "Ratio of the time between two permits when cold to that when warm.";
    }

    pub(super) BALANCE = "`balance`" {
        optional start: Amount(0, Quota::MAX_PERMITS), "100",
            "Credits of a key that was never seen (default 0).";
        required max: AMOUNT, "1000000",
            "Maximum number of credits of a key.";
    }

    pub(super) CONCURRENCY = "`concurrency`" {
        required max: Whole(1, MAX_AT_ONCE), "50", "Maximum number of permits on loan at once.";
        optional lease: LEASE, "\"60s\"",
            "Time after which the permit of a crashed holder comes back, longer than any request takes \
             (default 60s).";
    }

    pub(super) ALGORITHM = "`algorithm`" {
        required name: Word(ALGORITHMS), "\"sub-buckets\"", "Name of the algorithm.";
        optional count: Whole(1, MAX_SUB_BUCKETS), "6", "For sub-buckets: their number.";
        optional edge: Word(&["full", "weighted", "drop"]), "\"full\"",
            "For sub-buckets: weight of the sub-bucket that leaves the window.";
        optional min_gap: SPAN, "\"200ms\"",
            "For a sliding window log: minimum time between two requests.";
        optional save_up: SPAN, "\"1s\"",
            "For smooth-bursty: time for which permits are saved up (default: the limit's period).";
    }
}

/// The fields of [`ALGORITHM`] that belong to one algorithm: field and algorithm.
pub(crate) const OWNED: [(&str, &str); 4] = [
    ("count", "sub-buckets"),
    ("edge", "sub-buckets"),
    ("min_gap", "sliding-window-log"),
    ("save_up", "smooth-bursty"),
];
