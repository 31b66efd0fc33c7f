//! Quota reset: each key has windows of its own, which open with its requests.
//!
//! The first request of a key opens a window of length P, which holds N permits. The first request
//! at or after the end of the window opens the next. Between the two, no window is open.
//!
//! ```text
//!   used
//!   N = 3 |       +-----+                +--+
//!         |    +--+     |          +-----+  |
//!       1 | +--+        |       +--+        |
//!       0 |-+-----------+-------+-----------+-----> time
//!           |<--- P --->|       |<--- P --->|
//!           opened              opened by the first request after the end
//! ```
//!
//! A window is open while `used > 0` and `now < opened + P`. If none is open, `opened = now` and
//! `used = 0`. Allow iff `used + cost <= N`; then `used += cost`. A cost of zero opens nothing.
//!
//! ```text
//!   remaining                            N - used
//!   retry_after, more_after, reset_after opened + P - now
//!   refund                               used -= cost, while the window is open; at 0: fresh
//! ```
//!
//! * State: 16 bytes: the moment at which the window was opened, and its count. Error: none.
//! * Worst case: `2N - 1` in a span P: the span begins after the request that opened a window, and
//!   holds the other `N - 1` of it and the N of the next. In a span `W` with
//!   `W - 1 ns = k x P + r`: `N x (k + 1)`, and `N - 1` more if `r > 0`. Long run: N per P.
//! * Choose it when the contract counts from each client's own first request. Clients are not
//!   reset all at the same moment, as they are by a [fixed window](super::window), but a client
//!   may still send a burst in each window: [hybrid](super::hybrid) slows down those that use up
//!   their quota, and [GCRA](super::gcra) all.
//! * A clock that steps back finds the window that was open: the key is denied longer by the step,
//!   and never gains.
//! * Laws: keeps all of them; [`Denials::Counted`] gives up "denial is free" by request. A window
//!   opens with a request, so one request less can move it, and a smaller history may admit less.
//! * Twin: `quota_reset.lua`, and `quota_reset/short.lua` for requests of one charge.
//! * Source: T. Finch, "A hybrid quota-linear rate limiter" (founding document 3), "fixed window
//!   quota resets".

mod stored_form;

use crate::algorithm::{Algorithm, Denials, Refund};
use crate::{
    AnyAlgorithm, Decision, Error, Nanos, Origin, Permits, Quota, Receipt, Reconfigure, Share,
    Time, Verdict,
};

/// The longest window, 73 years, as of [`Window`](crate::Window): no sum of spans overflows.
const MAX_WINDOW: Nanos = Nanos::from_nanos(1 << 61);

/// A quota in windows that open with a request; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Nanos, Permits, QuotaReset, Time, Verdict};
///
/// let limit = QuotaReset::new("10/1s".parse().unwrap()).unwrap();
/// let mut state = Default::default();
/// let t = Time::from_nanos(900_000_000);
/// assert_eq!(limit.decide(&mut state, t, Permits::new(10)).verdict, Verdict::Allow);
/// let retry_after = Nanos::SECOND;
/// assert_eq!(limit.decide(&mut state, t, Permits::ONE).verdict, Verdict::Deny { retry_after });
/// assert_eq!(limit.decide(&mut state, t + retry_after, Permits::ONE).verdict, Verdict::Allow);
/// ```
#[doc(alias = "quota reset")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct QuotaReset {
    /// N: at least 1.
    permits: u64,
    /// P.
    per: Nanos,
    denials: Denials,
}

/// The newest window of one key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct QuotaResetState {
    /// The moment of its first charge; has no meaning while none is counted.
    opened: Time,
    /// The permits that were charged to it.
    used: u64,
}

impl QuotaReset {
    /// `quota.permits()` in each window of `quota.per()`. A window opens with the first request of
    /// a key, and the next one with the first request at or after its end.
    ///
    /// # Errors
    /// [`Error::WindowTooLong`] for a span of more than 73 years.
    pub fn new(quota: Quota) -> Result<Self, Error> {
        if quota.per() > MAX_WINDOW {
            return Err(Error::WindowTooLong);
        }
        Ok(Self {
            permits: quota.permits().get(),
            per: quota.per(),
            denials: Denials::Free,
        })
    }

    /// The same limit with another cost of denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// The permits that still count in a window at `moment`: none from its end on.
    ///
    /// A window with a later first moment is open too, because the clock was set back.
    #[inline]
    fn used_at(&self, state: &QuotaResetState, moment: Time) -> u64 {
        if moment.since(state.opened) < self.per {
            state.used
        } else {
            0
        }
    }

    /// The open window, or the empty one that a request at `now` opens.
    #[inline]
    fn seen(&self, state: &QuotaResetState, now: Time) -> QuotaResetState {
        match self.used_at(state, now) {
            0 => QuotaResetState {
                opened: now,
                used: 0,
            },
            _ => *state,
        }
    }

    /// The charge for a denied `cost`: up to one further quota, where denials are counted.
    fn penalty(&self, used: u64, cost: Permits) -> u64 {
        match self.denials {
            Denials::Free => 0,
            Denials::Counted => {
                // Two quotas, or as many as can be counted.
                let most = self.capacity() + self.capacity();
                cost.get().min(most.get().saturating_sub(used))
            }
        }
    }

    /// The time to the end of an open window. If the clock was set back it is longer than P.
    #[inline]
    fn left(&self, window: &QuotaResetState, now: Time) -> Nanos {
        let (age, ahead) = (now.since(window.opened), window.opened.since(now));
        ahead + self.per.saturating_sub(age)
    }
}

impl Reconfigure for QuotaReset {
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        Ok(Self::new(quota)?.with_denials(self.denials).into())
    }
}

impl Algorithm for QuotaReset {
    type State = QuotaResetState;

    fn name(&self) -> &'static str {
        "quota reset"
    }

    fn denials(&self) -> Denials {
        self.denials
    }

    fn window(&self) -> Option<Nanos> {
        Some(self.per)
    }

    fn window_end(&self, now: Time) -> Option<Time> {
        Some(now + self.per)
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.permits)
    }

    #[inline]
    fn decide(&self, state: &mut QuotaResetState, now: Time, cost: Permits) -> Decision {
        let mut window = self.seen(state, now);
        let fits = window.used + cost.get() <= self.permits;
        let charge = if fits {
            cost.get()
        } else {
            self.penalty(window.used, cost)
        };
        if charge > 0 {
            window.used += charge;
            *state = window;
        }
        let until_end = match window.used {
            0 => Nanos::ZERO,
            _ => self.left(&window, now),
        };
        let verdict = if fits {
            Verdict::Allow
        } else if cost > self.capacity() {
            Verdict::DenyForever
        } else {
            Verdict::Deny {
                retry_after: until_end,
            }
        };
        Decision {
            verdict,
            remaining: Permits::new(self.permits.saturating_sub(window.used)),
            reset_after: until_end,
            more_after: until_end,
        }
    }

    fn expires_at(&self, state: &QuotaResetState, _now: Time) -> Time {
        match state.used {
            0 => Time::ZERO,
            _ => state.opened + self.per,
        }
    }

    /// Keeps the later of the two windows, and of the counts that reach it the larger: from its
    /// first moment on, either would have allowed every cost that it allows.
    fn stricter(&self, state: &mut QuotaResetState, other: &QuotaResetState) {
        if other.used == 0 {
            return;
        }
        if state.used == 0 {
            *state = *other;
            return;
        }
        let opened = state.opened.max(other.opened);
        *state = QuotaResetState {
            opened,
            used: self.used_at(state, opened).max(self.used_at(other, opened)),
        };
    }

    /// A count means the same while the window is as long; N may change.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.per == old.per
    }

    /// A request is refused because N are counted. Where the window is no longer than the client's
    /// span, the client has sent fewer. Otherwise no more than two of its spans touch the window:
    /// of at most 2N, N were served.
    fn least_served(&self, kept: Quota) -> Share {
        let share = if self.per <= kept.per() {
            Share::ALL
        } else {
            Share::new(1, 2)
        };
        share.counting(self.denials)
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(after_first) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let (limit, per) = (self.permits, self.per.as_nanos());
        let whole = limit.saturating_mul(after_first / per + 1);
        match after_first % per {
            0 => whole,
            // The request that opened the first window lies outside the span.
            _ => whole.saturating_add(limit - 1),
        }
    }
}

impl Refund for QuotaReset {
    /// Exact while the window is open; a refund after its end is dropped.
    /// Only to the window of the charge. Of a charge of the instant that opened it one permit stays
    /// while there are others, or a part of it: without it the window might have opened later.
    fn give_back_late(
        &self,
        state: &mut QuotaResetState,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) {
        let made = receipt.made;
        if made < state.opened || self.used_at(state, made) == 0 {
            return;
        }
        let opened_it = made == state.opened && state.used > cost.get();
        self.refund(state, now, cost - Permits::new(opened_it.into()));
    }

    fn refund(&self, state: &mut QuotaResetState, now: Time, cost: Permits) {
        match self.used_at(state, now) {
            0 => {}
            used if used <= cost.get() => *state = QuotaResetState::default(),
            used => state.used = used - cost.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn limit(text: &str) -> QuotaReset {
        QuotaReset::new(text.parse().unwrap()).unwrap()
    }

    fn millis(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    /// One row of a story: at `now` ms, `cost`: the wait in ms if denied, and `remaining`.
    type Row = (u64, u64, Option<u64>, u64);

    fn check(limit: QuotaReset, rows: &[Row]) {
        let mut state = QuotaResetState::default();
        for &(now, cost, wait, remaining) in rows {
            let before = state;
            let looked = limit.look(&state, millis(now), Permits::new(cost));
            let decision = limit.decide(&mut state, millis(now), Permits::new(cost));
            assert_eq!(decision, looked, "look at {now} ms");
            let wait = wait.map(Nanos::from_millis);
            assert_eq!(decision.verdict.retry_after(), wait, "{cost} at {now} ms");
            assert_eq!(decision.verdict.allows(), wait.is_none());
            assert_eq!(decision.remaining.get(), remaining, "{cost} at {now} ms");
            if wait.is_some() {
                assert_eq!(state, before, "a denial writes nothing");
            }
        }
    }

    #[test]
    fn a_window_opens_with_a_request() {
        check(
            limit("10/1s"),
            &[
                (700, 0, None, 10), // looking opens nothing
                (900, 9, None, 1),
                (1_800, 2, Some(100), 1),
                (1_899, 1, None, 0),
                (1_900, 10, None, 0),
            ],
        );
    }

    #[test]
    fn no_window_is_open_between_two() {
        let limit = limit("3/1s");
        check(
            limit,
            &[
                (0, 2, None, 1),
                (1_000, 0, None, 3),
                (1_700, 3, None, 0), // not on a grid of the first
                (2_000, 1, Some(700), 0),
                (2_700, 3, None, 0),
            ],
        );
    }

    #[test]
    fn a_clock_that_steps_back_waits_longer_by_the_step() {
        check(
            limit("10/1s"),
            &[
                (1_000, 10, None, 0),
                (500, 1, Some(1_500), 0),
                (1_999, 1, Some(1), 0),
            ],
        );
    }

    #[test]
    fn costs_above_the_quota_are_denied_for_ever() {
        let mut state = QuotaResetState::default();
        let decision = limit("10/1s").decide(&mut state, Time::ZERO, Permits::new(11));
        assert_eq!(decision.verdict, Verdict::DenyForever);
        assert_eq!(
            (decision.remaining, state),
            (Permits::new(10), QuotaResetState::default())
        );
    }

    #[test]
    fn counted_denials_add_at_most_one_quota() {
        let limit = limit("10/1s").with_denials(Denials::Counted);
        for (cost, used) in [(11, 11), (20, 20), (u64::MAX, 20)] {
            let mut state = QuotaResetState::default();
            let denied = limit.decide(&mut state, Time::ZERO, Permits::new(cost));
            assert_eq!(denied.verdict, Verdict::DenyForever);
            assert_eq!(denied.remaining, Permits::ZERO);
            assert_eq!(state.used, used, "{cost}");
            let free = limit.decide(&mut state, Time::ZERO, Permits::ZERO);
            assert!(!free.verdict.allows(), "more than N are counted");
            let next = limit.look(&state, millis(1_000), Permits::new(10));
            assert!(next.verdict.allows(), "the lock-out ends with the window");
        }
        let most = QuotaReset::new(Quota::per_second(Quota::MAX_PERMITS)).unwrap();
        let most = most.with_denials(Denials::Counted);
        let mut state = QuotaResetState::default();
        let _ = most.decide(&mut state, Time::ZERO, Permits::new(5));
        let _ = most.decide(&mut state, Time::ZERO, Permits::MAX);
        assert_eq!(state.used, Permits::MAX.get());
    }

    #[test]
    fn states_are_kept_while_windows_are_as_long() {
        for (new, kept) in [
            (limit("10/1s"), true),
            (limit("99/1s"), true),
            (limit("10/1s").with_denials(Denials::Counted), true),
            (limit("10/2s"), false),
        ] {
            assert_eq!(new.keeps_state_of(&limit("10/1s")), kept, "{new:?}");
        }
        let fixed = crate::Window::fixed("10/1s".parse().unwrap(), Nanos::ZERO).unwrap();
        let [reset, fixed]: [AnyAlgorithm; 2] = [limit("10/1s").into(), fixed.into()];
        assert!(!reset.keeps_state_of(&fixed));
        assert!(!fixed.keeps_state_of(&reset));
    }

    #[test]
    fn windows_that_are_too_long_are_refused() {
        let error = |text: &str| QuotaReset::new(text.parse().unwrap()).err();
        assert_eq!(error("1/26000d"), None, "71 years");
        assert_eq!(error("1/27000d"), Some(Error::WindowTooLong), "74 years");
    }

    #[test]
    fn a_refund_frees_the_window_that_is_open() {
        let limit = limit("10/1s");
        let mut state = QuotaResetState::default();
        let _ = limit.decide(&mut state, millis(500), Permits::new(6));
        limit.refund(&mut state, millis(900), Permits::new(2));
        let looked = limit.look(&state, millis(900), Permits::ZERO);
        assert_eq!(looked.remaining, Permits::new(6));
        let before = state;
        limit.refund(&mut state, millis(1_500), Permits::new(2));
        assert_eq!(state, before, "the window is over");
        limit.refund(&mut state, millis(1_499), Permits::MAX);
        assert_eq!(state, QuotaResetState::default());
    }

    #[test]
    fn a_key_that_begins_at_a_floor_has_a_window_of_its_own() {
        let limit = limit("5/10s");
        let at = |seconds| Time::from_nanos(seconds * SECOND);
        let mut floor = QuotaResetState::default();
        let _ = limit.decide(&mut floor, at(1), Permits::new(3));
        let begun = |now| limit.state_with_usage(limit.usage(&floor, now), now);
        let mut state = begun(at(9));
        let decision = limit.decide(&mut state, at(9), Permits::new(2));
        assert_eq!(decision.remaining, Permits::ZERO);
        assert_eq!(
            decision.reset_after,
            Nanos::from_secs(10),
            "its own window, not the remaining 2 s of the floor's"
        );
        assert_eq!(
            begun(at(11)),
            QuotaResetState::default(),
            "the window is over"
        );
    }

    #[test]
    fn a_state_takes_sixteen_bytes() {
        assert_eq!(size_of::<QuotaResetState>(), 16);
    }
}
