//! Fields of chains: the limits that are asked when one denies.

use ratekeeper_core::Quota;

use super::{QUOTA, optional, pattern, required, texts, whole};
use crate::chain::MAX_OTHERWISE;
use crate::config::shape::{FieldSpec, Shape, TableSpec};

const PERCENT: &str = "^[1-9][0-9]{0,3}%$";
const SIGNAL: &str = "^([a-z0-9-]{1,40}|upstream[.]([a-z0-9-]{1,40}[.])?(latency|errors))$";
const BELOW: &str = "^([1-9][0-9]{0,3}%|[0-9]+(us|ms|s))$";

pub(super) const SOFT: FieldSpec = optional(
    "soft",
    Shape::Table(&SOFT_TABLE),
    "{ extra = \"10%\" }",
    "Requests over the limit that pass with a warning.",
);

pub(super) const ELASTIC: FieldSpec = optional(
    "elastic",
    Shape::Table(&ELASTIC_TABLE),
    "{ up_to = \"200/1m\", while = { signal = \"load\", below = \"70%\" } }",
    "Requests over the limit that pass while a signal is low.",
);

pub(super) const OTHERWISE: FieldSpec = optional(
    "otherwise",
    texts(MAX_OTHERWISE),
    "\"named\"",
    "Names of the limits that are asked, in order, when this one denies; they are asked by no other \
     request.",
);

static SOFT_TABLE: TableSpec = TableSpec {
    what: "`soft`",
    fields: &[required(
        "extra",
        Shape::Either(&[pattern(PERCENT), whole(1, Quota::MAX_PERMITS)]),
        "\"10%\"",
        "Requests over the limit in the same period: a percentage of it, rounded down, or a number.",
    )],
    ..TableSpec::EMPTY
};

static ELASTIC_TABLE: TableSpec = TableSpec {
    what: "`elastic`",
    fields: &[
        required(
            "up_to",
            pattern(QUOTA),
            "\"200/1m\"",
            "Maximum while the signal is low: a larger number, in the period of the limit.",
        ),
        required(
            "while",
            Shape::Table(&WHILE),
            "{ signal = \"load\", below = \"70%\" }",
            "Signal that allows the extra; without a level, or with one that has ended, it does not.",
        ),
    ],
    ..TableSpec::EMPTY
};

static WHILE: TableSpec = TableSpec {
    what: "`while`",
    fields: &[
        required(
            "signal",
            pattern(SIGNAL),
            "\"load\"",
            "load: that of this machine; upstream.latency, upstream.errors, upstream.ROUTE.latency or \
             upstream.ROUTE.errors: those of [listen.proxy] in the last 10 s; or the name of a signal \
             that PUT /v1/signals/NAME sets.",
        ),
        required(
            "below",
            pattern(BELOW),
            "\"70%\"",
            "Level of the signal from which the extra ends: a percentage, or a time for a latency.",
        ),
    ],
    ..TableSpec::EMPTY
};
