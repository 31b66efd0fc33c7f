//! Exclusions: the fields of a limit that cannot stand together, and why.
//!
//! They are checked before anything is compiled. The reader of a field that is excluded says nothing
//! more of it.

use crate::config::{Table, codes, error};

/// A field, and the fields that cannot be combined with it.
struct Exclusion {
    field: &'static str,
    /// Names with blanks between them.
    others: &'static str,
    /// Label of the finding.
    why: &'static str,
    code: &'static str,
}

/// Writes each exclusion as a row: a field, the others, the reason and the code.
macro_rules! exclusions {
    ($($field:literal beside $others:literal: $why:expr, $code:ident;)*) => {
        &[$(Exclusion { field: $field, others: $others, why: $why, code: codes::$code }),*]
    };
}

const EXTRA: &str = "the extra is a second limit, which counts requests as the first does";

const EXCLUSIONS: &[Exclusion] = exclusions! {
    "soft" beside "queue warmup ban count reset_on anchor elastic": EXTRA, EXTRA;
    "elastic" beside "queue warmup ban count reset_on anchor plans": EXTRA, EXTRA;
    "distinct" beside "queue warmup ban count reset_on anchor soft elastic otherwise cost":
        "a value counts as one, once in each window, and for no other reason", DISTINCT;
    "priority" beside "queue warmup ban soft elastic otherwise distinct":
        "a part is left free only where requests are allowed at once or refused", PRIORITY;
    "candidate" beside "balance concurrency ban count reset_on queue distinct priority":
        "the other number would not count what the limit counts", CANDIDATE;
    "on_limit" beside "queue warmup ban soft elastic otherwise distinct percent candidate":
        "a request that goes to the route is not refused, as these mean it to be", ROUTE;
    "unit" beside "spacing concurrency warmup queue soft elastic":
        "the numbers of the other are no quantities of a unit", UNIT;
    "balance" beside "queue warmup reset_on alert plans":
        "credits come back by grants alone, not by waiting, reports or plans", BALANCE;
    "queue" beside "warmup concurrency":
        "only a token bucket, a leaky bucket and `spacing` can have a queue", ALGORITHM;
    "warmup" beside "concurrency bucket spacing algorithm":
        "only a `limit` with a duration warms up, by an algorithm of its own", ALGORITHM;
};

impl Exclusion {
    /// Returns the fields of a limit that cannot be combined with that of the row.
    fn beside<'t>(&'t self, limit: Table<'t>) -> impl Iterator<Item = &'static str> + 't {
        let there = limit.has(self.field);
        let others = self.others.split(' ').filter(move |_| there);
        others.filter(move |other| limit.has(other))
    }
}

/// Reports the fields of a limit that cannot stand together.
pub(crate) fn exclusions(limit: Table<'_>) {
    for row in EXCLUSIONS {
        let field = row.field;
        for other in row.beside(limit) {
            let message = format!("`{field}` of {limit} cannot be combined with `{other}`");
            error(row.code, limit.place(field), message, row.why)
                .related(limit.place(other))
                .help(format!("leave `{other}` or `{field}` out"));
        }
    }
}

/// Returns true if a field of a limit stands beside one that it excludes, which is reported.
pub(crate) fn is_excluded(limit: Table<'_>, field: &str) -> bool {
    let rows = EXCLUSIONS.iter().filter(|row| row.field == field);
    rows.flat_map(|row| row.beside(limit)).next().is_some()
}
