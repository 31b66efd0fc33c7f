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
//! * State: 8 bytes. Error: none; `T` is rounded up to 1/64 ns (see [`Quota`]).
//! * Worst case: any span `w` admits at most `burst + queue + (w - 1 ns) / T`: up to
//!   `2 x burst - 1` within the time that refills the burst. Long run: exactly one per `T`.
//! * Choose it first. Avoid it when the contract says "N per calendar window", or "never
//!   more than N in any span".
//! * Laws: keeps all of them; [`Denials::Counted`] gives up "denial is free" by request.
//! * A clock set back leaves a debt longer than a full burst; it is cut to the full burst,
//!   and the cut is kept, so that no caller is locked out longer than the limit says. Debts
//!   that are too long by 10 s or less stay: there, a thread that read the clock and was
//!   held up must not forgive what others have spent since. A clock that is set back further
//!   and then forward again forgives what lies between, a full burst at most.
//! * Twin: `gcra.lua`, and `gcra/short.lua` for requests of one charge.
//! * Source: ITU-T I.371 (1996), annex A; T. Finch, "GCRA: leaky buckets without the
//!   buckets" (2024); J. Turner, "New directions in communications" (1986) for the meter.

mod denial;
mod promise;
mod shared;

pub use shared::Paid;

use core::num::NonZeroU64;

use crate::algorithm::{Algorithm, Denials, Reserve as _, Word};
use crate::quota::{HORIZON_TICKS, TICKS_PER_NANO_LOG2};
use crate::{Decision, Error, Nanos, Permits, Quota, Time, Verdict};

/// By how much a debt may pass the deepest there can be before the clock is held to have
/// been set back: 10 s. Clocks of threads that race differ by less, clocks set by hand
/// mostly by more. Nobody is locked out longer than this because of a clock.
const CLOCK_SLACK_TICKS: u64 = 10_000_000_000 << TICKS_PER_NANO_LOG2;

/// The theoretical arrival time, in ticks of 1/64 ns since the clock's zero.
///
/// Ticks reach 9.1 years; a process that runs longer stops admitting, it does not wrap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Tat(u64);

impl Word for Tat {
    fn to_word(self) -> u64 {
        self.0
    }
    fn from_word(word: u64) -> Self {
        Self(word)
    }
}

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
    /// T: ticks between two permits.
    interval: NonZeroU64,
    /// burst x T.
    burst: u64,
    /// 2^64 / T, rounded down: turns the division by T into a multiplication.
    reciprocal: u64,
    /// queue x T.
    queue: u64,
    /// How far ahead `reserve` may promise, in ticks.
    patience: u64,
    /// The longest debt that is believed; see [`CLOCK_SLACK_TICKS`].
    deepest: u64,
    denials: Denials,
}

impl Gcra {
    /// A token bucket: `quota.burst()` tokens at most, refilled evenly at the quota's rate.
    ///
    /// # Errors
    /// [`Error::TooFast`] or [`Error::TooLong`] for quotas that ticks cannot express.
    pub fn token_bucket(quota: Quota) -> Result<Self, Error> {
        Self::new(quota, Permits::ZERO)
    }

    /// A leaky bucket as a meter: each request pours its cost in, the bucket leaks at the
    /// quota's rate and holds `quota.burst()`; what would overflow is denied.
    ///
    /// The same function as [`Gcra::token_bucket`]: the level is what the tokens lack.
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
    pub fn leaky_queue(quota: Quota, queue: Permits) -> Result<Self, Error> {
        Self::new(quota.with_burst(Permits::ONE)?, queue)
    }

    /// A minimum gap between two actions.
    ///
    /// # Errors
    /// [`Error::NoSpan`] for a gap of zero, [`Error::TooLong`] past the horizon.
    pub fn spacing(gap: Nanos) -> Result<Self, Error> {
        Self::token_bucket(Quota::new(Permits::ONE, gap)?)
    }

    /// The general form: a burst that passes at once, then a queue that waits.
    ///
    /// # Errors
    /// As [`Gcra::token_bucket`].
    pub fn new(quota: Quota, queue: Permits) -> Result<Self, Error> {
        let interval = NonZeroU64::new(quota.interval_ticks()?).ok_or(Error::NoSpan)?;
        let ticks_for = |permits: Permits| u64::from(permits.get()).checked_mul(interval.get());
        let burst = ticks_for(quota.burst()).ok_or(Error::TooLong)?;
        let queue = ticks_for(queue).ok_or(Error::TooLong)?;
        match burst.checked_add(queue) {
            Some(sum) if sum <= HORIZON_TICKS => {}
            _ => return Err(Error::TooLong),
        }
        let gcra = Self {
            interval,
            burst,
            reciprocal: u64::MAX / interval.get(), // down: the quotient is one too small at most
            queue,
            patience: 0,
            deepest: 0,
            denials: Denials::Free,
        };
        Ok(gcra.with_denials(Denials::Free))
    }

    /// The same limit with another price of denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        let deepest = match denials {
            Denials::Free => self.full(),
            Denials::Counted => 2 * self.full(),
        };
        Self {
            denials,
            deepest: deepest + CLOCK_SLACK_TICKS,
            ..self
        }
    }

    /// A bucket of other numbers, without a queue; denials cost what they did.
    pub(crate) fn with_quota(&self, quota: Quota) -> Result<Self, Error> {
        Ok(Self::token_bucket(quota)?.with_denials(self.denials))
    }

    /// The same limit, willing to promise moments up to `longest_wait` ahead when asked to
    /// [reserve](crate::Reserve::reserve); at most 1.1 years less the burst. Without it, a
    /// reservation waits no longer than in the limit's own queue.
    ///
    /// It is part of the limit because debts up to it are then believed; see the
    /// [module](self) on clocks.
    #[must_use]
    pub fn with_patience(self, longest_wait: Nanos) -> Self {
        let patience = ticks(Time::ZERO + longest_wait).min(HORIZON_TICKS - self.burst);
        Self { patience, ..self }.with_denials(self.denials)
    }

    /// The most permits whose intervals, one after the other, fit into `span`: a queue of
    /// so many keeps nobody waiting for longer.
    ///
    /// ```
    /// use ratekeeper_core::{Gcra, Nanos, Permits};
    /// let gcra = Gcra::token_bucket("20/1s".parse().unwrap()).unwrap();
    /// assert_eq!(gcra.paced_within(Nanos::from_millis(240)), Permits::new(4));
    /// ```
    pub fn paced_within(&self, span: Nanos) -> Permits {
        self.permits_in(ticks(Time::ZERO + span))
    }

    /// The most permits that wait in the limit's own queue, and how long the last of them
    /// does; zero if there is none.
    pub fn queue(&self) -> (Permits, Nanos) {
        (self.permits_in(self.queue), nanos_ceil(self.queue))
    }

    /// The deepest debt that allowed requests can leave.
    fn full(&self) -> u64 {
        self.burst + self.queue.max(self.patience)
    }

    pub(crate) fn name(&self) -> &'static str {
        if self.queue > 0 || self.permits_in(self.burst) == Permits::ONE {
            "leaky bucket"
        } else {
            "token bucket"
        }
    }

    /// What `decide` does, with a queue of `queue` ticks.
    #[expect(
        clippy::inline_always,
        reason = "copying the answer costs more than deciding"
    )]
    #[inline(always)]
    fn charge(&self, tat: &mut Tat, now: Time, cost: Permits, queue: u64) -> Decision {
        let now = ticks(now);
        let mut from = tat.0.max(now);
        if from - now > self.deepest {
            from = self.believed(now);
            *tat = Tat(from);
        }
        let price = self.interval.get().saturating_mul(u64::from(cost.get()));
        let limit = self.burst + queue;
        // Time ends at 2^64 ticks: no debt reaches beyond it.
        let to = match from.checked_add(price) {
            Some(to) if to - now <= limit => to,
            _ => return self.deny(tat, now, from, price, limit),
        };
        if price > 0 {
            *tat = Tat(to);
        }
        let verdict = match (to - now).saturating_sub(self.burst) {
            0 => Verdict::Allow,
            wait => Verdict::AllowAfter(nanos_ceil(wait)),
        };
        let remaining = self.left(now, to, limit);
        Decision {
            verdict,
            remaining,
            reset_after: nanos_ceil(to - now),
            more_after: self.more_after(now, to, limit, remaining),
        }
    }

    /// The time until one more than the `remaining` permits fit into the limit; zero if they
    /// never do, or would be paid for past the end of time.
    #[inline]
    fn more_after(&self, now: u64, to: u64, limit: u64, remaining: Permits) -> Nanos {
        let larger = u64::from(remaining.get()) + 1;
        let price = self.interval.get().saturating_mul(larger);
        match limit.checked_sub(price) {
            Some(spare) if to <= u64::MAX - price => nanos_ceil((to - now).saturating_sub(spare)),
            _ => Nanos::ZERO,
        }
    }

    /// What is left of the limit when the debt reaches `to`.
    #[inline]
    fn left(&self, now: u64, to: u64, limit: u64) -> Permits {
        let limit = limit.min(u64::MAX - now);
        self.permits_in(limit.saturating_sub(to - now))
    }

    /// The clock was set back, or the limit shrank: the deepest debt there can be is owed.
    #[cold]
    fn believed(&self, now: u64) -> u64 {
        now.saturating_add(self.deepest - CLOCK_SLACK_TICKS)
    }

    /// Down: what is left is whole permits only.
    #[inline]
    fn permits_in(&self, ticks: u64) -> Permits {
        let product = u128::from(ticks) * u128::from(self.reciprocal);
        let low = (product >> 64) as u64; // the upper half
        let more = u64::from(ticks - low * self.interval.get() >= self.interval.get());
        Permits::saturating_from(low + more) // one at most: see the field
    }
}

impl Algorithm for Gcra {
    type State = Tat;

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

    fn expires_at(&self, tat: &Tat) -> Time {
        Time::from_nanos(tat.0.div_ceil(1 << TICKS_PER_NANO_LOG2)) // up: not a tick too early
    }

    fn stricter(&self, tat: &mut Tat, other: &Tat) {
        *tat = (*tat).max(*other);
    }

    fn keeps_state_of(&self, _old: &Self) -> bool {
        true // the debt is time, so it holds at any rate
    }

    fn rescale(&self, tat: &mut Tat, old: &Self, now: Time) {
        promise::rescale(self, tat, old, now);
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(last) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let refilled = u128::from(last) << TICKS_PER_NANO_LOG2;
        let permits = (u128::from(self.full()) + refilled) / u128::from(self.interval.get());
        u64::try_from(permits).unwrap_or(u64::MAX)
    }

    /// Exact: what is granted one after the other is granted as if it were one cost.
    fn at_least(&self, tat: &Tat, now: Time, total: Permits) -> Nanos {
        let patient = self.with_patience(Nanos::MAX);
        let granted = patient.reserve(&mut { *tat }, now, total, Nanos::MAX);
        granted.verdict.wait().unwrap_or(Nanos::MAX)
    }
}

/// The end of time, 9.1 years, for all later moments: there every limit is shut.
#[inline]
fn ticks(time: Time) -> u64 {
    time.as_nanos().saturating_mul(1 << TICKS_PER_NANO_LOG2)
}

/// Up: who waits that long has waited enough.
fn nanos_ceil(ticks: u64) -> Nanos {
    Nanos::from_nanos(ticks.div_ceil(1 << TICKS_PER_NANO_LOG2))
}

#[cfg(test)]
mod tests;
