//! Fields of costs, and of reports that correct them: prices, estimates, and results that count.

use super::requests::MATCH;
use super::{AMOUNT_SOURCE, DAY, MILLISECOND};
use crate::config::document::shape::{
    AMOUNT, Either, Shape, TEXT, Table, Values, Whole, fields, name, pattern, span, tables,
};

/// Maximum number of statuses, and of outcomes: they are compared one by one.
const MAX_RESULTS: usize = 100;
const STATUS_CLASS: &str = "^[1-5]xx$";

/// `report_within`: until then the store keeps a record of each request; ids count milliseconds.
pub(super) const WITHIN: Shape = span(MILLISECOND, DAY);
/// Maximum number of prices of a limit: each is compared with a request.
const MAX_PRICES: usize = 100;
/// `reserve`: a number, an attribute, a value of the body, or a list of prices.
const AMOUNTS: &[Shape] = &[
    AMOUNT,
    pattern(AMOUNT_SOURCE),
    tables(&PRICE, 1..=MAX_PRICES, "limit.cost.reserve"),
];
/// `cost`: the same, or a table.
pub(super) const COSTS: &[Shape] = &[
    AMOUNT,
    pattern(AMOUNT_SOURCE),
    Table(&ESTIMATE),
    tables(&PRICE, 1..=MAX_PRICES, "limit.cost"),
];

fields! {
    PRICE = "a price" {
        required is: AMOUNT, "10",
            "Cost of the requests of this price, whatever their caller states. Of all prices of a \
             request the highest counts, and 1 without any.";
        shared MATCH { method host path header descriptor };
    }

    ESTIMATE = "`cost`" {
        required reserve: Either(AMOUNTS), "\"attr:max_tokens\"",
            "Estimate that is charged until the actual cost is known: a number, an attribute, a value \
             of the body, or prices of some requests.";
        optional settle: TEXT, "\"response.header:x-tokens-used\"",
            "Place of the actual cost in the response: a header field, a trailer \
             (response.trailer:x-tokens-used), or a value of its JSON \
             (response.json:/usage/total_tokens). The proxy listener and the tower layer read it; \
             other callers send it with POST /v1/report.";
        optional expire: WITHIN, "\"2m\"",
            "The same as `report_within`, the field of the limit; write one of the two.";
    }

    pub(super) COUNT = "`count`" {
        optional status: Values(&Either(&[Whole(100, 599), pattern(STATUS_CLASS)]), MAX_RESULTS), "[401, \"5xx\"]",
            "Statuses of the response: numbers, or classes such as \"5xx\".";
        optional outcome: Values(&name(40, "._-"), MAX_RESULTS), "\"declined\"",
            "Words of the application for the result of its work.";
    }

    pub(super) RESET_ON = "`reset_on`" {
        shared COUNT { status outcome };
    }
}
