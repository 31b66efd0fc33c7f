//! Concurrency: maximum number of permits at work at once, and how long a holder may be silent.
//!
//! ```text
//!   concurrency = { max = 50, lease = "60s" }        concurrency = 50, lease 60s
//! ```
//!
//! Permits are on loan: each comes back when its holder is done, or when the lease ends. So it is
//! no rate, and nothing that paces or queues can be combined with it.

use ratekeeper_core::{Concurrency, Denials, Nanos, Permits};

use super::Quantity;
use super::numbers::{Written, built};
use crate::config::{At, Table, codes, warning};

/// Lease of a limit without one of its own.
const DEFAULT_LEASE: Nanos = Nanos::from_secs(60);

/// Shortest lease without a warning: one store call may take half of it.
const SHORT_LEASE: Nanos = Nanos::from_millis(100);

/// Reads `concurrency = { max, lease }`, or a number; `None` if the values make no sense, which
/// is reported.
pub(super) fn concurrency(table: Table<'_>, denials: Denials) -> Option<Quantity> {
    let at = table.place("concurrency");
    let (max, place, lease) = match table.table("concurrency") {
        Some(fields) => {
            let lease = fields.span("lease").unwrap_or(DEFAULT_LEASE);
            if lease < SHORT_LEASE {
                let message = format!("a lease of {lease} ends while its holder works");
                let label = "the permit then serves another request";
                warning(codes::PARAMETERS, fields.place("lease"), message, label)
                    .help("write the longest time of a request, as in lease = \"60s\"");
            }
            (fields.number("max")?, fields.place("max"), lease)
        }
        None => (table.number("concurrency")?, at, DEFAULT_LEASE),
    };
    let permits = Permits::new(max);
    let words = format!("{permits} at once");
    let text = At::new(&*words, place);
    let limit = built(Concurrency::new(permits, lease), &text, Written::Lease)?;
    let algorithm = limit.with_denials(denials).into();
    Some(Quantity::new(algorithm, permits, words))
}
