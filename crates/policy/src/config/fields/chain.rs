//! Fields of chains: the limits that are asked when one denies.

use ratekeeper_core::Quota;

use super::{MAX_PERCENT, QUOTA};
use crate::config::document::shape::{Either, Table, Whole, fields, pattern, percent};

const SIGNAL: &str = "^([a-z0-9-]{1,40}|upstream[.]([a-z0-9-]{1,40}[.])?(latency|errors))$";
const BELOW: &str = "^([1-9][0-9]{0,3}%|[0-9]+(us|ms|s))$";

fields! {
    pub(super) SOFT = "`soft`" {
        required extra: Either(&[percent(MAX_PERCENT), Whole(1, Quota::MAX_PERMITS)]), "\"10%\"",
            "Requests over the limit in the same period: a percentage of it, rounded down, or a \
             number.";
    }

    pub(super) ELASTIC = "`elastic`" {
        required up_to: pattern(QUOTA), "\"200/1m\"",
            "Maximum while the signal is low: a larger number, in the period of the limit.";
        required r#while: Table(&WHILE), "{ signal = \"load\", below = \"70%\" }",
            "Signal that allows the extra; without a level, or with one that has ended, it does \
             not.";
    }

    WHILE = "`while`" {
        required signal: pattern(SIGNAL), "\"load\"",
            "load: of this machine; upstream.latency, upstream.errors, upstream.ROUTE.latency \
             or upstream.ROUTE.errors: of [listen.proxy] in the last 10 s; or the name of a \
             signal that PUT /v1/signals/NAME sets.";
        required below: pattern(BELOW), "\"70%\"",
            "Level of the signal from which the extra ends: a percentage, or a time for a latency.";
    }
}
