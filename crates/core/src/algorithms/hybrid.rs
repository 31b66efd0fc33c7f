//! Hybrid quota-linear: a whole quota at once for occasional clients, an even pace for busy ones.
//!
//! A key begins *bursty*: a window opens with its first request and holds N permits. Taking the
//! last one turns the key *smooth*: nothing more in this window, then one permit every `P / N`.
//! After a pause in which a whole quota is saved up, the key is bursty again.
//!
//! ```text
//!   permits                      N = 3
//!    3 |--+                                  full again: bursty
//!      |  +-+                              . '
//!    1 |    +--+           *    *    . ' '
//!    0 |-------+----------'|---'|-'---------------> time
//!      |  bursty  .     '  |    |
//!   -N |          x  '     one every P / N
//!      |<- window, P ->|   smooth
//!        the last permit: the bucket falls so low that it holds 1 when the window ends
//! ```
//!
//! Smooth, the bucket is one number, the moment `z` at which it was empty: it holds
//! `(now - z) x N / P`. In whole numbers throughout: `z` is kept to `1 / N` ns, so nothing
//! is lost or gained by rounding.
//!
//! ```text
//!   mode     allow iff                 next
//!   fresh    cost <= N                 bursty from now, N permits
//!   bursty   cost <= left              left -= cost; at 0: smooth, z = end of window - P / N
//!   smooth   cost x P / N <= now - z   z += cost x P / N
//!
//!   refund   while the window lasts: left += cost, at N: fresh; else: z -= cost x P / N
//! ```
//!
//! A bursty window that has ended, and a smooth bucket that is full, are fresh. A key that
//! has just turned smooth is stored as a window with no permits left, so that a refund finds
//! the window again.
//!
//! * State: 24 bytes. Error: none.
//! * Worst case: as [quota reset](super::quota_reset), `2N - 1` in a span P: a client that always
//!   leaves one permit never turns smooth and doubles up at the edge of its windows
//!   (`2N - 2` within 2 ns). In the first span from fresh, N. Long run: N per P.
//! * Choose it when a contract says "N per window" and clients that overdo it should be
//!   smoothed, not stopped and started. Its inventor advises [GCRA](super::gcra) instead.
//! * A clock that steps back finds the window or bucket it had reached: it is denied longer
//!   by the step, and never gains.
//! * Laws: keeps all of them. A refund undoes a charge of the same instant; the refund of the
//!   charge that turned a key smooth makes it bursty again while the window lasts, so that
//!   later it may hold more than its cost. A window opens with a request, so a smaller
//!   history may admit less.
//! * Twin: `hybrid.lua`, and `hybrid/short.lua` for requests of one charge.
//! * Source: T. Finch, "A hybrid quota-linear rate limiter" (founding document 3).

mod reconfigure;
mod refund;
mod stored_form;

use crate::algorithm::Algorithm;
use crate::{Decision, Error, Nanos, Permits, Quota, Share, Time, Verdict};

/// The longest window, 146 years: no sum of spans overflows.
const MAX_WINDOW: Nanos = Nanos::from_nanos(1 << 62);

/// A quota that turns into a pace; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Hybrid, Nanos, Permits, Time, Verdict};
///
/// let limit = Hybrid::quota_linear("3/3s".parse().unwrap()).unwrap();
/// let mut state = Default::default();
/// assert!(limit.decide(&mut state, Time::ZERO, Permits::new(3)).verdict.allows());
/// for second in 3..6 {
///     let now = Time::ZERO + Nanos::from_secs(second);
///     assert!(limit.decide(&mut state, now, Permits::ONE).verdict.allows());
///     let retry_after = Nanos::SECOND;
///     let denied = limit.decide(&mut state, now, Permits::ONE);
///     assert_eq!(denied.verdict, Verdict::Deny { retry_after });
/// }
/// ```
#[doc(alias = "hybrid quota-linear")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hybrid {
    /// N: at least 1.
    permits: u64,
    /// P.
    per: u64,
}

/// The state of one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HybridState(HybridPhase);

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
enum HybridPhase {
    /// Never seen, or idle long enough.
    #[default]
    Fresh,
    /// A window was opened, and `left` permits remain. At 0 it counts as a bucket that holds 1
    /// when the window ends.
    Bursty { opened: Time, left: u64 },
    /// The bucket fills evenly; it was empty at this moment.
    Smooth { at: Time, part: u64 },
}

/// The moment at which a smooth bucket is empty: nanoseconds, and Nths of one below N.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Empty {
    at: Time,
    part: u64,
}

impl Hybrid {
    /// `quota.permits()` at once, and when they are used up one by one at the quota's rate.
    ///
    /// # Errors
    /// [`Error::WindowTooLong`] for a span of more than 146 years.
    pub fn quota_linear(quota: Quota) -> Result<Self, Error> {
        if quota.per() > MAX_WINDOW {
            return Err(Error::WindowTooLong);
        }
        Ok(Self {
            permits: quota.permits().get(),
            per: quota.per().as_nanos(),
        })
    }

    /// The phase at `now`; fresh if it has expired.
    #[inline]
    fn seen(&self, state: &HybridState, now: Time) -> HybridPhase {
        match self.plain(state.0) {
            HybridPhase::Fresh => HybridPhase::Fresh,
            phase if now >= self.expires_at(&HybridState(phase), now) => HybridPhase::Fresh,
            phase => phase,
        }
    }

    /// The phase; a window without permits is replaced by the bucket that it counts as.
    #[inline]
    fn plain(&self, phase: HybridPhase) -> HybridPhase {
        match phase {
            HybridPhase::Bursty { opened, left: 0 } => self.bucket_of(opened, 1).into(),
            phase => phase,
        }
    }

    /// The end of a window.
    fn end_of(&self, opened: Time) -> Time {
        opened + Nanos::from_nanos(self.per)
    }

    /// The time of `permits` at the quota's rate, and `part` Nths of a nanosecond: whole
    /// nanoseconds, and Nths below N.
    #[inline]
    fn time_of(&self, permits: u64, part: u64) -> (Nanos, u64) {
        let (wide, count) = (u128::from(permits) * u128::from(self.per), self.permits);
        let wide = wide + u128::from(part);
        // Products that fit a word, which is nearly all of them, divide ten times faster.
        let (whole, part) = if let Ok(narrow) = u64::try_from(wide) {
            (narrow / count, narrow % count)
        } else {
            let (whole, part) = (wide / u128::from(count), wide % u128::from(count));
            let narrow = |wide| u64::try_from(wide).unwrap_or(u64::MAX);
            (narrow(whole), narrow(part))
        };
        (Nanos::from_nanos(whole), part)
    }

    /// The bucket that holds `permits` at the end of the window opened at `opened`.
    fn bucket_of(&self, opened: Time, permits: u64) -> Empty {
        let (whole, part) = self.time_of(permits, 0);
        let end = self.end_of(opened);
        match part {
            0 => Empty {
                at: end - whole,
                part: 0,
            },
            part => Empty {
                at: end - whole - Nanos::from_nanos(1),
                part: self.permits - part,
            },
        }
    }

    /// The bucket after `cost` is taken out.
    fn after(&self, empty: Empty, cost: Permits) -> Empty {
        let (whole, part) = self.time_of(cost.get(), empty.part);
        Empty {
            at: empty.at + whole,
            part,
        }
    }

    /// The bucket before `cost` was taken out; at the earliest one that is empty at time zero.
    fn before(&self, empty: Empty, cost: Permits) -> Empty {
        let (whole, part) = self.time_of(cost.get(), 0);
        let (borrowed, part) = match empty.part.checked_sub(part) {
            Some(part) => (Nanos::ZERO, part),
            None => (Nanos::from_nanos(1), empty.part + (self.permits - part)),
        };
        let taken = whole + borrowed;
        if taken > empty.at.since(Time::ZERO) {
            return Empty {
                at: Time::ZERO,
                part: 0,
            };
        }
        Empty {
            at: empty.at - taken,
            part,
        }
    }

    /// Number of whole permits in the bucket.
    fn held(&self, empty: Empty, now: Time) -> Permits {
        let gone = u128::from(now.since(empty.at).as_nanos()) * u128::from(self.permits);
        let held = gone.saturating_sub(u128::from(empty.part)) / u128::from(self.per);
        Permits::new(u64::try_from(held).unwrap_or(u64::MAX))
    }

    /// The decision with the remaining permits and waits of `phase`.
    fn decision(&self, verdict: Verdict, phase: HybridPhase, now: Time) -> Decision {
        let reset_after = self.expires_at(&HybridState(phase), now).since(now);
        let (remaining, more_after) = match self.plain(phase) {
            HybridPhase::Fresh => (Permits::new(self.permits), Nanos::ZERO),
            HybridPhase::Bursty { left, .. } => (Permits::new(left), reset_after),
            HybridPhase::Smooth { at, part } => {
                let empty = Empty { at, part };
                let held = self.held(empty, now);
                let more = self.after(empty, Permits::new(held.get() + 1));
                (held, more.up().since(now))
            }
        };
        Decision {
            verdict,
            remaining,
            reset_after,
            more_after,
        }
    }
}

impl From<Empty> for HybridPhase {
    fn from(Empty { at, part }: Empty) -> Self {
        Self::Smooth { at, part }
    }
}

impl Empty {
    /// The first whole nanosecond at or after it.
    fn up(self) -> Time {
        match self.part {
            0 => self.at,
            _ => self.at + Nanos::from_nanos(1),
        }
    }
}

impl Algorithm for Hybrid {
    type State = HybridState;

    fn name(&self) -> &'static str {
        "hybrid"
    }

    /// The span of the quota.
    fn window(&self) -> Option<Nanos> {
        Some(Nanos::from_nanos(self.per))
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.permits)
    }

    #[inline]
    fn decide(&self, state: &mut HybridState, now: Time, cost: Permits) -> Decision {
        let phase = self.seen(state, now);
        if cost == Permits::ZERO {
            return self.decision(Verdict::Allow, phase, now);
        }
        if cost.get() > self.permits {
            return self.decision(Verdict::DenyForever, phase, now);
        }
        let allowed_at = match phase {
            HybridPhase::Fresh => Time::ZERO,
            HybridPhase::Bursty { left, .. } if cost.get() <= left => Time::ZERO,
            HybridPhase::Bursty { opened, .. } => self.end_of(opened),
            HybridPhase::Smooth { at, part } => self.after(Empty { at, part }, cost).up(),
        };
        if now < allowed_at {
            let retry_after = allowed_at.since(now);
            return self.decision(Verdict::Deny { retry_after }, phase, now);
        }
        let (opened, left) = match phase {
            HybridPhase::Bursty { opened, left } => (opened, left),
            HybridPhase::Fresh | HybridPhase::Smooth { .. } => (now, self.permits),
        };
        *state = HybridState(match phase {
            HybridPhase::Smooth { at, part } => self.after(Empty { at, part }, cost).into(),
            _ => HybridPhase::Bursty {
                opened,
                left: left - cost.get(),
            },
        });
        self.decision(Verdict::Allow, state.0, now)
    }

    fn expires_at(&self, state: &HybridState, _now: Time) -> Time {
        match self.plain(state.0) {
            HybridPhase::Fresh => Time::ZERO,
            HybridPhase::Bursty { opened, .. } => self.end_of(opened),
            HybridPhase::Smooth { at, part } => self.end_of(Empty { at, part }.up()),
        }
    }

    /// Keeps the later of two windows with the fewer permits, and the emptier of two buckets. A
    /// window beside a bucket counts as a bucket that has no more than it until the window ends.
    fn stricter(&self, state: &mut HybridState, other: &HybridState) {
        use HybridPhase::{Bursty, Fresh, Smooth};
        *state = HybridState(match (self.plain(state.0), self.plain(other.0)) {
            (Fresh, phase) | (phase, Fresh) => phase,
            (Bursty { opened: a, left: x }, Bursty { opened: b, left: y }) => Bursty {
                opened: a.max(b),
                left: x.min(y),
            },
            (Smooth { at: a, part: x }, Smooth { at: b, part: y }) => {
                let (mine, theirs) = (Empty { at: a, part: x }, Empty { at: b, part: y });
                mine.max(theirs).into()
            }
            (Bursty { opened, left }, Smooth { at, part })
            | (Smooth { at, part }, Bursty { opened, left }) => {
                // One more than is left when the window ends: not a moment earlier.
                let window = self.bucket_of(opened, left + 1);
                window.max(Empty { at, part }).into()
            }
        });
    }

    /// Permits left and Nths of a nanosecond mean the same under the same quota only.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self == old
    }

    fn least_served(&self, kept: Quota) -> Share {
        let permits = kept.permits().get();
        Share::new(permits + 1, 2 * permits)
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(after_first) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let limit = self.permits;
        let whole = limit.saturating_mul(after_first / self.per + 1);
        // The request that opened the first window lies outside the span.
        match after_first % self.per {
            0 => whole,
            _ => whole.saturating_add(limit - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Refund as _;

    fn hybrid(text: &str) -> Hybrid {
        Hybrid::quota_linear(text.parse().unwrap()).unwrap()
    }

    fn millis(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    /// One row of a story: at `now` ms, `cost`: the wait in ms if denied, and `remaining`.
    type Row = (u64, u64, Option<u64>, u64);

    fn check(limit: Hybrid, rows: &[Row]) {
        let mut state = HybridState::default();
        for &(now, cost, wait, remaining) in rows {
            let decision = limit.decide(&mut state, millis(now), Permits::new(cost));
            let wait = wait.map(Nanos::from_millis);
            assert_eq!(decision.verdict.retry_after(), wait, "{cost} at {now} ms");
            assert_eq!(decision.verdict.allows(), wait.is_none());
            assert_eq!(decision.remaining.get(), remaining, "{cost} at {now} ms");
        }
    }

    #[test]
    fn the_last_permit_turns_a_burst_into_a_pace() {
        check(
            hybrid("3/3s"),
            &[
                (0, 1, None, 2),
                (1_000, 1, None, 1),
                (2_900, 1, None, 0), // 100 ms of the window are left
                (2_999, 1, Some(1), 0),
                (3_000, 1, None, 0),
                (3_000, 1, Some(1_000), 0),
                (3_500, 2, Some(1_500), 0),
                (5_000, 2, None, 0),
            ],
        );
    }

    #[test]
    fn a_client_that_leaves_one_permit_unused_keeps_its_bursts() {
        check(
            hybrid("3/3s"),
            &[
                (0, 1, None, 2),
                (2_999, 1, None, 1),
                (2_999, 2, Some(1), 1),
                (3_000, 2, None, 1), // another window
                (6_000, 3, None, 0),
            ],
        );
    }

    #[test]
    fn a_full_bucket_is_fresh() {
        check(
            hybrid("3/3s"),
            &[
                (0, 3, None, 0),
                (4_999, 0, None, 2),
                (5_000, 0, None, 3),
                (5_000, 2, None, 1),
                (8_000, 1, None, 2), // bursty again: a window opened at 5,000
            ],
        );
    }

    #[test]
    fn a_refund_of_the_last_permit_makes_a_key_bursty_again() {
        let limit = hybrid("3/3s");
        let mut state = HybridState::default();
        let ask = |state: &mut HybridState, now, cost| {
            let decision = limit.decide(state, millis(now), Permits::new(cost));
            (decision.verdict.allows(), decision.remaining.get())
        };
        assert_eq!(ask(&mut state, 0, 1), (true, 2));
        let before = state;
        assert_eq!(ask(&mut state, 2_900, 2), (true, 0), "smooth");
        limit.refund(&mut state, millis(2_950), Permits::new(2));
        assert_eq!(state, before);
        assert_eq!(ask(&mut state, 2_999, 2), (true, 0));
        // The window is over: a bucket, from which one permit is taken and given back.
        let before = state;
        assert_eq!(ask(&mut state, 3_000, 1), (true, 0));
        limit.refund(&mut state, millis(3_100), Permits::ONE);
        assert_eq!(limit.seen(&state, millis(3_100)), limit.plain(before.0));
        limit.refund(&mut state, millis(3_100), Permits::new(3));
        assert_eq!(
            state,
            HybridState::default(),
            "a refund never leaves more than a fresh state has"
        );
    }

    #[test]
    fn a_refund_of_all_that_was_taken_leaves_no_window_open() {
        let limit = hybrid("3/3s");
        let mut state = HybridState::default();
        let _ = limit.decide(&mut state, millis(0), Permits::new(2));
        limit.refund(&mut state, millis(1_000), Permits::ONE);
        limit.refund(&mut state, millis(1_000), Permits::ONE);
        assert_eq!(state, HybridState::default());
    }

    #[test]
    fn a_quota_of_one_is_a_gap() {
        check(
            hybrid("1/1s"),
            &[
                (0, 1, None, 0),
                (999, 1, Some(1), 0),
                (1_000, 1, None, 0),
                (1_500, 1, Some(500), 0),
                (2_000, 1, None, 0),
            ],
        );
    }

    #[test]
    fn smooth_permits_fall_due_to_the_nanosecond_for_ever() {
        // A third of a second is not a whole number of nanoseconds: nothing is lost by it.
        let limit = hybrid("3/1s");
        let mut state = HybridState::default();
        let _ = limit.decide(&mut state, Time::ZERO, Permits::new(3));
        for third in 3..30_003_u64 {
            let due = (third * 1_000_000_000).div_ceil(3);
            let early = Time::from_nanos(due - 1);
            assert!(!limit.look(&state, early, Permits::ONE).verdict.allows());
            let decision = limit.decide(&mut state, Time::from_nanos(due), Permits::ONE);
            assert!(decision.verdict.allows(), "third {third}");
        }
    }

    #[test]
    fn a_key_that_begins_at_a_floor_has_a_window_of_its_own() {
        let limit = hybrid("3/3s");
        let mut floor = HybridState::default();
        let _ = limit.decide(&mut floor, millis(0), Permits::ONE);
        let begun = |now| limit.state_with_usage(limit.usage(&floor, now), now);
        let mut state = begun(millis(2_000));
        let decision = limit.decide(&mut state, millis(2_000), Permits::ONE);
        assert_eq!(decision.remaining, Permits::ONE);
        assert_eq!(
            decision.reset_after,
            Nanos::from_secs(3),
            "its own window, not the remaining 1 s of the floor's"
        );
        assert_eq!(begun(millis(3_000)), HybridState::default());
    }

    #[test]
    fn a_state_takes_twenty_four_bytes() {
        assert_eq!(size_of::<HybridState>(), 24);
    }
}
