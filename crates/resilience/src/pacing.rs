//! Pacing: slow down before the server refuses.
//!
//! Servers report how much of a limit remains, and until when. A client that is near the end
//! spreads the remaining quota over that time, instead of spending it and being refused.
//!
//! ```text
//!   left of quota
//!   100 % |**
//!         |   ****
//!    10 % |- - - - **. . . . . . . . . . . .    from here one request each t / r
//!       0 +-----------------------------------> time
//! ```
//!
//! * If `r <= 10 %` of `q`: `gap = t / max(r, 1)`; otherwise no gap. Without `q` nothing is
//!   known to be near its end.
//! * `t` is in whole seconds, rounded up. A `t` of 1 may be the 10 ms of a leaky bucket of 100
//!   requests a second, so the gap is then `w / q` at most.
//! * The gap ends after `t`, and with any answer that reports room again.
//! * Default 10 %: most bursts never reach it, and a tenth suffices to space out the rest.
//! * Bound: besides those that wait already, which keep their places, fewer than `max(r, 1)`
//!   requests leave before the end of a `t` above 1 unless another answer comes. Those that find
//!   no place leave at its end, where nothing is known yet.
//! * A `t` of more than ten minutes is not believed, as in [`RetryAfter`](crate::RetryAfter).
//! * Source: draft-ietf-httpapi-ratelimit-headers-11 (2026), where `t` is the span within
//!   which no more than `r` may be used.

use ratekeeper_core::{Nanos, Time};

use crate::rate_limit::{RateLimit, RateLimitPolicy};
use crate::sync::is_over;

/// No server spaces a client out for longer: 10 minutes.
const WITHIN_MAX: Nanos = Nanos::from_secs(600);

/// Pace of requests to one server, as its answers set it.
///
/// ```
/// use ratekeeper_core::{Nanos, Time};
/// use ratekeeper_resilience::Pacing;
///
/// let (mut pacing, now) = (Pacing::default(), Time::ZERO);
/// assert_eq!(pacing.next_wait(now), Nanos::ZERO);
/// // Five of a hundred are left for the next ten seconds: one every two.
/// pacing.learn(now, r#""burst";r=5;t=10"#, r#""burst";q=100;w=60"#);
/// assert_eq!(pacing.next_wait(now), Nanos::from_secs(2));
/// assert_eq!(pacing.next_wait(now), Nanos::from_secs(4));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// Share of the quota at which pacing begins; 0 never paces.
    from_percent: u32,
    gap: Nanos,
    gap_until: Time,
    /// When the next request may leave.
    next: Time,
}

impl Default for Pacing {
    fn default() -> Self {
        Self::from_percent(10)
    }
}

impl Pacing {
    /// Begins to pace when at most `percent` percent of the quota remains.
    pub fn from_percent(percent: u32) -> Self {
        Self {
            from_percent: percent,
            gap: Nanos::ZERO,
            gap_until: Time::ZERO,
            next: Time::ZERO,
        }
    }

    /// Records an answer with these fields. The limit that leaves the least room counts; fields
    /// without a usable limit change nothing.
    pub fn learn(&mut self, now: Time, rate_limit: &str, policy: &str) {
        let policies = RateLimitPolicy::parse(policy);
        let gaps = RateLimit::parse(rate_limit)
            .into_iter()
            .filter_map(|limit| {
                let policy = policies.iter().find(|policy| policy.name == limit.name)?;
                let within = limit.within.filter(|&within| within <= WITHIN_MAX)?;
                Some((self.gap(limit.remaining, policy, within), within))
            });
        let Some((gap, within)) = gaps.max() else {
            return;
        };
        // The first request waits too, because the remaining quota may be zero. Requests that
        // already wait keep their places, unless there is room again.
        if gap == Nanos::ZERO || self.gap_until <= now {
            self.next = now;
        }
        self.next = self.next.max(now + gap);
        (self.gap, self.gap_until) = (gap, now + within);
    }

    /// Returns how long the next request is to wait; the request takes its place by this call.
    pub fn next_wait(&mut self, now: Time) -> Nanos {
        if is_over(self.gap_until, WITHIN_MAX, now) || self.gap == Nanos::ZERO {
            return Nanos::ZERO;
        }
        // Beyond the span nothing is known: there requests leave at its end.
        let leaves = self.next.max(now).min(self.gap_until);
        self.next = leaves + self.gap;
        leaves.since(now)
    }

    /// Rounded up: rather a little late.
    fn gap(&self, remaining: u64, policy: &RateLimitPolicy, within: Nanos) -> Nanos {
        let spread =
            |span: Nanos, permits: u64| Nanos::from_nanos(span.as_nanos().div_ceil(permits.max(1)));
        let enough = u128::from(policy.quota) * u128::from(self.from_percent);
        if u128::from(remaining) * 100 > enough || self.from_percent == 0 {
            return Nanos::ZERO;
        }
        let gap = spread(within, remaining);
        match policy.window {
            Some(window) if within <= Nanos::SECOND => gap.min(spread(window, policy.quota)),
            _ => gap,
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn the_last_permits_are_spread_over_the_window() {
        for (rate_limit, policy, gap_ms) in [
            (r#""a";r=11;t=10"#, r#""a";q=100"#, 0),
            (r#""a";r=10;t=10"#, r#""a";q=100"#, 1_000),
            (r#""a";r=1;t=10"#, r#""a";q=100"#, 10_000),
            (r#""a";r=0;t=10"#, r#""a";q=100"#, 10_000),
            (r#""a";r=0;t=0"#, r#""a";q=100"#, 0),
            (r#""a";r=0;t=601"#, r#""a";q=100"#, 0),
            (r#""a";r=0"#, r#""a";q=100"#, 0),
            (r#""a";r=0;t=10"#, r#""b";q=100"#, 0),
            (r#""a";r=0;t=10"#, "", 0),
            (r#""leaky";r=0;t=1"#, r#""leaky";q=100;w=1"#, 10),
            (r#""slow";r=0;t=1"#, r#""slow";q=5;w=60"#, 1_000),
            (
                r#""a";r=50;t=10,"b";r=2;t=30"#,
                r#""a";q=100,"b";q=20"#,
                15_000,
            ),
        ] {
            let mut pacing = Pacing::default();
            pacing.learn(at(0), rate_limit, policy);
            assert_eq!(
                pacing.next_wait(at(0)),
                Nanos::from_millis(gap_ms),
                "{rate_limit}"
            );
        }
    }

    #[test]
    fn the_pace_ends_with_its_time_and_with_room() {
        let mut pacing = Pacing::default();
        pacing.learn(at(0), r#""a";r=5;t=10"#, r#""a";q=100"#);
        assert_eq!(pacing.next_wait(at(10_000)), Nanos::ZERO);
        pacing.learn(at(11_000), r#""a";r=0;t=10"#, r#""a";q=100"#);
        assert_eq!(pacing.next_wait(at(11_000)), Nanos::from_secs(10));
        pacing.learn(at(12_000), r#""a";r=90;t=10"#, r#""a";q=100"#);
        assert_eq!(pacing.next_wait(at(12_000)), Nanos::ZERO);
    }

    #[test]
    fn an_answer_with_less_left_holds_for_requests_that_do_not_wait_yet() {
        let mut pacing = Pacing::default();
        pacing.learn(at(0), r#""a";r=5;t=10"#, r#""a";q=100"#);
        assert_eq!(
            pacing.next_wait(at(0)),
            Nanos::from_secs(2),
            "keeps its place"
        );
        pacing.learn(at(1_000), r#""a";r=0;t=60"#, r#""a";q=100"#);
        assert_eq!(pacing.next_wait(at(1_000)), Nanos::from_secs(60));
    }

    #[test]
    fn a_clock_set_back_delays_no_request() {
        let mut pacing = Pacing::default();
        pacing.learn(at(3_600_000), r#""a";r=0;t=600"#, r#""a";q=100"#);
        assert_eq!(pacing.next_wait(at(3_600_000)), Nanos::from_secs(600));
        assert_eq!(pacing.next_wait(at(2_999_999)), Nanos::ZERO);
        assert_eq!(pacing.next_wait(at(0)), Nanos::ZERO);
    }

    #[test]
    fn no_more_requests_are_sent_than_permits_remain() {
        let mut pacing = Pacing::default();
        pacing.learn(at(0), r#""a";r=5;t=10"#, r#""a";q=100"#);
        let waits: Vec<_> = (0..20).map(|_| pacing.next_wait(at(0))).collect();
        let within = waits.iter().filter(|&&wait| wait < Nanos::from_secs(10));
        assert_eq!(within.count(), 4);
        assert_eq!(waits[4..], [Nanos::from_secs(10); 16]);
    }
}
