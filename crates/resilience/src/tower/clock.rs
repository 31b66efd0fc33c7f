//! Clock: the time of the tokio runtime, so that tests can hold it.

use std::sync::LazyLock;
use std::time::SystemTime;

use ratekeeper_core::{Nanos, Origin, Time};
use tokio::time::Instant;

/// One zero for all layers of a process: they may share a budget or a breaker, whenever each
/// of them was made.
static ZERO: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The time by which all layers of this process count.
pub(super) fn now() -> Time {
    Time::ZERO + Nanos::from(ZERO.elapsed())
}

/// What day that zero was. Asked when a date is to be read, and not before: the day is set
/// anew now and then, and a machine that slept has lost hours.
pub(super) fn origin() -> Origin {
    #[expect(
        clippy::disallowed_methods,
        reason = "dates in Retry-After need to know what day it is"
    )]
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = Nanos::from(since_1970.unwrap_or_default());
    Origin::from_unix_nanos(since_1970.as_nanos().saturating_sub(now().as_nanos()))
}
