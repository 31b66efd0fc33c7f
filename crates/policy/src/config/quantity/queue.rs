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

/// Reads `queue = { max, max_wait }`, if it is written and right.
pub(super) fn queue(limit: Table<'_>) -> Option<Table<'_>> {
    let queue = limit.table("queue")?;
    queue.number::<u64>("max").map(|_| queue)
}

/// Returns the GCRA of a bucket with room to wait, and the number of places; `None` if the
/// values make no sense, which is reported.
pub(super) fn behind(queue: Table<'_>, gcra: Gcra, quota: Quota) -> Option<(Gcra, Permits)> {
    let interval = quota.time_for(Permits::ONE);
    let mut places = Permits::new(queue.number("max")?);
    if let Some(wait) = queue.span("max_wait") {
        let fit = gcra.paced_within(wait);
        if fit == Permits::ZERO {
            let message = format!("no request can wait in a queue with a `max_wait` of {wait}");
            let label = format!("a permit comes every {interval}: {wait} / {interval} = 0 places");
            let at = queue.place("max_wait");
            error(codes::PARAMETERS, at, message, label).help(format!(
                "write max_wait = \"{interval}\" or more, or leave `queue` out"
            ));
            return None;
        }
        places = places.min(fit);
    }
    let Ok(queued) = Gcra::new(quota, places) else {
        too_long(queue, gcra, quota, places);
        return None;
    };
    Some((queued, places))
}

/// Reports that the debt of a full queue exceeds the countable range.
fn too_long(queue: Table<'_>, gcra: Gcra, quota: Quota, places: Permits) {
    let (interval, whole) = (quota.time_for(Permits::ONE), quota.time_for(places));
    let message = format!("a queue of {places} is too long");
    let label =
        format!("{places} x {interval} = {whole}; burst and queue may take at most 1.1 years");
    let fit = gcra.paced_within(LONG).get();
    let help = match fit.saturating_sub(quota.burst_size().get()) {
        0 => "leave `queue` out: the burst alone takes a year".to_owned(),
        fit => format!("write max = {fit} or less"),
    };
    error(codes::NOT_COUNTABLE, queue.place("max"), message, label).help(help);
}

/// Reports `queue` beside a quantity that is not paced.
pub(super) fn stray(queue: Table<'_>, beside: &str, help: &str) {
    let message = format!("`queue` cannot be combined with {beside}");
    let label = "only a token bucket, a leaky bucket and `spacing` can have a queue";
    error(codes::ALGORITHM, queue.at(), message, label).help(help);
}
