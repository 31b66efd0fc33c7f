//! Exponential counter: usage fades away, faster the more of it there is.
//!
//! Each permit counts in full when it is spent and for less and less after; `tau` later a
//! third of it is left. There is no window and no edge, and the count never needs a list.
//!
//! ```text
//!   level
//!     L |- - - - - -*- - - - - - - - - -        spent: the level jumps by the cost
//!       |          *| '.                        between: level x e^(-t / tau)
//!       |     *    *|    ' .         *
//!       |    *| '.*         ' - .    *| '.
//!       |   *         tau             *    ' - .
//!     0 +---*-----|<------->|---------*-----------> time
//! ```
//!
//! Allow iff `level + cost <= L`; then `level += cost`. The wait for a denied cost is
//! `tau x ln(level / (L - cost))`; for a cost of all L, until less than 1/1024 permit is
//! left, which is forgotten.
//!
//! * State: 16 bytes: the level in 2^-30 permits, and the moment of that level. One number would
//!   do in theory (the moment when the level was 1), but then rounding would make `a` and `b` at
//!   one instant differ from `a + b`.
//! * Error: fading is rounded down, by at most 2^-30 permit and 2^-48 of the level a charge:
//!   never early. Exact in time: the wait returned is the least one, to the nanosecond.
//! * Limits of 2^32 permits and more count in larger units, so that two L fit 63 bits: 2^-29
//!   permits from there on, 2^-19 at [`MAX_PERMITS`]. From 2^34 on, a level is forgotten at 2^18
//!   units: 1/512 permit, and at most a half.
//! * Worst case: `L + (w - 1) x L / tau` in any span `w`, never more than the
//!   [token bucket](super::gcra) of burst L and rate `L / tau`, since a full level fades at
//!   that rate and a lower one slower. Long run: `L - 1/2` per `tau` if served one by one.
//! * Choose it to slow users the more, the heavier they are: mail, log-ins, invitations. Else
//!   choose GCRA, which is cheaper and easier to explain.
//! * A clock that steps back finds the level it had reached: it is denied longer by the
//!   step, and never gains.
//! * Laws: keeps all of them, but for two. [`Denials::Counted`] gives up "denial is free" by
//!   request. A refund undoes a charge to 2^-30 permit only, because the remaining level before
//!   it must be rounded: up, so that it gives that much less.
//! * `2^x` and `log2 x` are polynomials here, of `+ - x /` only: each is rounded the same way
//!   on every machine, and can be written down again in another language to the bit.
//! * Source: T. Finch, "Exponential rate limiting" (2024); P. Hazel, Exim, `ratelimit`
//!   (2005); founding design: the wait in closed form.

mod powers;
mod stored_form;

use crate::algorithm::{Algorithm, Denials, Refund};
use crate::{
    AnyAlgorithm, Decision, Error, Nanos, Origin, Permits, Quota, Reconfigure, Share, Time,
    Verdict, share,
};
use powers::{float, floor, half_power, log2};

/// Levels are kept to 2^-30 permits, if their limit is below 2^32.
const MAX_UNITS_LOG2: u32 = 30;
/// The limit is below 2^62 units, and twice as much below 2^63, the largest float of `powers`.
const MAX_LIMIT_LOG2: u32 = 62;
/// A level below 2^-10 permits is forgotten, or below 2^[`MIN_FORGOTTEN_LOG2`] units if that is
/// more.
const FORGOTTEN_PART_LOG2: u32 = 10;
/// At least 2^18 units, because fading keeps back up to 2^15 of them: [`MARGIN`] of two limits.
const MIN_FORGOTTEN_LOG2: u32 = 18;
/// Maximum number of permits. Beyond it, a forgotten level could be a whole permit.
pub const MAX_PERMITS: u64 = (1 << (MAX_LIMIT_LOG2 - MIN_FORGOTTEN_LOG2 - 1)) - 1;
/// The share of a full exponential counter that fades in the time that grants its quota,
/// `1 - 1/e`, in billionths, rounded down.
const FADED_PER_BILLION: u64 = 632_120_558;

/// The longest time constant, 4.5 years: 32 of them fit half the range of spans.
const MAX_TAU: u64 = 1 << 57;
/// Share of a level that is kept back when it fades: above the error of `half_power`.
const MARGIN: f64 = f64::EPSILON * 16.0;

/// An exponentially fading counter; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Exponential, Nanos, Permits, Time};
///
/// let limit = Exponential::new("10/1s".parse().unwrap()).unwrap();
/// let mut level = Default::default();
/// assert!(limit.decide(&mut level, Time::ZERO, Permits::new(10)).verdict.allows());
/// let denied = limit.decide(&mut level, Time::ZERO, Permits::new(5));
/// let half = denied.verdict.retry_after().unwrap();
/// assert_eq!(half.as_millis_ceil(), 694, "ln 2 seconds");
/// assert!(limit.decide(&mut level, Time::ZERO + half, Permits::new(5)).verdict.allows());
/// ```
#[doc(alias("exponential rate limiter", "ewma"))]
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Exponential {
    /// L: at least 1.
    permits: u64,
    /// Units in a permit, as a power of two.
    units_log2: u32,
    /// In nanoseconds, at least 1.
    tau: u64,
    /// Half-lives in a nanosecond.
    pace: f64,
    /// Nanoseconds in a half-life.
    half_life: f64,
    denials: Denials,
}

/// The usage of one key that has not faded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ExponentialState {
    /// In units of the limit; 0 for a key never seen.
    units: u64,
    /// The moment of this level.
    at: Time,
}

impl Exponential {
    /// A counter that may reach `quota.burst_size()` and fades at the quota's rate when full.
    ///
    /// # Errors
    /// [`Error::DecayTooLong`] if the quota grants its burst in more than 4.5 years,
    /// [`Error::LevelTooLarge`] if the burst is above [`MAX_PERMITS`].
    pub fn new(quota: Quota) -> Result<Self, Error> {
        let tau = quota.time_for(quota.burst_size()).as_nanos(); // up: slower
        if tau > MAX_TAU {
            return Err(Error::DecayTooLong);
        }
        let permits = quota.burst_size().get();
        if permits > MAX_PERMITS {
            return Err(Error::LevelTooLarge);
        }
        Ok(Self {
            permits,
            units_log2: (permits.leading_zeros() + MAX_LIMIT_LOG2 - u64::BITS).min(MAX_UNITS_LOG2),
            tau,
            pace: core::f64::consts::LOG2_E / float(tau),
            half_life: core::f64::consts::LN_2 * float(tau),
            denials: Denials::Free,
        })
    }

    /// The same limit with another cost of denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// L in units.
    fn limit(&self) -> u64 {
        self.permits << self.units_log2
    }

    /// A cost in units; saturating.
    fn price_of(&self, cost: Permits) -> u64 {
        cost.get().saturating_mul(1 << self.units_log2)
    }

    /// Below so many units, as a power of two, a level is forgotten.
    fn forgotten_log2(&self) -> u32 {
        let part = self.units_log2.saturating_sub(FORGOTTEN_PART_LOG2);
        part.max(MIN_FORGOTTEN_LOG2)
    }

    /// The remaining level at `now`, in units: never less than the exact one, except that a small
    /// level is forgotten.
    #[inline]
    fn left(&self, level: &ExponentialState, now: Time) -> u64 {
        let units = level.units;
        let span = now.since(level.at).as_nanos();
        if units == 0 || span == 0 {
            return units;
        }
        let left = self.faded(units, span);
        // Far above the threshold the logarithm is not needed.
        let forgotten = self.forgotten_log2();
        let low = left <= (1 << forgotten) + (1 << (forgotten - 2));
        if low && now >= self.forgotten_at(level) {
            return 0;
        }
        left
    }

    /// The rest of `units` after `span` nanoseconds, if nothing is forgotten.
    #[inline]
    fn faded(&self, units: u64, span: u64) -> u64 {
        let share = half_power(float(span) * self.pace) + MARGIN;
        units.min(floor(float(units) * share) + 1) // up: not too early
    }

    /// The span of `half_lives`, rounded up.
    fn span_of(&self, half_lives: f64) -> u64 {
        floor(half_lives * self.half_life).saturating_add(1)
    }

    /// The first moment at which at most `target` is left of `level`, which is higher; `target`
    /// is in whole permits, so that nothing is forgotten before.
    fn faded_to(&self, level: &ExponentialState, target: u64) -> Time {
        if target == 0 {
            return self.forgotten_at(level);
        }
        let is_low = |span| self.faded(level.units, span) <= target;
        // The value that `half_power` must reach: `left` keeps the margin back.
        let half_lives = -log2(float(target) / float(level.units) - MARGIN);
        let span = half_lives * self.half_life;
        // The sum of all roundings. Of shares: 2 of `half_power` and 1/2 of each of sum, product,
        // quotient, difference and two conversions, all by log2 e; and 1/2 of `log2`. Of
        // half-lives: 1 of `log2`, and 1/2 of each of nine factors.
        let error = self.half_life * f64::EPSILON * (5.5 * half_lives + 7.75);
        let mut guess = floor(span) + 1;
        let part = span - float(guess - 1);
        if error < part && part < 1.0 - error {
            return level.at + Nanos::from_nanos(guess);
        }
        if error < 1.0 {
            let last = floor(span + error) + 1;
            guess = floor(span - error) + 1;
            while guess < last && !is_low(guess) {
                guess += 1; // twice at most
            }
            return level.at + Nanos::from_nanos(guess);
        }
        level.at + Nanos::from_nanos(least(guess, is_low))
    }

    /// The moment at which less is left than is remembered, and a half-life has passed.
    fn forgotten_at(&self, level: &ExponentialState) -> Time {
        if level.units == 0 {
            return Time::ZERO;
        }
        let above = log2(float(level.units)) - f64::from(self.forgotten_log2());
        level.at + Nanos::from_nanos(self.span_of(above.max(1.0)))
    }

    fn decision(
        &self,
        verdict: Verdict,
        level: &ExponentialState,
        left: u64,
        now: Time,
    ) -> Decision {
        // Rounded down, because only whole permits can be spent.
        let remaining = self.limit().saturating_sub(left) >> self.units_log2;
        let expiry = self.forgotten_at(level);
        let more_at = match self.limit().checked_sub((remaining + 1) << self.units_log2) {
            None => Time::ZERO,
            Some(0) => expiry,
            Some(target) => self.faded_to(level, target),
        };
        Decision {
            verdict,
            remaining: Permits::new(remaining),
            reset_after: expiry.since(now),
            more_after: more_at.since(now),
        }
    }
}

impl Reconfigure for Exponential {
    fn with_quota(&self, quota: Quota, _origin: Origin) -> Result<AnyAlgorithm, Error> {
        Ok(Self::new(quota)?.with_denials(self.denials).into())
    }
}

impl Algorithm for Exponential {
    type State = ExponentialState;

    fn name(&self) -> &'static str {
        "exponential"
    }

    fn denials(&self) -> Denials {
        self.denials
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.permits)
    }

    #[inline]
    fn decide(&self, level: &mut ExponentialState, now: Time, cost: Permits) -> Decision {
        let left = self.left(level, now);
        let price = self.price_of(cost);
        let fits = left.saturating_add(price) <= self.limit();
        let capable = cost.get() <= self.permits;
        let charged = match self.denials {
            _ if fits => left + price,
            Denials::Counted => left.max(left.saturating_add(price).min(2 * self.limit())),
            Denials::Free => left,
        };
        if charged != left {
            *level = ExponentialState {
                units: charged,
                at: level.at.max(now),
            };
        }
        let verdict = if fits {
            Verdict::Allow
        } else if capable {
            Verdict::Deny {
                retry_after: self.faded_to(level, self.limit() - price).since(now),
            }
        } else {
            Verdict::DenyForever
        };
        self.decision(verdict, level, charged, now)
    }

    fn expires_at(&self, level: &ExponentialState, _now: Time) -> Time {
        self.forgotten_at(level)
    }

    /// The higher of the two levels at the later of the two moments.
    fn stricter(&self, level: &mut ExponentialState, other: &ExponentialState) {
        let at = level.at.max(other.at);
        let faded = |level: &ExponentialState| match self.left(level, at) {
            left if left == 0 || level.at == at => left,
            // Up: fading in two steps may round less up than in one.
            left => left + (level.units >> 47) + 2,
        };
        let units = faded(level).max(faded(other));
        *level = match units {
            0 => ExponentialState::default(),
            units => ExponentialState { units, at },
        };
    }

    /// Levels mean the same while they fade the same, and their units are the same.
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.tau == old.tau && self.units_log2 == old.units_log2
    }

    fn least_served(&self, kept: Quota) -> Share {
        let share = match kept.permits().get() {
            1 => Share::one_in(share::gap(self), kept),
            permits => {
                let faded = u128::from(permits) * u128::from(FADED_PER_BILLION) / 1_000_000_000;
                Share::new(u64::try_from(faded).unwrap_or(permits), permits) // less than permits
            }
        };
        share.counting(self.denials)
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(after_first) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let limit = u128::from(self.permits);
        let faded = u128::from(after_first) * limit / u128::from(self.tau);
        u64::try_from(limit + faded).unwrap_or(u64::MAX)
    }
}

impl Refund for Exponential {
    /// Subtracts the cost from the remaining level.
    fn refund(&self, level: &mut ExponentialState, now: Time, cost: Permits) {
        let left = self.left(level, now);
        let back = self.price_of(cost);
        *level = match left.saturating_sub(back) {
            0 => ExponentialState::default(),
            _ if back == 0 => *level,
            units => ExponentialState {
                units,
                at: level.at.max(now),
            },
        };
    }
}

/// The least number for which `is_so` holds, if it then holds for all larger ones. Fast if
/// `guess` is close.
fn least(guess: u64, is_so: impl Fn(u64) -> bool) -> u64 {
    // Between `below`, where it does not hold, and `above`, where it does.
    let (mut below, mut above, mut step) = (guess, guess, 1_u64);
    if is_so(guess) {
        loop {
            below = above.saturating_sub(step);
            if below == 0 && is_so(0) {
                return 0;
            }
            if !is_so(below) {
                break;
            }
            (above, step) = (below, step.saturating_mul(2));
        }
    } else {
        loop {
            above = below.saturating_add(step);
            if is_so(above) || above == u64::MAX {
                break;
            }
            (below, step) = (above, step.saturating_mul(2));
        }
    }
    while above - below > 1 {
        let middle = below + (above - below) / 2;
        if is_so(middle) {
            above = middle;
        } else {
            below = middle;
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::Random;
    use crate::{Gcra, Tat};

    fn exponential(text: &str) -> Exponential {
        Exponential::new(text.parse().unwrap()).unwrap()
    }

    fn millis(millis: u64) -> Time {
        Time::ZERO + Nanos::from_millis(millis)
    }

    #[test]
    fn a_burst_is_the_whole_limit_and_then_the_level_must_decay() {
        let limit = exponential("10/1s");
        let mut level = ExponentialState::default();
        for left in (0..10).rev() {
            let decision = limit.decide(&mut level, millis(5), Permits::ONE);
            assert_eq!(decision.remaining, Permits::new(left));
        }
        let wait = |cost| limit.look(&level, millis(5), Permits::new(cost)).verdict;
        for (cost, micros) in [
            (1, 105_361),    // ln(10 / 9)
            (5, 693_148),    // ln 2
            (9, 2_302_586),  // ln 10
            (10, 9_234_057), // ln(10 x 1024)
        ] {
            let retry_after = wait(cost).retry_after().unwrap();
            assert_eq!(retry_after.as_nanos().div_ceil(1_000), micros, "{cost}");
        }
        assert_eq!(wait(11), Verdict::DenyForever);
    }

    #[test]
    fn the_long_run_is_half_a_permit_below_the_limit() {
        let limit = exponential("10/1s");
        let mut level = ExponentialState::default();
        let mut now = Time::ZERO;
        let mut admitted = 0;
        while now < millis(1_000_000) {
            let decision = limit.decide(&mut level, now, Permits::ONE);
            match decision.verdict.retry_after() {
                Some(wait) => now = now + wait,
                None => admitted += 1,
            }
        }
        assert_eq!(admitted, 9_501, "9.49 per second, plus the initial burst");
    }

    #[test]
    fn a_counted_cost_above_the_limit_is_recorded() {
        let limit = exponential("10/1s").with_denials(Denials::Counted);
        for (cost, recorded) in [(11, 11), (20, 20), (u64::MAX, 20)] {
            let mut level = ExponentialState::default();
            let denied = limit.decide(&mut level, Time::ZERO, Permits::new(cost));
            assert_eq!(denied.verdict, Verdict::DenyForever);
            assert_eq!(level.units, recorded << MAX_UNITS_LOG2, "{cost}");
        }
    }

    #[test]
    fn counted_denials_lock_out_for_a_finite_time() {
        let limit = exponential("10/1s").with_denials(Denials::Counted);
        let mut level = ExponentialState::default();
        for _ in 0..100 {
            let _ = limit.decide(&mut level, Time::ZERO, Permits::ONE);
        }
        let denied = limit.decide(&mut level, Time::ZERO, Permits::ONE);
        let wait = denied.verdict.retry_after().unwrap();
        assert_eq!(wait.as_millis_ceil(), 799, "ln(20 / 9)");
    }

    #[test]
    fn a_refund_undoes_a_charge_and_no_more() {
        let limit = exponential("10/1s");
        let mut level = ExponentialState::default();
        let _ = limit.decide(&mut level, millis(0), Permits::new(4));
        limit.refund(&mut level, millis(0), Permits::new(3));
        let looked = limit.look(&level, millis(0), Permits::ZERO);
        assert_eq!(looked.remaining, Permits::new(9));
        limit.refund(&mut level, millis(100), Permits::MAX);
        assert_eq!(level, ExponentialState::default());
    }

    #[test]
    fn a_refund_returns_the_charge_except_for_rounding() {
        let mut random = Random::new(3);
        let limit = exponential("50/1s");
        for _ in 0..20_000 {
            let at = |micros| Time::ZERO + Nanos::from_micros(micros);
            let mut level = ExponentialState::default();
            let _ = limit.decide(&mut level, at(0), Permits::new(random.below(40)));
            let (now, cost) = (at(random.below(3_000_000)), Permits::new(5));
            let mut undone = level;
            let _ = limit.decide(&mut undone, now, cost);
            limit.refund(&mut undone, now, cost);
            let then = now + Nanos::from_nanos(random.below(1_000_000_000));
            let (left, before) = (limit.left(&undone, then), limit.left(&level, then));
            assert!(before <= left && left <= before + 2, "{level:?} {undone:?}");
        }
    }

    #[test]
    fn the_wait_is_exact_at_any_size() {
        let mut random = Random::new(7);
        for _ in 0..3_000 {
            let most = MAX_PERMITS >> random.below(43);
            let permits = Permits::new(1 + random.below(most));
            let per = Nanos::from_nanos(1 + (random.next() >> (7 + random.below(57))));
            let limit = Exponential::new(Quota::new(permits, per).unwrap()).unwrap();
            let mut level = ExponentialState::default();
            let mut now = Time::from_nanos(random.next() >> 8);
            for _ in 0..8 {
                now = now + Nanos::from_nanos(random.below(per.as_nanos() / 2 + 2));
                let cost = Permits::new(1 + random.below(permits.get()));
                let denied = limit.decide(&mut level, now, cost);
                let Some(wait) = denied.verdict.retry_after() else {
                    continue;
                };
                let at = |then| limit.look(&level, then, cost).verdict.allows();
                assert!(at(now + wait) && !at(now + wait - Nanos::from_nanos(1)));
            }
        }
    }

    #[test]
    fn large_limits_count_in_larger_units() {
        for (permits, units_log2) in [
            (1, 30),
            (u64::from(u32::MAX), 30),
            (1 << 32, 29),
            (10_000_000_000, 28),
            (MAX_PERMITS, 19),
        ] {
            let limit = Exponential::new(Quota::per_day(permits)).unwrap();
            assert_eq!(limit.units_log2, units_log2, "{permits}");
            let counted = limit.with_denials(Denials::Counted);
            let mut level = ExponentialState::default();
            let all = limit.decide(&mut level, Time::ZERO, Permits::new(permits));
            assert_eq!(
                (all.verdict, all.remaining),
                (Verdict::Allow, Permits::ZERO)
            );
            let beyond = limit.look(&level, Time::ZERO, Permits::MAX);
            assert_eq!(beyond.verdict, Verdict::DenyForever);
            let _ = counted.decide(&mut level, Time::ZERO, Permits::MAX);
            assert_eq!(level.units, 2 * limit.limit(), "one further quota");
            let gone = limit.expires_at(&level, Time::ZERO);
            assert_eq!(limit.left(&level, gone), 0);
            assert!(limit.left(&level, gone - Nanos::from_nanos(1)) > 0);
        }
        let beyond = Exponential::new(Quota::per_day(MAX_PERMITS + 1));
        assert_eq!(beyond, Err(Error::LevelTooLarge));
        let limit = |permits| Exponential::new(Quota::per_day(permits)).unwrap();
        assert!(limit(1 << 33).keeps_state_of(&limit((1 << 33) + 1)));
        assert!(
            !limit(1 << 33).keeps_state_of(&limit(1 << 34)),
            "other units"
        );
    }

    #[test]
    fn an_exponential_limit_never_admits_a_cost_that_a_token_bucket_denies() {
        let mut random = Random::new(11);
        for text in [
            "1/1s",
            "10/1s",
            "100/60s",
            "1000/1s",
            "20000/1s",
            "7/100ns",
            "10000000000/24h",
        ] {
            let quota: Quota = text.parse().unwrap();
            let (limit, bucket) = (
                Exponential::new(quota).unwrap(),
                Gcra::token_bucket(quota).unwrap(),
            );
            let (mut level, mut tat, mut now) =
                (ExponentialState::default(), Tat::default(), Time::ZERO);
            for _ in 0..20_000 {
                now = now + Nanos::from_nanos(random.below(quota.per().as_nanos() / 5 + 2));
                let cost = Permits::new(1 + random.below(quota.permits().get()) / 2);
                let mut denied = limit.decide(&mut level, now, cost);
                if random.below(2) == 0
                    && let Some(wait) = denied.verdict.retry_after()
                {
                    now = now + wait; // as soon as it may
                    denied = limit.decide(&mut level, now, cost);
                }
                if denied.verdict.allows() {
                    let verdict = bucket.decide(&mut tat, now, cost).verdict;
                    assert!(verdict.allows(), "{text}: {cost:?} at {now:?}");
                }
            }
        }
    }

    #[test]
    fn the_smallest_match_is_found_from_any_guess() {
        for wanted in [0, 1, 2, 99, 1 << 40, u64::MAX] {
            for guess in [0, 1, 98, 100, 1 << 41, u64::MAX] {
                assert_eq!(least(guess, |number| number >= wanted), wanted);
            }
        }
    }
}
