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
    AnyAlgorithm, Decision, Error, Nanos, Origin, Permits, Quota, Receipt, Reconfigure, Share,
    Time, Verdict, share,
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

    /// Returns L in units.
    fn limit(&self) -> u64 {
        self.permits << self.units_log2
    }

    /// Returns a cost in units; saturating.
    fn price_of(&self, cost: Permits) -> u64 {
        cost.get().saturating_mul(1 << self.units_log2)
    }

    /// Returns the power of two below which, in units, a level is forgotten.
    fn forgotten_log2(&self) -> u32 {
        let part = self.units_log2.saturating_sub(FORGOTTEN_PART_LOG2);
        part.max(MIN_FORGOTTEN_LOG2)
    }

    /// Returns the remaining level at `now`, in units: never less than the exact one, except that a
    /// small level is forgotten.
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

    /// Returns the rest of `units` after `span` nanoseconds, if nothing is forgotten.
    #[inline]
    fn faded(&self, units: u64, span: u64) -> u64 {
        let share = half_power(float(span) * self.pace) + MARGIN;
        units.min(floor(float(units) * share) + 1) // up: not too early
    }

    /// Returns the nanoseconds of `half_lives`, rounded up.
    fn span_of(&self, half_lives: f64) -> u64 {
        floor(half_lives * self.half_life).saturating_add(1)
    }

    /// Returns the first moment at which at most `target` is left of `level`, which is higher;
    /// `target` is in whole permits, so that nothing is forgotten before.
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
        // half-lives: 1 of `log2`, and 1/2 of each of nine factors and of the bounds below.
        let error = self.half_life * f64::EPSILON * (6.0 * half_lives + 7.75);
        let guess = floor(span) + 1;
        let part = span - float(guess - 1);
        if error < part && part < 1.0 - error {
            return level.at + Nanos::from_nanos(guess);
        }
        // A span that is too short, and one that is long enough.
        let (mut short, mut long) = (floor(span - error), floor(span + error) + 1);
        while long - short > 1 {
            let middle = short + (long - short) / 2;
            if is_low(middle) {
                long = middle;
            } else {
                short = middle;
            }
        }
        level.at + Nanos::from_nanos(long)
    }

    /// Returns the moment at which the rest of `level` is forgotten, a half-life or more after it.
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
    /// The remaining part of the cost, rounded down; nothing of a part that would be forgotten.
    fn give_back_late(
        &self,
        level: &mut ExponentialState,
        now: Time,
        cost: Permits,
        receipt: Receipt,
    ) {
        let age = now.since(receipt.made).as_nanos();
        let share = half_power(float(age) * self.pace) - MARGIN;
        let left = floor(float(self.price_of(cost)) * share).saturating_sub(1);
        if left > 1 << self.forgotten_log2() {
            self.lower(level, now, left);
            // Roundings keep a rest back, which is no usage, and would bar a whole permit.
            if level.units <= 1 << self.forgotten_log2() {
                *level = ExponentialState::default();
            }
        }
    }

    fn refund(&self, level: &mut ExponentialState, now: Time, cost: Permits) {
        self.lower(level, now, self.price_of(cost));
    }
}

impl Exponential {
    /// Lowers the level by `back` units.
    fn lower(&self, level: &mut ExponentialState, now: Time, back: u64) {
        let left = self.left(level, now);
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

#[cfg(test)]
mod tests;
