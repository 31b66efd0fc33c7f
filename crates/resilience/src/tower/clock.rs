//! Clock: the time of the tokio runtime, so that tests can hold it.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use ratekeeper_core::{Nanos, Origin, Time};
use tokio::time::Instant;

/// By how much the zero lies before the moment at which it is first asked for.
const HEAD_START: Duration = Duration::from_secs(30 * 24 * 3_600);

/// One zero for all layers of a process: they may share a budget or a breaker, whenever each of
/// them was made. A runtime with a clock that a test holds or moves has its own time, which may
/// lie before that of the runtime that asks first: before the zero, time would stand.
static ZERO: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(HEAD_START).unwrap_or(now)
});

/// Returns the time by which all layers of this process count.
pub(super) fn now() -> Time {
    Time::ZERO + Nanos::from(ZERO.elapsed())
}

/// Returns the date of that zero. It is read when a date is parsed, and not before, because the
/// system date is set anew now and then, and a machine that slept has lost hours.
pub(super) fn origin() -> Origin {
    #[expect(
        clippy::disallowed_methods,
        reason = "dates in Retry-After need the current date"
    )]
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since_1970 = Nanos::from(since_1970.unwrap_or_default());
    Origin::from_unix_nanos(since_1970.as_nanos().saturating_sub(now().as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes_in_a_runtime_that_is_behind_another() {
        let held = || {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            runtime.enable_time().start_paused(true).build().unwrap()
        };
        held().block_on(async {
            tokio::time::advance(Duration::from_secs(24 * 3_600)).await;
            assert!(now() > Time::ZERO);
        });
        held().block_on(async {
            let before = now();
            tokio::time::advance(Duration::from_secs(1)).await;
            assert_eq!(now().since(before), Nanos::SECOND);
        });
    }
}
