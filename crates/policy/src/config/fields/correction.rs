//! Fields of reports: the results that count, those that reset, and estimates of costs.

use ratekeeper_core::Quota;

use super::{AMOUNT_SOURCE, DURATION, optional, pattern, required, whole};
use crate::config::shape::{FieldSpec, Shape, TableSpec};

/// Maximum number of statuses, and of outcomes: they are compared one by one.
const MAX_RESULTS: usize = 100;
const STATUS_CLASS: &str = "^[1-5]xx$";
const OUTCOME: &str = "^[A-Za-z0-9._-]{1,40}$";

pub(super) const COST: FieldSpec = optional(
    "cost",
    Shape::Either(COSTS),
    "5",
    "Cost of a request: a number, the attribute or the value of the body that holds it, or an \
     estimate that the actual cost replaces.",
);
pub(super) const COUNT: FieldSpec = optional(
    "count",
    Shape::Table(&COUNTED),
    "{ status = [401, 403] }",
    "Results that count. A request is charged when it is judged; a report of another result gives \
     the charge back.",
);
pub(super) const RESET_ON: FieldSpec = optional(
    "reset_on",
    Shape::Table(&RESETTING),
    "{ status = [200] }",
    "Results after which the key begins anew.",
);
pub(super) const REPORT_WITHIN: FieldSpec = optional(
    "report_within",
    pattern(DURATION),
    "\"10m\"",
    "Time within which POST /v1/report corrects a charge, at most 24h (default 2m); without a \
     report the charge stays.",
);

const AMOUNT: Shape = whole(1, Quota::MAX_PERMITS);
/// `reserve`: a number, an attribute, or a value of the body.
const AMOUNTS: &[Shape] = &[AMOUNT, pattern(AMOUNT_SOURCE)];
/// `cost`: the same, or a table.
const COSTS: &[Shape] = &[AMOUNT, pattern(AMOUNT_SOURCE), Shape::Table(&ESTIMATE)];

static ESTIMATE: TableSpec = TableSpec {
    what: "`cost`",
    fields: &[
        required(
            "reserve",
            Shape::Either(AMOUNTS),
            "\"attr:max_tokens\"",
            "Estimate that is charged until the actual cost is known: a number, an attribute, or a \
             value of the body.",
        ),
        optional(
            "settle",
            Shape::TEXT,
            "\"response.header:x-tokens-used\"",
            "Place of the actual cost in the response: a header field, a trailer \
             (response.trailer:x-tokens-used), or a value of its JSON \
             (response.json:/usage/total_tokens). The proxy listener and the tower layer read it; \
             other callers send it with POST /v1/report.",
        ),
        optional(
            "expire",
            pattern(DURATION),
            "\"2m\"",
            "The same as `report_within`, which may stand beside `cost` in its place.",
        ),
    ],
    ..TableSpec::EMPTY
};

static COUNTED: TableSpec = TableSpec {
    what: "`count`",
    fields: &[STATUS, OUTCOMES],
    ..TableSpec::EMPTY
};

static RESETTING: TableSpec = TableSpec {
    what: "`reset_on`",
    fields: &[STATUS, OUTCOMES],
    ..TableSpec::EMPTY
};

const STATUS: FieldSpec = optional(
    "status",
    Shape::Values {
        of: &Shape::Either(STATUSES),
        most: MAX_RESULTS,
    },
    "[401, \"5xx\"]",
    "Statuses of the response: numbers, or classes such as \"5xx\".",
);
const OUTCOMES: FieldSpec = optional(
    "outcome",
    Shape::Values {
        of: &WORD,
        most: MAX_RESULTS,
    },
    "\"declined\"",
    "Words of the application for the result of its work.",
);

/// `status`: a number, or a class.
const STATUSES: &[Shape] = &[whole(100, 599), pattern(STATUS_CLASS)];
const WORD: Shape = pattern(OUTCOME);
