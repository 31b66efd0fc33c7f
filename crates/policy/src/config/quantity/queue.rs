//! Queue: requests over the burst wait their turn instead of being refused.
//!
//! ```text
//!   bucket = { size = 4, refill = "10/1s" }     queue = { max = 100, max_wait = "500ms" }
//!
//!    o o o o       o     o     o     o     o       x        ten come in one instant
//!    at once      100   200   300   400   500 ms   refused
//!    |<- size ->| |<- min(max, max_wait / T) ->|            T = 100 ms
//! ```

use ratekeeper_core::{Gcra, Nanos, Permits, Quota};

use crate::config::{Table, codes, error};

/// Longest debt of a queue proposed in the help: safely below the longest possible one.
const LONG: Nanos = Nanos::from_secs(365 * 86_400);

/// `queue = { max, max_wait }`
#[derive(Clone, Debug)]
pub(super) struct QueueSpec<'a> {
    max: Permits,
    table: Table<'a>,
}

/// Reads `queue`, if it is written and right.
pub(super) fn queue(table: Table<'_>) -> Option<QueueSpec<'_>> {
    let table = table.table("queue")?;
    let max = Permits::new(table.number("max")?);
    Some(QueueSpec { max, table })
}

impl QueueSpec<'_> {
    /// Returns the GCRA of a bucket with room to wait, and the number of places; `None` if the
    /// values make no sense, which is reported.
    pub(super) fn behind(&self, gcra: Gcra, quota: Quota) -> Option<(Gcra, Permits)> {
        let interval = quota.time_for(Permits::ONE);
        let mut places = self.max;
        if let Some(wait) = self.table.span("max_wait") {
            let fit = gcra.paced_within(wait);
            if fit == Permits::ZERO {
                let message = format!("no request can wait in a queue with a `max_wait` of {wait}");
                let label =
                    format!("a permit comes every {interval}: {wait} / {interval} = 0 places");
                let at = self.table.place("max_wait");
                error(codes::PARAMETERS, at, message, label).help(format!(
                    "write max_wait = \"{interval}\" or more, or leave `queue` out"
                ));
                return None;
            }
            places = places.min(fit);
        }
        let Ok(queued) = Gcra::new(quota, places) else {
            self.too_long(gcra, quota, places);
            return None;
        };
        Some((queued, places))
    }

    /// Reports that the debt of a full queue exceeds the countable range.
    fn too_long(&self, gcra: Gcra, quota: Quota, places: Permits) {
        let (interval, whole) = (quota.time_for(Permits::ONE), quota.time_for(places));
        let message = format!("a queue of {places} is too long");
        let label =
            format!("{places} x {interval} = {whole}; burst and queue may take at most 1.1 years");
        let fit = gcra.paced_within(LONG).get();
        let help = match fit.saturating_sub(quota.burst_size().get()) {
            0 => "leave `queue` out: the burst alone takes a year".to_owned(),
            fit => format!("write max = {fit} or less"),
        };
        let at = self.table.place("max");
        error(codes::NOT_COUNTABLE, at, message, label).help(help);
    }

    /// Reports `queue` beside a quantity that is not paced.
    pub(super) fn stray(&self, beside: &str, help: String) {
        let message = format!("`queue` cannot be combined with {beside}");
        let label = "only a token bucket, a leaky bucket and `spacing` can have a queue";
        error(codes::ALGORITHM, self.table.at(), message, label).help(help);
    }
}
