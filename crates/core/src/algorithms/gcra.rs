//! GCRA, the generic cell rate algorithm: a token bucket that remembers one number.
//!
//! The number is the *theoretical arrival time* (TAT): when the next request would come if
//! every caller kept perfect pace. Each permit pushes it right by one interval `T`; the
//! clock chases it. A request may run ahead of the clock by `burst x T`, and by `queue x T`
//! more if it is willing to wait for the difference.
//!
//! ```text
//!        |<------ burst x T ------>|<-- queue x T -->|
//!   -----+-------------*=========*-+-----------------+------> time
//!       now           TAT       TAT'
//!                      |<-cost ->|   TAT' left of the first edge: allow
//!                      |   x T   |   between the edges: allow, after the overshoot
//!                                    right of both: deny; the overshoot is retry_after
//! ```
//!
//! `TAT' = max(TAT, now) + cost x T`; allow iff `TAT' - now <= (burst + queue) x T`.
//!
//! The same number under other names, each a constructor here:
//!
//! ```text
//!   name                reading of TAT                               burst   queue
//!   token bucket        tokens = burst - (TAT - now) / T             B       0
//!   leaky bucket, meter level  = (TAT - now) / T                     B       0
//!   leaky bucket, queue the moment the last waiting request leaves   1       Q
//!   spacing             the moment the next action may happen        1       0
//! ```
//!
//! * State: 8 bytes, a moment in ticks of 1/64 ns, modulo 9.1 years: any limit can read the state
//!   of another, and any clock will do. A state unused for 4.5 years or longer may be read as a
//!   full burst that is owed, once: no memory store keeps one for so long, but a
//!   `KeyedLimiter` does, whose clock only a simulation moves so far.
//! * Error: none, for moments of whole nanoseconds and up to 64 permits in the span in lowest
//!   terms, and of whole microseconds and up to 64,000; elsewhere a request may pass 1/32 ns
//!   early. A client that takes at most the quota in each span is never refused. See `grid.rs`.
//! * Worst case: any span `w` admits at most `burst + queue + (w - 1 ns) / T`: up to
//!   `2 x burst - 1` within the time that refills the burst. Long run: exactly one per `T`.
//! * Choose it first. Avoid it when the contract says "N per calendar window", or "never
//!   more than N in any span".
//! * Laws: keeps all of them; [`Denials::Counted`] gives up "denial is free" by request.
//! * A clock set back leaves a debt deeper than the larger of quota and burst, the maximum that a
//!   change of parameters can leave; it is cut to that, and the cut is kept. Debts that
//!   are too long by 10 s or less stay, so that a thread that was suspended after it read the
//!   clock does not forgive charges made since. A clock that is set back further and then forward
//!   again forgives the charges between.
//! * Twin: `gcra.lua`, and `gcra/short.lua` for requests of one charge.
//! * Source: ITU-T I.371 (1996), annex A; T. Finch, "GCRA: leaky buckets without the
//!   buckets" (2024); J. Turner, "New directions in communications" (1986) for the meter.

mod charge;
mod denial;
mod grid;
mod promise;
mod reconfigure;
mod stored_form;
mod tat;
mod writer;

pub use stored_form::Paid;
pub use tat::Tat;

use core::num::NonZeroU64;

use crate::algorithm::{Algorithm, Denials, Reserve as _};
use crate::{Decision, Error, Nanos, Permits, Quota, Reconfigure, Share, Time, Verdict};
use grid::{Grid, Moment, TICKS, Units as _};

/// Maximum length of a debt, 1.1 years: far from the 4.5 years at which a moment ahead cannot be
/// distinguished from one that has passed.
const HORIZON_TICKS: u64 = 1 << 61;
/// Maximum excess of a debt over the deepest possible one before the clock is assumed to have
/// been set back: 10 s. Clocks of racing threads differ by less, clocks set by hand mostly by
/// more. No caller is locked out longer than this because of a clock.
const CLOCK_SLACK_TICKS: u64 = 10_000_000_000 * TICKS;
/// Maximum distance of a moment ahead, 4.5 years; beyond, it has passed, because ticks are
/// counted modulo 2^64.
const FARTHEST_TICKS: u64 = u64::MAX / 2;

/// The generic cell rate algorithm; see the [module](self) for figure and formula.
///
/// ```
/// use ratekeeper_core::{Algorithm, Gcra, Nanos, Permits, Time, Verdict};
///
/// let gcra = Gcra::token_bucket("10/1s".parse().unwrap()).unwrap();
/// let mut tat = Default::default();
/// let t = Time::ZERO;
/// assert_eq!(gcra.decide(&mut tat, t, Permits::new(10)).verdict, Verdict::Allow);
/// let Verdict::Deny { retry_after } = gcra.decide(&mut tat, t, Permits::ONE).verdict else {
///     panic!("the bucket is empty");
/// };
/// assert_eq!(retry_after, Nanos::from_millis(100));
/// assert_eq!(gcra.decide(&mut tat, t + retry_after, Permits::ONE).verdict, Verdict::Allow);
/// ```
#[doc(alias(
    "token bucket",
    "leaky bucket",
    "generic cell rate algorithm",
    "spacing"
))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gcra {
    /// The units of all debts.
    grid: Grid,
    /// T: units between two permits.
    interval: NonZeroU64,
    /// burst x T.
    burst: u64,
    /// 2^64 / T, rounded down: turns the division by T into a multiplication.
    reciprocal: u64,
    /// queue x T.
    queue: u64,
    /// Maximum wait that `reserve` may promise, in units.
    patience: u64,
    /// The larger of quota and burst, x T.
    most: u64,
    /// The deepest debt under earlier parameters of the same rate, in units.
    earlier: u64,
    /// The longest wait in a queue of earlier parameters with another rate, in units.
    promised: u64,
    /// Maximum debt that is accepted as it is, in ticks; see [`CLOCK_SLACK_TICKS`].
    deepest: u64,
    denials: Denials,
}

impl Gcra {
    /// A token bucket: `quota.burst_size()` tokens at most, refilled evenly at the quota's rate.
    ///
    /// # Errors
    /// [`Error::TooFast`] for a quota of more than 64 permits a nanosecond, [`Error::TooLong`]
    /// for one that grants its burst and queue in more than 1.1 years.
    pub fn token_bucket(quota: Quota) -> Result<Self, Error> {
        Self::new(quota, Permits::ZERO)
    }

    /// A leaky bucket as a meter: each request pours its cost in, the bucket leaks at the quota's
    /// rate and holds `quota.burst_size()`; a request that would overflow it is denied.
    ///
    /// The same function as [`Gcra::token_bucket`]: the level is the number of missing tokens.
    ///
    /// # Errors
    /// As [`Gcra::token_bucket`].
    pub fn leaky_meter(quota: Quota) -> Result<Self, Error> {
        Self::token_bucket(quota)
    }

    /// A leaky bucket as a queue: requests leave one by one at the quota's rate; up to
    /// `queue` of them wait (`AllowAfter`), further ones are denied. The burst is 1.
    ///
    /// # Errors
    /// As [`Gcra::token_bucket`].
    pub fn leaky_queue(quota: Quota, queue: impl Into<Permits>) -> Result<Self, Error> {
        Self::new(quota.with_burst(Permits::ONE)?, queue)
    }

    /// A minimum gap between two actions.
    ///
    /// # Errors
    /// [`Error::NoSpan`] for a gap of zero, [`Error::TooLong`] past the horizon.
    pub fn spacing(gap: impl Into<Nanos>) -> Result<Self, Error> {
        Self::token_bucket(Quota::new(Permits::ONE, gap)?)
    }

    /// The general form: a burst that passes at once, then a queue that waits.
    ///
    /// # Errors
    /// As [`Gcra::token_bucket`], and [`Error::TooManyPermits`] if both sum up to 2^53 or more.
    pub fn new(quota: Quota, queue: impl Into<Permits>) -> Result<Self, Error> {
        let queue = queue.into();
        if quota.burst_size() + queue == Permits::MAX {
            return Err(Error::TooManyPermits);
        }
        let (grid, interval) = Grid::of(quota)?;
        let interval = NonZeroU64::new(interval).ok_or(Error::TooFast)?;
        let units_for = |permits: Permits| permits.get().checked_mul(interval.get());
        let burst = units_for(quota.burst_size()).ok_or(Error::TooLong)?;
        let queue = units_for(queue).ok_or(Error::TooLong)?;
        match burst.checked_add(queue) {
            Some(sum) if grid.max_ticks(sum) <= HORIZON_TICKS => {}
            _ => return Err(Error::TooLong),
        }
        let most = units_for(quota.permits()).unwrap_or(u64::MAX).max(burst);
        Ok(Self {
            grid,
            interval,
            burst,
            most: most.min(grid.units_in_ticks(HORIZON_TICKS, Moment::ZERO)),
            reciprocal: u64::MAX / interval.get(), // down: the quotient is one too small at most
            queue,
            patience: 0,
            earlier: 0,
            promised: 0,
            deepest: 0,
            denials: Denials::Free,
        }
        .with_denials(Denials::Free))
    }

    /// The same limit with another cost of denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        let limit = Self { denials, ..self };
        let deepest = limit.grid.max_ticks(limit.deepest_debt()) + CLOCK_SLACK_TICKS;
        Self { deepest, ..limit }
    }

    /// Maximum number of permits with intervals that, one after the other, fit into `span`: in a
    /// queue of this length no request waits longer.
    ///
    /// ```
    /// use ratekeeper_core::{Gcra, Nanos, Permits};
    /// let gcra = Gcra::token_bucket("20/1s".parse().unwrap()).unwrap();
    /// assert_eq!(gcra.paced_within(Nanos::from_millis(240)), Permits::new(4));
    /// ```
    pub fn paced_within(&self, span: Nanos) -> Permits {
        let most = self.price_of(Permits::MAX);
        self.permits_in(self.grid.units_in(span, Moment::ZERO).min(most))
    }

    /// Maximum number of permits that wait in the limit's own queue, and the wait of the last of
    /// them; zero without a queue.
    pub fn queue(&self) -> (Permits, Nanos) {
        let longest_wait = self.nanos(self.queue, Moment::ZERO);
        (self.permits_in(self.queue), longest_wait)
    }

    /// The deepest debt that allowed requests can leave.
    fn full(&self) -> u64 {
        self.burst + self.queue.max(self.patience)
    }

    /// The deepest debt that requests can leave under these parameters alone.
    fn own_deepest(&self) -> u64 {
        match self.denials {
            Denials::Free => self.full(),
            Denials::Counted => 2 * self.full(),
        }
    }

    /// The deepest possible debt, also after a change of parameters.
    fn deepest_debt(&self) -> u64 {
        let earlier = self.most.max(self.earlier);
        let earlier = earlier.saturating_add(self.promised);
        self.own_deepest().max(earlier)
    }

    /// The units of a cost; saturating.
    #[inline]
    fn price_of(&self, cost: Permits) -> u64 {
        self.interval.get().saturating_mul(cost.get())
    }

    /// How long a debt of `units` lasts from `now` on, rounded up.
    #[inline]
    fn nanos(&self, units: u64, now: Moment) -> Nanos {
        nanos_ceil(self.grid.ticks(units, now))
    }

    /// Rounded down to whole permits. No limit and no patience holds more than can be counted.
    #[inline]
    fn permits_in(&self, units: u64) -> Permits {
        let low = ((u128::from(units) * u128::from(self.reciprocal)) >> 64) as u64; // upper half
        let more = u64::from(units - low * self.interval.get() >= self.interval.get());
        Permits::bounded(low + more) // one at most: see the field
    }
}

impl Algorithm for Gcra {
    type State = Tat;

    fn name(&self) -> &'static str {
        if self.queue > 0 || self.permits_in(self.burst) == Permits::ONE {
            "leaky bucket"
        } else {
            "token bucket"
        }
    }

    fn denials(&self) -> Denials {
        self.denials
    }

    /// The span in which the burst and the queue are granted anew, rounded up.
    fn window(&self) -> Option<Nanos> {
        Some(self.nanos(self.burst + self.queue, Moment::ZERO))
    }

    fn refills_one_by_one(&self) -> bool {
        true
    }

    fn is_paid_in_order(&self) -> bool {
        true
    }

    fn capacity(&self) -> Permits {
        self.permits_in(self.burst + self.queue)
    }

    #[expect(
        clippy::inline_always,
        reason = "copying the answer costs more than deciding"
    )]
    #[inline(always)]
    fn decide(&self, tat: &mut Tat, now: Time, cost: Permits) -> Decision {
        self.charge(tat, now, cost, self.queue)
    }

    #[inline]
    fn take(&self, tat: &mut Tat, now: Time, cost: Permits) -> bool {
        if self.denials == Denials::Counted {
            let taken = self.take_counted(*tat, now, cost);
            *tat = taken.unwrap_or(*tat);
            return taken.is_some();
        }
        self.charge(tat, now, cost, 0).verdict == Verdict::Allow
    }

    fn expires_at(&self, tat: &Tat, now: Time) -> Time {
        if *tat == Tat::default() {
            return Time::ZERO;
        }
        let now_ticks = self.grid.at(now).ticks;
        match tat.0.wrapping_sub(now_ticks) {
            ahead if ahead <= FARTHEST_TICKS => now + nanos_ceil(ahead),
            _ => now - Nanos::from_nanos(now_ticks.wrapping_sub(tat.0) / TICKS), // not too early
        }
    }

    fn lasts(&self) -> Nanos {
        Nanos::from_nanos(FARTHEST_TICKS / TICKS)
    }

    /// Keeps the later of the two; moments that lie 4.5 years apart cannot be compared.
    fn stricter(&self, tat: &mut Tat, other: &Tat) {
        let is_later = other.0.wrapping_sub(tat.0) <= FARTHEST_TICKS;
        if *other != Tat::default() && (is_later || *tat == Tat::default()) {
            *tat = *other;
        }
    }

    fn keeps_state_of(&self, _old: &Self) -> bool {
        true // the debt is time, so it holds at any rate
    }

    fn rescale(&self, tat: &mut Tat, old: &Self, now: Time, promised: Nanos) {
        reconfigure::rescale(self, tat, old, now, promised);
    }

    fn succeed(&mut self, old: &Self) {
        reconfigure::succeed(self, old);
    }

    /// Without the rest of a decision, because a store that is full compares usages.
    fn usage(&self, tat: &Tat, now: Time) -> Permits {
        let debt = self.debt(&self.grid, &mut { *tat }, self.grid.at(now));
        let limit = self.burst + self.queue;
        self.capacity() - self.permits_in(limit.saturating_sub(debt))
    }

    fn least_served(&self, kept: Quota) -> Share {
        Share::new(self.capacity().get(), kept.permits().get()).counting(self.denials)
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(last) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let refilled = self.grid.max_units_in(last);
        let permits = (u128::from(self.full()) + refilled) / u128::from(self.interval.get());
        u64::try_from(permits).unwrap_or(u64::MAX)
    }

    /// Exact, because permits granted one after the other are granted like one cost.
    fn at_least(&self, tat: &Tat, now: Time, total: Permits) -> Nanos {
        let patient = self.with_patience(Nanos::MAX);
        let granted = patient.reserve(&mut { *tat }, now, total, Nanos::MAX);
        granted.verdict.wait().unwrap_or(Nanos::MAX)
    }
}

/// Rounded up, so that sleeping this long is always enough.
fn nanos_ceil(ticks: u64) -> Nanos {
    Nanos::from_nanos(ticks.div_ceil(TICKS))
}

#[cfg(test)]
mod tests;
