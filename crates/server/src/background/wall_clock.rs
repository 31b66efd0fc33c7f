//! Wall clock: notices that it was set, and renews the windows that follow it.
//!
//! ```text
//!   monotonic  ----+----+----+----+----+----+      decides; never steps
//!   wall       ----+----+----    ----+----+---     begins days and grids; may be set
//!                          jump: beyond 2 s in sum
//! ```
//!
//! The used quota of a window carries over to the window that is current after the jump. So a
//! clock that is set back gives no window a second quota, and one that is set forward begins
//! the next window with the used quota of the last.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_core::{Origin, Time};
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;

/// How often the two clocks are compared.
const COMPARE: Duration = Duration::from_secs(1);
/// Maximum difference that is tolerated.
const TOLERATED: Duration = Duration::from_secs(2);

/// Compares them until the service ends.
pub(crate) async fn watch(shared: Arc<ServiceContext>) {
    let mut tick = interval(COMPARE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let clock = shared.keeper.clock();
        let known = shared.origin();
        let (now, wall) = (clock.now(), clock.wall());
        let Some((ahead, origin)) = jump(known, now, wall) else {
            continue;
        };
        shared.observers.metrics.process.wall_clock_jumps.add(1);
        let follows = if shared.keeper.store().shared().is_some() {
            "active hours follow it, windows the clock of the shared store"
        } else {
            "calendar windows, fixed windows and active hours follow it"
        };
        let text = format!("the wall clock was set by {ahead:+} s: {follows}");
        shared.sink.notice(text);
        if shared.keeper.store().shared().is_some() {
            shared.keeper.set_wall_origin(origin);
            continue;
        }
        // Compiling a large policy takes a while.
        let follow = move |shared: &Arc<ServiceContext>| shared.follow_wall_clock(origin);
        shared.apart(follow).await;
    }
}

/// Returns by how many seconds the wall clock is ahead of the known origin, and the zero of the
/// clock now; `None` while they agree within `TOLERATED`.
fn jump(known: Origin, now: Time, wall: u64) -> Option<(i128, Origin)> {
    let ahead = i128::from(wall) - i128::from(known.unix_nanos(now));
    // Down to 1970 at the earliest: a clock that is set further back is followed so far.
    let origin = Origin::from_unix_nanos(wall.saturating_sub(now.as_nanos()));
    let jumped = ahead.unsigned_abs() > TOLERATED.as_nanos() && origin != known;
    jumped.then_some((ahead / 1_000_000_000, origin))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_seconds_in_sum_are_tolerated() {
        const SECOND: u64 = 1_000_000_000;
        let known = Origin::from_unix_nanos(1_000 * SECOND);
        let now = Time::from_nanos(500 * SECOND);
        let at = |seconds: u64| {
            jump(known, now, seconds * SECOND)
                .map(|(ahead, origin)| (ahead, origin.as_unix_nanos() / SECOND))
        };
        for seconds in 1_498..=1_502 {
            assert_eq!(at(seconds), None, "{seconds}");
        }
        assert_eq!(at(1_503), Some((3, 1_003)));
        assert_eq!(at(1_400), Some((-100, 900)));
        assert_eq!(
            at(100),
            Some((-1_400, 0)),
            "the zero is 1970 at the earliest"
        );
        let known = Origin::UNIX;
        assert_eq!(
            jump(known, now, 100 * SECOND),
            None,
            "the jump is already followed"
        );
    }
}
