//! Quantity: the amount that a limit allows, and the values it depends on.

pub(super) mod algorithm;
pub(super) mod anchor;
pub(super) mod balance;
pub(super) mod concurrency;
pub(super) mod dated;
pub(super) mod forms;
pub(super) mod limit_text;
pub(super) mod numbers;
pub(super) mod post_paid;
pub(super) mod queue;
pub(super) mod unit;

use ratekeeper_core::{AnyAlgorithm, Denials, Nanos, Origin, Permits, Quota};

use super::fields::QUANTITIES;
use super::{Spot, Table, ZoneSpec, codes, error};
use crate::model::rules::calendar::Word;

/// The amount that a limit allows.
#[derive(Clone, Debug)]
pub(super) struct Quantity {
    pub(super) algorithm: AnyAlgorithm,
    pub(super) quota: Permits,
    pub(super) window: Option<Nanos>,
    /// See [`Rule::keeps_to`](crate::Rule::keeps_to).
    pub(super) keeps_to: Option<Quota>,
    pub(super) text: String,
    /// How it counts, for comparing two quantities.
    pub(super) kind: QuantityKind,
    /// Where each key has a first day of the month: the same limit from the other days.
    pub(super) by_day: Option<QuantityByDay>,
}

impl Quantity {
    /// Returns a quantity without a period, which no other is compared with.
    fn new(algorithm: AnyAlgorithm, quota: Permits, text: String) -> Self {
        Self {
            algorithm,
            quota,
            window: None,
            keeps_to: None,
            text,
            kind: QuantityKind::Other,
            by_day: None,
        }
    }
}

/// A limit of months that begin on a day of the key.
#[derive(Clone, Debug)]
pub(super) struct QuantityByDay {
    /// Attribute of a request with the day.
    pub(super) attribute: String,
    /// From day 2 to day 31, each with its text.
    pub(super) others: Vec<(AnyAlgorithm, String)>,
}

/// How a quantity counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum QuantityKind {
    /// In the windows of an algorithm, of which a lower number never admits more; with the least
    /// time between two requests, zero for none.
    Windows(&'static str, Nanos),
    /// In windows of the calendar.
    Calendar(Word),
    /// As a debt that decreases with time.
    Bucket(Refill),
    /// In another way, which no other limit is compared with.
    Other,
}

/// The refill of a bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refill {
    pub(super) permits: Permits,
    pub(super) per: Nanos,
    /// True if requests over the burst wait.
    pub(super) queue: bool,
}

/// Values that a quantity depends on besides its own fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct Surroundings<'a> {
    pub(super) zone: &'a ZoneSpec,
    pub(super) origin: Origin,
    pub(super) denials: Denials,
}

/// Returns the place of the numbers of a limit.
pub(super) fn quantity_at(limit: Table<'_>) -> Spot<'_> {
    match (limit.first_of(QUANTITIES), limit.table("bucket")) {
        (Some("bucket"), Some(bucket)) => bucket.place("refill"),
        (field, _) => limit.place(field.unwrap_or("limit")),
    }
}

/// `count_denied`
pub(super) fn denials(table: Table<'_>) -> Option<Denials> {
    let counts = |flag| {
        if flag {
            Denials::Counted
        } else {
            Denials::Free
        }
    };
    table.flag("count_denied").map(counts)
}

/// Returns `None`, and reports an error, unless denials are free, as some algorithms require.
pub(super) fn free(denials: Denials, what: &str, at: Spot<'_>, instead: &str) -> Option<()> {
    if denials == Denials::Free {
        return Some(());
    }
    let message = format!("`count_denied` cannot be combined with {what}");
    let label = "cannot count refused requests";
    error(codes::ALGORITHM, at, message, label).help(format!(
        "write count_denied = false in this limit, or {instead}"
    ));
    None
}
