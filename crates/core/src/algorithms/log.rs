//! Sliding log: the moment of every admitted permit; never more than N in any span P.
//!
//! Counts without approximation: looks back over the last `P` and counts the permits admitted
//! there. A permit counts from the moment it was spent until `P` later, no longer.
//!
//! ```text
//!              |<------------- P ------------->|
//!   -----x-----(---x--x---------------x--------]------> time
//!       gone   now - P                        now
//!                  |
//!                  the oldest that counts: it frees its place at its moment + P
//! ```
//!
//! Allow iff at most `N - cost` of the logged moments lie in `(now - P, now]`, which is one
//! look at the `(N - cost + 1)`-th newest; then `cost x now` is logged. A minimum gap, if
//! asked for, must lie between the newest moment and now as well.
//!
//! ```text
//!   constructor                      logs                a client that never pauses gets
//!   sliding                          admitted requests   N per P
//!   .. with_denials(Counted), strict all attempts        nothing, until it pauses
//!   .. with_gap                      as above            a permit per gap at most
//! ```
//!
//! * State: 8 bytes a permit, N at most, nothing for a key never seen; the ring grows to the
//!   permits in use and then stays, so that deciding allocates no more. N is bounded by
//!   [`MAX_PERMITS`]. Error: none.
//! * Worst case: `N x ceil(w / P)` in any span `w`: N in any `P`, the promise. Long run: N
//!   per P (strict: nothing while attempts come faster than that).
//! * Choose it for small quotas that promise "never more than N in any span": log-ins, codes by
//!   mail, payments. Avoid it for large ones: [sub-buckets](super::window) promise the same for 8
//!   bytes a bucket.
//! * A clock that steps back logs at the newest moment it had reached: it is denied longer by
//!   the step, and never gains.
//! * Laws: keeps all of them, with two exceptions by request: a gap makes the second of two
//!   requests at one instant wait, so it is not additive; [`Denials::Counted`] gives up
//!   "denial is free", and its lock-out ends `P` after the last attempt.
//! * Twin: `log.lua`, and `log/short.lua` for requests of one charge.
//! * Source: P. Hayes, "Better rate limiting with Redis sorted sets" (2015), for
//!   the log, the strict reading and the gap; founding documents 0, 1 and 4.

mod stored_form;

use alloc::collections::VecDeque;

use crate::algorithm::{Algorithm, Denials, Refund};
use crate::{
    AnyAlgorithm, Decision, Error, Nanos, Origin, Permits, Quota, Receipt, Reconfigure, Share,
    Time, Verdict, share,
};

/// Maximum number of permits that a log may count: 80,000 bytes a key.
pub const MAX_PERMITS: u32 = 10_000;
/// The longest span or gap, 146 years: no sum of spans overflows.
const MAX_SPAN: Nanos = Nanos::from_nanos(1 << 62);

/// A sliding window log; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Log, Nanos, Permits, Time, Verdict};
///
/// let log = Log::sliding("2/60s".parse().unwrap()).unwrap();
/// let mut logged = Default::default();
/// let at = |secs| Time::ZERO + Nanos::from_secs(secs);
/// assert!(log.decide(&mut logged, at(24), Permits::ONE).verdict.allows());
/// assert!(log.decide(&mut logged, at(36), Permits::ONE).verdict.allows());
/// let retry_after = Nanos::from_secs(35); // the first one leaves at 84 s
/// let denied = log.decide(&mut logged, at(49), Permits::ONE);
/// assert_eq!(denied.verdict, Verdict::Deny { retry_after });
/// ```
#[doc(alias("sliding window log", "rolling log", "sorted set"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Log {
    /// N: 1 to [`MAX_PERMITS`].
    permits: u32,
    /// P.
    per: Nanos,
    /// Minimum time between the newest moment and the next; zero for no gap.
    gap: Nanos,
    denials: Denials,
}

/// The moments of one key, oldest first, one for each permit.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct LogState(VecDeque<Time>);

impl LogState {
    /// The state with these moments, oldest first; `None` if they are in another order.
    pub(crate) fn of_moments(moments: VecDeque<Time>) -> Option<Self> {
        let ordered = moments.iter().is_sorted();
        ordered.then_some(Self(moments))
    }

    /// The moments, oldest first.
    pub(crate) fn moments(&self) -> impl ExactSizeIterator<Item = Time> {
        self.0.iter().copied()
    }
}

impl Log {
    /// A log of `quota.permits()` in any span of `quota.per()`.
    ///
    /// # Errors
    /// [`Error::LogTooLarge`] for more than [`MAX_PERMITS`], [`Error::WindowTooLong`] for a
    /// span of more than 146 years.
    pub fn sliding(quota: Quota) -> Result<Self, Error> {
        let Ok(permits @ ..=MAX_PERMITS) = u32::try_from(quota.permits().get()) else {
            return Err(Error::LogTooLarge);
        };
        if quota.per() > MAX_SPAN {
            return Err(Error::WindowTooLong);
        }
        Ok(Self {
            permits,
            per: quota.per(),
            gap: Nanos::ZERO,
            denials: Denials::Free,
        })
    }

    /// The same limit with another cost of denials: [`Denials::Counted`] is the strict log, which
    /// logs every attempt.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// The same limit with a minimum gap between two requests that are logged.
    ///
    /// # Errors
    /// [`Error::WindowTooLong`] for a gap of more than 146 years.
    pub fn with_gap(self, gap: impl Into<Nanos>) -> Result<Self, Error> {
        let gap = gap.into();
        if gap > MAX_SPAN {
            return Err(Error::WindowTooLong);
        }
        Ok(Self { gap, ..self })
    }

    /// N, as a number of moments.
    fn places(&self) -> usize {
        self.permits as usize
    }

    /// A cost as a number of moments: N if it is larger.
    fn clamped(&self, cost: Permits) -> usize {
        usize::try_from(cost.get()).map_or(self.places(), |cost| cost.min(self.places()))
    }

    /// The moment from which `cost` fits; in the past if it fits already.
    fn fits_at(&self, logged: &LogState, cost: Permits) -> Time {
        let others = self.places() - self.clamped(cost);
        let freed = match logged.0.len().checked_sub(others + 1) {
            Some(oldest) => logged.0[oldest] + self.per,
            None => Time::ZERO,
        };
        freed.max(self.gap_ends(logged))
    }

    /// The moment from which the newest permit is far enough away.
    fn gap_ends(&self, logged: &LogState) -> Time {
        match logged.0.back() {
            Some(&newest) if self.gap > Nanos::ZERO => newest + self.gap,
            _ => Time::ZERO,
        }
    }

    /// The largest cost that fits at `now`.
    fn remaining(&self, logged: &LogState, now: Time) -> Permits {
        if self.gap_ends(logged) > now {
            return Permits::ZERO;
        }
        self.capacity() - Permits::new(self.counted(logged, now) as u64)
    }

    /// Number of logged moments that still count at `now`.
    fn counted(&self, logged: &LogState, now: Time) -> usize {
        let is_gone = |&at: &Time| at + self.per <= now;
        if !logged.0.front().is_some_and(is_gone) {
            return logged.0.len(); // the oldest does: no need to search
        }
        logged.0.len() - logged.0.partition_point(is_gone)
    }

    /// Logs `cost` at `now`: at most N moments are kept, or as many as there were under a higher N,
    /// and none that no longer counts.
    fn push(&self, logged: &mut LogState, now: Time, cost: Permits) {
        let now = logged.0.back().map_or(now, |&newest| newest.max(now));
        let cost = self.clamped(cost);
        let moments = &mut logged.0;
        let kept = self.places().max(moments.len()) - cost;
        while moments.len() > kept || moments.front().is_some_and(|&at| at + self.per <= now) {
            if moments.pop_front().is_none() {
                break;
            }
        }
        let needed = moments.len() + cost;
        if needed > moments.capacity() {
            // Doubles, but never beyond N: the bound on memory is exact.
            let room = needed.next_power_of_two().min(self.places());
            moments.reserve_exact(room - moments.len());
        }
        moments.extend(core::iter::repeat_n(now, cost));
    }
}

impl Reconfigure for Log {
    /// A log without a gap.
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        Ok(Self::sliding(quota)?.with_denials(self.denials).into())
    }
}

impl Algorithm for Log {
    type State = LogState;

    fn name(&self) -> &'static str {
        match self.denials {
            Denials::Free => "sliding window log",
            Denials::Counted => "strict sliding window log",
        }
    }

    fn denials(&self) -> Denials {
        self.denials
    }

    /// The span that the log looks back over.
    fn window(&self) -> Option<Nanos> {
        Some(self.per)
    }

    fn refills_one_by_one(&self) -> bool {
        true
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.permits.into())
    }

    #[inline]
    fn decide(&self, logged: &mut LogState, now: Time, cost: Permits) -> Decision {
        let capable = cost <= self.capacity();
        let allowed = cost == Permits::ZERO || capable && self.fits_at(logged, cost) <= now;
        let counts = allowed || self.denials == Denials::Counted;
        let log_it = counts && cost > Permits::ZERO;
        if log_it {
            self.push(logged, now, cost);
        }
        let verdict = if allowed {
            Verdict::Allow
        } else if capable {
            Verdict::Deny {
                retry_after: self.fits_at(logged, cost).since(now),
            }
        } else {
            Verdict::DenyForever
        };
        let remaining = if log_it && self.gap == Nanos::ZERO {
            // All that are logged now count.
            self.capacity() - Permits::new(logged.0.len() as u64)
        } else {
            self.remaining(logged, now)
        };
        Decision {
            verdict,
            remaining,
            reset_after: self.expires_at(logged, now).since(now),
            more_after: match remaining {
                all if all == self.capacity() => Nanos::ZERO,
                some => self.fits_at(logged, some + Permits::ONE).since(now),
            },
        }
    }

    fn expires_at(&self, logged: &LogState, _now: Time) -> Time {
        match logged.0.back() {
            Some(&newest) => newest + self.per.max(self.gap),
            None => Time::ZERO,
        }
    }

    /// Keeps the later of the two, moment by moment from the newest.
    fn stricter(&self, logged: &mut LogState, other: &LogState) {
        let (mine, theirs) = (&mut logged.0, &other.0);
        let missing = theirs.len().saturating_sub(mine.len());
        mine.reserve_exact(missing);
        for &older in theirs.iter().take(missing).rev() {
            mine.push_front(older);
        }
        for (at, &their) in mine.iter_mut().rev().zip(theirs.iter().rev()) {
            *at = (*at).max(their);
        }
    }

    /// Moments keep their meaning, but a longer span lacks those that the old one dropped.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.per <= old.per
    }

    fn least_served(&self, kept: Quota) -> Share {
        Share::one_in(share::gap(self), kept).counting(self.denials)
    }

    fn bound(&self, window: Nanos) -> u64 {
        let spans = window
            .as_nanos()
            .div_ceil(self.per.max(self.gap).as_nanos()); // up: a part holds N
        u64::from(self.permits).saturating_mul(spans)
    }

    fn heap_bytes(&self) -> usize {
        self.places() * size_of::<Time>()
    }
}

impl Refund for Log {
    /// Takes out moments from that of the charge on, the oldest first: its own are later if the
    /// clock was behind.
    fn give_back_late(&self, logged: &mut LogState, now: Time, cost: Permits, receipt: Receipt) {
        if receipt.made + self.per <= now {
            return;
        }
        let first = logged.0.partition_point(|&at| at < receipt.made);
        let most = logged.0.len() - first;
        let back = usize::try_from(cost.get()).map_or(most, |cost| cost.min(most));
        logged.0.drain(first..first + back);
    }

    /// Takes out the newest moments that still count.
    fn refund(&self, logged: &mut LogState, now: Time, cost: Permits) {
        let counted = self.counted(logged, now); // more than N if N was lowered
        let back = usize::try_from(cost.get()).map_or(counted, |cost| cost.min(counted));
        logged.0.truncate(logged.0.len() - back);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn log(text: &str) -> Log {
        Log::sliding(text.parse().unwrap()).unwrap()
    }

    fn millis(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    /// One row of a story: at `now` ms, `cost`: the wait in ms if denied, and `remaining`.
    type Row = (u64, u64, Option<u64>, u64);

    fn check(limit: Log, rows: &[Row]) {
        let mut state = LogState::default();
        for &(now, cost, wait, remaining) in rows {
            let decision = limit.decide(&mut state, millis(now), Permits::new(cost));
            let wait = wait.map(Nanos::from_millis);
            assert_eq!(decision.verdict.retry_after(), wait, "{cost} at {now} ms");
            assert_eq!(decision.verdict.allows(), wait.is_none());
            assert_eq!(decision.remaining.get(), remaining, "{cost} at {now} ms");
        }
    }

    #[test]
    fn a_counted_cost_above_the_limit_fills_the_log() {
        let limit = log("10/1s").with_denials(Denials::Counted);
        let mut logged = LogState::default();
        let denied = limit.decide(&mut logged, Time::ZERO, Permits::new(11));
        assert_eq!(denied.verdict, Verdict::DenyForever);
        assert_eq!(logged.0.len(), 10, "the log holds at most its capacity");
        let next = limit.look(&logged, Time::ZERO, Permits::ONE);
        assert_eq!(next.verdict.retry_after(), Some(Nanos::from_secs(1)));
    }

    #[test]
    fn each_permit_is_free_again_one_period_later() {
        check(
            log("3/1s"),
            &[
                (100, 1, None, 2),
                (300, 2, None, 0),
                (600, 1, Some(500), 0),
                (600, 2, Some(700), 0),
                (1_099, 1, Some(1), 0),
                (1_100, 1, None, 0), // (t - P, t] is open on the left
                (1_299, 2, Some(1), 0),
                (1_300, 2, None, 0),
            ],
        );
    }

    #[test]
    fn sixty_seconds_are_sixty_slots_not_sixty_one() {
        let limit = log("60/60s");
        let mut state = LogState::default();
        let admitted = (0..120)
            .filter(|second| {
                let now = millis(second * 1_000);
                limit.decide(&mut state, now, Permits::ONE).verdict.allows()
            })
            .count();
        assert_eq!(admitted, 120);
    }

    #[test]
    fn requests_at_the_same_moment_all_count() {
        check(
            log("2/60s"),
            &[(5, 1, None, 1), (5, 1, None, 0), (5, 1, Some(60_000), 0)],
        );
    }

    #[test]
    fn a_client_that_keeps_trying_is_served_unless_denials_count() {
        let admitted = |limit: Log| {
            let mut state = LogState::default();
            let attempts = (0..10_000).step_by(50); // twice the rate, for 10 s
            attempts
                .filter(|&at| {
                    limit
                        .decide(&mut state, millis(at), Permits::ONE)
                        .verdict
                        .allows()
                })
                .count()
        };
        assert_eq!(admitted(log("10/1s")), 100);
        assert_eq!(admitted(log("10/1s").with_denials(Denials::Counted)), 10);
    }

    #[test]
    fn the_strict_lock_out_ends_one_period_after_the_last_attempt() {
        check(
            log("2/1s").with_denials(Denials::Counted),
            &[
                (0, 2, None, 0),
                (900, 1, Some(100), 0), // the two newest attempts: 0 and 900
                (950, 1, Some(950), 0), // 900 and 950
                (1_949, 2, Some(1_000), 0),
                (2_949, 2, None, 0),
            ],
        );
    }

    #[test]
    fn a_gap_holds_between_any_two_requests() {
        let limit = log("3/1s").with_gap(Nanos::from_millis(100)).unwrap();
        check(
            limit,
            &[
                (0, 1, None, 0),
                (40, 1, Some(60), 0),
                (100, 1, None, 0),
                (200, 1, None, 0),
                (300, 1, Some(700), 0),
                (1_000, 0, None, 1),
            ],
        );
        check(
            limit.with_denials(Denials::Counted),
            &[
                (0, 1, None, 0),
                (40, 1, Some(100), 0), // the gap runs from the attempt
                (140, 1, None, 0),
            ],
        );
    }

    #[test]
    fn memory_is_bounded_by_the_permits() {
        let limit = log("10/1s").with_denials(Denials::Counted);
        let mut state = LogState::default();
        for at in 0..1_000 {
            let _ = limit.decide(&mut state, millis(at), Permits::new(1 + at % 10));
            assert!(state.0.len() <= 10 && state.0.capacity() <= 10);
        }
        let before = state.0.capacity();
        let _ = limit.decide(&mut state, millis(5_000), Permits::ONE);
        assert_eq!(state.0.len(), 1, "expired entries are dropped");
        assert_eq!(state.0.capacity(), before, "the allocation is kept");
    }

    #[test]
    fn a_refund_removes_the_newest_entries() {
        let limit = log("3/1s");
        let mut state = LogState::default();
        let _ = limit.decide(&mut state, millis(0), Permits::ONE);
        let before = state.clone();
        let _ = limit.decide(&mut state, millis(100), Permits::new(2));
        limit.refund(&mut state, millis(100), Permits::new(2));
        assert_eq!(state, before);
        limit.refund(&mut state, millis(1_000), Permits::ONE);
        assert_eq!(state, before, "an expired entry cannot be refunded");
        limit.refund(&mut state, millis(999), Permits::MAX);
        assert_eq!(state, LogState::default());
    }

    #[test]
    fn the_stricter_state_allows_no_more_than_either() {
        let limit = log("3/1s");
        let histories: [&[(u64, u64)]; 5] = [
            &[],
            &[(0, 3)],
            &[(0, 1), (700, 1)],
            &[(300, 2)],
            &[(100, 1), (500, 1), (800, 1)],
        ];
        let states = histories.map(|history| {
            let mut state = LogState::default();
            for &(at, cost) in history {
                let _ = limit.decide(&mut state, millis(at), Permits::new(cost));
            }
            state
        });
        for (a, b) in states
            .iter()
            .flat_map(|a| states.iter().map(move |b| (a, b)))
        {
            let mut merged = a.clone();
            limit.stricter(&mut merged, b);
            assert!(merged.0.iter().is_sorted());
            for now in (800..2_000).step_by(50) {
                let left = |state| limit.look(state, millis(now), Permits::ZERO).remaining;
                assert!(
                    left(&merged) <= left(a).min(left(b)),
                    "{a:?} {b:?} at {now}"
                );
            }
        }
    }

    #[test]
    fn a_sliding_log_agrees_with_a_list_of_all_admissions() {
        // Against the definition: all admissions ever, counted over (now - P, now].
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..200 {
            let (permits, per) = (1 + random(6), 1 + random(12));
            let quota = Quota::new(Permits::new(permits), Nanos::from_nanos(per));
            let limit = Log::sliding(quota.unwrap()).unwrap();
            let (mut state, mut all, mut now) = (LogState::default(), Vec::new(), 0);
            for _ in 0..200 {
                now += random(4);
                let cost = random(permits + 2);
                let used: u64 = all
                    .iter()
                    .filter(|&&(at, _)| at + per > now)
                    .map(|&(_, cost)| cost)
                    .sum();
                let fits = used + cost <= permits;
                let decision = limit.decide(&mut state, Time::from_nanos(now), Permits::new(cost));
                assert_eq!(decision.verdict.allows(), fits || cost == 0);
                if fits {
                    all.push((now, cost));
                }
            }
        }
    }

    #[test]
    fn logs_too_large_are_refused() {
        let sliding = |text: &str| Log::sliding(text.parse().unwrap());
        assert!(sliding("10000/1d").is_ok());
        assert_eq!(sliding("10001/1d"), Err(Error::LogTooLarge));
        assert_eq!(log("1/1s").with_gap(Nanos::MAX), Err(Error::WindowTooLong));
    }
}
