//! Interval bucket: at most `M` permits, of which `R` come back at every stroke of a clock.
//!
//! A token bucket with whole refills: `R` permits at the end of each interval `F`, nothing
//! between; permits above `M` are lost. One failed login is forgiven each hour, up to ten; fifty
//! dollars of purchases come back each day, up to two hundred.
//!
//! ```text
//!   permits
//!   M = 4 |****                                   M = 4, R = 2
//!         |   *
//!       2 |   *      ******    *******
//!         |   *      *    *    *     *
//!       0 |   ********    ******     *****
//!         +---+------+----+----+---------+-----> time
//!          take 4  stroke |  stroke    stroke
//!                    |<- F -->|<-- F --->|
//!                       take 2     take 2
//! ```
//!
//! `missing = max(0, missing - R x strokes passed)`; allow iff `missing + cost <= M`; then
//! `missing += cost`. The anchor sets the strokes:
//!
//! ```text
//!   constructor   strokes at                     most in a span w
//!   on_grid       phase + k x F                  M + R x ceil((w - 1) / F)
//!   from_first    the take from full + k x F     1 less, unless F divides w - 1
//! ```
//!
//! * State: 16 bytes: the missing permits, and the moment of the next stroke. Error: none; the
//!   time since the last stroke is never rounded away.
//! * Worst case as above: `M + R` within 2 ns around a stroke. Long run: exactly `R` per `F`.
//! * Choose it when the contract names whole refills; with `R = M` a whole quota is granted anew
//!   each `F`. Else choose [GCRA](super::gcra), which is `R = 1` without the steps.
//! * A clock that steps back finds the strokes that have been: it is denied longer by the
//!   step, and never gains.
//! * Charges that are given back leave the strokes as they are: then the worst case from the first
//!   take is that of a grid.
//! * Laws: keeps all of them. From the first take, a smaller history may admit less: the
//!   take that is left out may be the one that set the strokes off.
//! * Twin: `interval.lua`, and `interval/short.lua` for requests of one charge.
//! * Source: "Distributed API Rate Limiter" (founding document 4), max amount, refill time,
//!   refill amount; V. Bukhtoyarov, Bucket4j (2015), "intervally".

mod stored_form;

use crate::algorithm::{Algorithm, Refund};
use crate::quota::countable;
use crate::{
    AnyAlgorithm, Decision, Error, Nanos, Origin, Permits, Quota, Receipt, Reconfigure, Time,
    Verdict,
};

/// The longest refill of the whole bucket, 146 years: no sum of spans overflows.
const MAX_REFILL: u64 = 1 << 62;

/// The moments of the strokes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Strokes {
    /// At this phase after the clock's zero, and every interval from there.
    Grid(u64),
    /// Every interval from the take that found the bucket full.
    FirstTake,
}

/// A bucket refilled in whole steps; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Interval, Nanos, Permits, Time, Verdict};
///
/// let (ten, hour) = (Permits::new(10), Nanos::from_secs(3_600));
/// let logins = Interval::from_first(ten, Permits::ONE, hour).unwrap();
/// let mut failed = Default::default();
/// assert_eq!(logins.decide(&mut failed, Time::ZERO, ten).verdict, Verdict::Allow);
/// let denied = logins.decide(&mut failed, Time::ZERO, Permits::ONE);
/// assert_eq!(denied.verdict, Verdict::Deny { retry_after: hour });
/// ```
#[doc(alias("interval bucket", "intervally", "token bucket"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Interval {
    /// M: 1 to [`Quota::MAX_PERMITS`].
    most: u64,
    /// R: at least 1. Above M too: what a larger M left missing comes back as fast.
    refill: u64,
    /// F: at least 1 ns.
    every: u64,
    strokes: Strokes,
}

/// The missing permits of one key; zero if the bucket is full.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct IntervalState {
    permits: u64,
    /// The stroke of the next refill; has no meaning while no permits are missing.
    next: Time,
}

impl Interval {
    /// Refills at `phase` after the clock's zero and every `every` from there, used or not.
    ///
    /// # Errors
    /// [`Error::NoPermits`] and [`Error::NoSpan`] for zeros; [`Error::TooManyPermits`] for more
    /// than [`Quota::MAX_PERMITS`]; [`Error::RefillTooLong`] if filling the empty bucket takes more
    /// than 146 years.
    pub fn on_grid(
        most: impl Into<Permits>,
        refill: impl Into<Permits>,
        every: impl Into<Nanos>,
        phase: Nanos,
    ) -> Result<Self, Error> {
        let every = every.into();
        let phase = phase.as_nanos().checked_rem(every.as_nanos());
        let strokes = Strokes::Grid(phase.unwrap_or(0));
        Self::new(most.into(), refill.into(), every, strokes)
    }

    /// Refills every `every` from the first take that finds the bucket full.
    ///
    /// # Errors
    /// As [`Interval::on_grid`].
    pub fn from_first(
        most: impl Into<Permits>,
        refill: impl Into<Permits>,
        every: impl Into<Nanos>,
    ) -> Result<Self, Error> {
        Self::new(most.into(), refill.into(), every.into(), Strokes::FirstTake)
    }

    fn new(most: Permits, refill: Permits, every: Nanos, strokes: Strokes) -> Result<Self, Error> {
        let (most, refill) = (countable(most)?.get(), countable(refill)?.get());
        let every = every.as_nanos();
        if every == 0 {
            return Err(Error::NoSpan);
        }
        match every.checked_mul(most.div_ceil(refill)) {
            Some(whole) if whole <= MAX_REFILL => {}
            _ => return Err(Error::RefillTooLong),
        }
        Ok(Self {
            most,
            refill,
            every,
            strokes,
        })
    }

    /// The state at `now`: refilled by the strokes that have passed. More than M are missing if a
    /// larger M was lowered.
    #[inline]
    fn refilled(&self, missing: &IntervalState, now: Time) -> IntervalState {
        let permits = missing.permits;
        if permits > 0 && now < missing.next {
            return *missing;
        }
        // Rounded down: a stroke counts once it has passed.
        let further = now.since(missing.next).as_nanos() / self.every;
        match self.left_after(permits, further.saturating_add(1)) {
            0 => IntervalState {
                permits: 0,
                next: self.stroke_after(now),
            },
            permits => IntervalState {
                permits,
                next: missing.next + self.strokes(further + 1),
            },
        }
    }

    /// The rest of `missing` after `strokes`.
    fn left_after(&self, missing: u64, strokes: u64) -> u64 {
        missing.saturating_sub(self.refill.saturating_mul(strokes))
    }

    /// The time of `count` intervals.
    fn strokes(&self, count: u64) -> Nanos {
        Nanos::from_nanos(self.every.saturating_mul(count))
    }

    /// The first stroke after `now`, if the bucket is full.
    fn stroke_after(&self, now: Time) -> Time {
        let now = now.as_nanos();
        let wait = match self.strokes {
            Strokes::FirstTake => self.every,
            Strokes::Grid(phase) if now < phase => phase - now,
            Strokes::Grid(phase) => self.every - (now - phase) % self.every,
        };
        Time::from_nanos(now) + Nanos::from_nanos(wait)
    }

    /// The stroke that gives the last of `permits` back.
    fn stroke_of(&self, permits: u64, next: Time) -> Time {
        // Up: a part of a refill comes with a whole one.
        match permits.div_ceil(self.refill) {
            0 => Time::ZERO,
            strokes => next + self.strokes(strokes - 1),
        }
    }
}

impl Reconfigure for Interval {
    /// The same moments under other numbers: a grid is counted from 1970.
    fn with_quota(&self, quota: Quota, origin: Origin) -> Result<AnyAlgorithm, Error> {
        let (most, refill, every) = (quota.burst_size(), quota.permits(), quota.per());
        let interval = match self.strokes {
            Strokes::FirstTake => Self::from_first(most, refill, every),
            Strokes::Grid(_) => Self::on_grid(most, refill, every, origin.phase(every)),
        };
        interval.map(Into::into)
    }

    fn on_clock(&self, from: Origin, to: Origin) -> Self {
        let Strokes::Grid(phase) = self.strokes else {
            return *self;
        };
        let every = Nanos::from_nanos(self.every);
        let phase = from.phase_on(to, Nanos::from_nanos(phase), every);
        Self {
            strokes: Strokes::Grid(phase.as_nanos()),
            ..*self
        }
    }
}

impl Algorithm for Interval {
    type State = IntervalState;

    fn name(&self) -> &'static str {
        "interval bucket"
    }

    /// The time of the refills that fill an empty bucket.
    fn window(&self) -> Option<Nanos> {
        let refills = self.most.div_ceil(self.refill); // up: the last may be a part
        Some(self.strokes(refills))
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.most)
    }

    #[inline]
    fn decide(&self, missing: &mut IntervalState, now: Time, cost: Permits) -> Decision {
        let mut seen = self.refilled(missing, now);
        let missing_after = seen.permits.saturating_add(cost.get());
        let verdict = if missing_after <= self.most || cost == Permits::ZERO {
            if cost > Permits::ZERO {
                seen.permits += cost.get();
                *missing = seen;
            }
            Verdict::Allow
        } else if cost.get() > self.most {
            Verdict::DenyForever
        } else {
            Verdict::Deny {
                retry_after: self
                    .stroke_of(missing_after - self.most, seen.next)
                    .since(now),
            }
        };
        let beyond = seen.permits.saturating_sub(self.most);
        let for_more = seen.permits.min(beyond + 1);
        Decision {
            verdict,
            remaining: Permits::new(self.most.saturating_sub(seen.permits)),
            reset_after: self.stroke_of(seen.permits, seen.next).since(now),
            more_after: self.stroke_of(for_more, seen.next).since(now),
        }
    }

    fn expires_at(&self, missing: &IntervalState, _now: Time) -> Time {
        self.stroke_of(missing.permits, missing.next)
    }

    /// Brings both to the later stroke and keeps the one with more permits missing: from the
    /// refill before that stroke on, either would have allowed every cost that it allows.
    fn stricter(&self, missing: &mut IntervalState, other: &IntervalState) {
        if other.permits == 0 {
            return;
        }
        if missing.permits == 0 {
            *missing = *other;
            return;
        }
        let next = missing.next.max(other.next);
        let at_next = |state: &IntervalState| {
            // Down: a stroke that falls between two of the other is still to come.
            let strokes = next.since(state.next).as_nanos() / self.every;
            self.left_after(state.permits, strokes)
        };
        *missing = IntervalState {
            permits: at_next(missing).max(at_next(other)),
            next,
        };
    }

    /// Missing permits mean the same while the strokes are the same.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.every == old.every && self.strokes == old.strokes
    }

    /// The strokes that have passed gave back the refills of then. At the same rate nothing is
    /// forgiven; otherwise what the larger of R and M cuts.
    fn rescale(&self, missing: &mut IntervalState, old: &Self, now: Time, _promised: Nanos) {
        let seen = old.refilled(missing, now);
        let most = match self.refill {
            refill if refill == old.refill => u64::MAX,
            refill => refill.max(self.most),
        };
        *missing = match seen.permits.min(most) {
            0 => IntervalState::default(),
            permits => IntervalState { permits, ..seen },
        };
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(after_first) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let refills = after_first.div_ceil(self.every); // up: the span may begin at a stroke's eve
        let refilled = self.refill.min(self.most).saturating_mul(refills);
        let most = refilled.saturating_add(self.most);
        match self.strokes {
            // The take that set the strokes off lies outside the span.
            Strokes::FirstTake if !after_first.is_multiple_of(self.every) => most - 1,
            _ => most,
        }
    }
}

impl Refund for Interval {
    /// All, until the first stroke; then at most the permits of the strokes to come, of which the
    /// last may have brought a single one. The strokes stay, also those of a first take that is given
    /// back: were they to begin anew, calls that overlap would put off the refills for ever.
    fn give_back_late(
        &self,
        missing: &mut IntervalState,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) {
        let Receipt {
            made,
            paid,
            returned,
            ..
        } = receipt;
        let strokes_from = |moment| paid.since(moment).as_nanos().div_ceil(self.every); // up: begun
        let to_come = strokes_from(now);
        let unpaid = match to_come.checked_sub(1) {
            None => 0,
            Some(_) if to_come >= strokes_from(made) => cost.get(),
            Some(whole) => {
                let most = self.refill.saturating_mul(whole).saturating_add(1);
                most.saturating_sub(returned.get())
            }
        };
        self.refund(missing, now, cost.min(Permits::new(unpaid)));
    }

    fn refund(&self, missing: &mut IntervalState, now: Time, cost: Permits) {
        let mut seen = self.refilled(missing, now);
        seen.permits = seen.permits.saturating_sub(cost.get());
        *missing = match seen.permits {
            0 => IntervalState::default(),
            _ => seen,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(count: u64) -> Permits {
        Permits::new(count)
    }

    fn millis(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    fn on_grid(most: u64, refill: u64, phase: u64) -> Interval {
        let (every, phase) = (Nanos::SECOND, Nanos::from_millis(phase));
        Interval::on_grid(permits(most), permits(refill), every, phase).unwrap()
    }

    fn from_first(most: u64, refill: u64) -> Interval {
        Interval::from_first(permits(most), permits(refill), Nanos::SECOND).unwrap()
    }

    /// One row of a story: at `now` ms, `cost`: the wait in ms if denied, and `remaining`.
    type Row = (u64, u64, Option<u64>, u64);

    fn check(limit: Interval, rows: &[Row]) {
        let mut state = IntervalState::default();
        for &(now, cost, wait, remaining) in rows {
            let decision = limit.decide(&mut state, millis(now), permits(cost));
            let wait = wait.map(Nanos::from_millis);
            assert_eq!(decision.verdict.retry_after(), wait, "{cost} at {now} ms");
            assert_eq!(decision.verdict.allows(), wait.is_none());
            assert_eq!(decision.remaining.get(), remaining, "{cost} at {now} ms");
        }
    }

    #[test]
    fn refills_are_added_whole_at_each_step() {
        check(
            on_grid(4, 2, 0),
            &[
                (300, 4, None, 0),
                (300, 1, Some(700), 0),
                (999, 3, Some(1_001), 0), // two strokes away
                (1_000, 2, None, 0),
                (1_999, 2, Some(1), 0),
                (2_500, 2, None, 0),
                (9_999, 0, None, 4), // what does not fit is lost
            ],
        );
    }

    #[test]
    fn the_grid_keeps_its_phase_and_the_first_take_sets_its_own() {
        let rows = |stroke| [(5_400, 2, None, 0), (5_400, 1, Some(stroke), 0)];
        check(on_grid(2, 1, 250), &rows(850));
        check(on_grid(2, 1, 7_250), &rows(850));
        check(from_first(2, 1), &rows(1_000));
        check(
            from_first(2, 1),
            &[
                (100, 1, None, 1),
                (1_000, 1, None, 0), // not full: the stroke stays at 1,100
                (1_099, 1, Some(1), 0),
                (1_100, 1, None, 0),
                (3_100, 1, None, 1), // full again: strokes from here
                (3_200, 1, None, 0),
                (3_200, 1, Some(900), 0),
            ],
        );
    }

    #[test]
    fn the_remainder_of_time_is_never_lost() {
        // A caller every 990 ms: refills that restart at each call would give half.
        let limit = on_grid(1, 1, 0);
        let mut state = IntervalState::default();
        let admitted = (0..=1_000)
            .filter(|call| {
                let decision = limit.decide(&mut state, millis(call * 990), Permits::ONE);
                decision.verdict.allows()
            })
            .count();
        assert_eq!(admitted, 991, "one per second in 990 s, plus the first");
    }

    #[test]
    fn the_last_permit_can_be_spent() {
        let mut state = IntervalState::default();
        let limit = from_first(4, 1);
        for left in (0..4).rev() {
            let decision = limit.decide(&mut state, Time::ZERO, Permits::ONE);
            assert_eq!(decision.remaining, permits(left));
        }
    }

    #[test]
    fn strokes_before_a_change_give_back_the_refills_of_then() {
        let (one, two, few) = (on_grid(10, 1, 0), on_grid(10, 2, 0), on_grid(4, 1, 0));
        let mut state = IntervalState::default();
        let _ = one.decide(&mut state, millis(500), permits(10));
        let left = |limit: Interval, state: &IntervalState, now| {
            limit
                .look(state, millis(now), Permits::ZERO)
                .remaining
                .get()
        };
        two.carry(&mut state, &one, millis(5_500), Nanos::ZERO);
        assert_eq!((left(two, &state, 5_500), left(two, &state, 6_500)), (5, 7));
        few.carry(&mut state, &two, millis(5_500), Nanos::ZERO);
        one.carry(&mut state, &few, millis(5_500), Nanos::ZERO);
        assert_eq!(left(one, &state, 5_500), 6, "what was cut is forgiven");
        one.carry(&mut state, &two, millis(9_500), Nanos::ZERO);
        assert_eq!(state, IntervalState::default());
    }

    #[test]
    fn a_bucket_that_is_made_smaller_owes_as_much() {
        for (refill, wait) in [(1, 7), (4, 2), (20, 1)] {
            let (large, small) = (from_first(10, refill), from_first(4, refill));
            let mut state = IntervalState::default();
            let _ = large.decide(&mut state, millis(500), permits(10));
            small.carry(&mut state, &large, millis(500), Nanos::ZERO);
            let wait = Some(wait * 1_000);
            let denied = small.decide(&mut state, millis(500), Permits::ONE);
            assert_eq!(denied.verdict.retry_after(), wait.map(Nanos::from_millis));
            assert_eq!(denied.more_after, denied.verdict.retry_after().unwrap());
            large.carry(&mut state, &small, millis(500), Nanos::ZERO);
            let looked = large.look(&state, millis(500), Permits::ZERO);
            assert_eq!(looked.remaining, Permits::ZERO, "refill {refill}");
        }
    }

    #[test]
    fn a_refund_undoes_a_charge_and_no_more() {
        let limit = from_first(3, 1);
        let mut state = IntervalState::default();
        let _ = limit.decide(&mut state, millis(100), permits(2));
        limit.refund(&mut state, millis(100), Permits::ONE);
        let looked = limit.look(&state, millis(100), Permits::ZERO);
        assert_eq!(looked.remaining, permits(2));
        limit.refund(&mut state, millis(200), Permits::MAX);
        assert_eq!(state, IntervalState::default());
    }

    #[test]
    fn the_stricter_state_allows_no_more_than_either() {
        for limit in [on_grid(5, 2, 0), from_first(5, 2)] {
            let histories: &[&[(u64, u64)]] = &[
                &[],
                &[(100, 5)],
                &[(100, 1), (900, 3)],
                &[(1_700, 4)],
                &[(500, 5), (2_300, 2)],
            ];
            let states = histories.iter().map(|history| {
                let mut state = IntervalState::default();
                for &(at, cost) in *history {
                    let _ = limit.decide(&mut state, millis(at), permits(cost));
                }
                state
            });
            let states: std::vec::Vec<_> = states.collect();
            for (a, b) in states
                .iter()
                .flat_map(|a| states.iter().map(move |b| (a, b)))
            {
                let mut merged = *a;
                limit.stricter(&mut merged, b);
                for now in (2_300..8_000).step_by(100) {
                    let left = |state| limit.look(state, millis(now), Permits::ZERO).remaining;
                    assert!(
                        left(&merged) <= left(a).min(left(b)),
                        "{a:?} {b:?} at {now}"
                    );
                }
            }
        }
    }

    #[test]
    fn bounds_count_the_refill_steps_in_a_span() {
        let nanos = |millis: u64, more: u64| Nanos::from_nanos(millis * 1_000_000 + more);
        for (limit, window, most) in [
            (on_grid(6, 6, 0), nanos(0, 0), 0),
            (on_grid(6, 6, 0), nanos(0, 1), 6),
            (on_grid(6, 6, 0), nanos(0, 2), 12),
            (on_grid(6, 6, 0), nanos(1_000, 0), 12),
            (on_grid(6, 6, 0), nanos(4_000, 0), 30),
            (on_grid(6, 1, 0), nanos(6_000, 0), 12),
            (from_first(6, 6), nanos(1_000, 0), 11),
            (from_first(6, 6), nanos(1_000, 1), 12),
            (from_first(6, 6), nanos(4_000, 0), 29),
        ] {
            assert_eq!(limit.bound(window), most, "{limit:?} in {window}");
        }
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let new = |most, refill, every| Interval::from_first(permits(most), permits(refill), every);
        assert_eq!(new(0, 1, Nanos::SECOND), Err(Error::NoPermits));
        assert_eq!(new(1, 0, Nanos::SECOND), Err(Error::NoPermits));
        assert_eq!(new(1, 1, Nanos::ZERO), Err(Error::NoSpan));
        assert_eq!(new(2, 1, Nanos::MAX), Err(Error::RefillTooLong));
        let bound = |refill| new(2, refill, Nanos::SECOND).unwrap().bound(Nanos::SECOND);
        assert_eq!(bound(9), bound(2), "no more fits");
    }

    #[test]
    fn a_key_that_begins_at_a_floor_has_refill_steps_of_its_own() {
        let at = |seconds| Time::ZERO + Nanos::from_secs(seconds);
        let (five, every) = (Permits::new(5), Nanos::from_secs(10));
        let begun = |limit: &Interval, now| {
            let mut floor = IntervalState::default();
            let _ = limit.decide(&mut floor, at(1), Permits::new(3));
            (floor, limit.state_with_usage(limit.usage(&floor, now), now))
        };
        let first = Interval::from_first(five, five, every).unwrap();
        let standing = first.look(&begun(&first, at(9)).1, at(9), Permits::ZERO);
        assert_eq!(standing.remaining, Permits::new(2));
        assert_eq!(
            standing.reset_after, every,
            "its own window, not the remaining 2 s of the floor's"
        );
        assert_eq!(begun(&first, at(11)).1, IntervalState::default());
        let grid = Interval::on_grid(five, five, every, Nanos::ZERO).unwrap();
        let (floor, state) = begun(&grid, at(9));
        assert_eq!(state, floor);
    }
}
