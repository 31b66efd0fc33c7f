//! Clock: the time of the tokio runtime, so that tests can hold it.

use std::sync::LazyLock;
use std::time::Duration;

use ratekeeper_core::{Nanos, Time};
use tokio::time::Instant;

/// By how much the zero lies before the moment at which it is first asked for.
const HEAD_START: Duration = Duration::from_secs(30 * 24 * 3_600);

/// One zero for all calls of a process: they may share a budget or a breaker, whenever each of
/// these was made. A runtime with a clock that a test holds or moves has its own time, which may
/// lie before that of the runtime that asks first: before the zero, time would stand.
static ZERO: LazyLock<Instant> = LazyLock::new(|| {
    let now = Instant::now();
    now.checked_sub(HEAD_START).unwrap_or(now)
});

/// Returns the time by which all calls of this process count.
pub(crate) fn now() -> Time {
    Time::ZERO + Nanos::from(ZERO.elapsed())
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
