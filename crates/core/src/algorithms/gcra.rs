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
//! * A clock that steps back leaves a debt longer than a full burst; it is cut to the full
//!   burst, and the cut is kept, so that no caller is locked out longer than the limit says.
//! * Source: ITU-T I.371 (1996), annex A; T. Finch, "GCRA: leaky buckets without the
//!   buckets" (2024); J. Turner, "New directions in communications" (1986) for the meter.

use core::num::NonZeroU64;

use crate::algorithm::{Algorithm, Denials, Reserve, Word};
use crate::quota::{HORIZON_TICKS, TICKS_PER_NANO_LOG2};
use crate::{Decision, Error, Nanos, Permits, Quota, Time, Verdict};

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
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Gcra {
    /// T: ticks between two permits.
    interval: NonZeroU64,
    /// burst x T.
    burst: u64,
    /// queue x T.
    queue: u64,
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
        Ok(Self {
            interval,
            burst,
            queue,
            denials: Denials::Free,
        })
    }

    /// The same limit with another price of denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    pub(crate) const fn name(&self) -> &'static str {
        if self.queue > 0 {
            "leaky bucket"
        } else {
            "token bucket"
        }
    }

    /// What `decide` does, with a queue of `queue` ticks.
    fn charge(&self, tat: &mut Tat, now: Time, cost: Permits, queue: u64) -> Decision {
        let now = ticks(now);
        let limit = self.burst.saturating_add(queue);
        // The deepest debt there can be; a deeper one comes from a clock that stepped back
        // or from a limit that shrank.
        let deepest = match self.denials {
            Denials::Free => limit,
            Denials::Counted => limit.saturating_mul(2),
        };
        let mut debt = tat.0.saturating_sub(now);
        if debt > deepest {
            debt = deepest;
            *tat = Tat(now.saturating_add(debt));
        }
        let charged = self
            .interval
            .get()
            .checked_mul(u64::from(cost.get()))
            .and_then(|ticks| ticks.checked_add(debt))
            .unwrap_or(u64::MAX);

        if charged <= limit && now.checked_add(charged).is_some() {
            if cost != Permits::ZERO {
                *tat = Tat(now + charged);
            }
            let verdict = match charged.saturating_sub(self.burst) {
                0 => Verdict::Allow,
                wait => Verdict::AllowAfter(nanos_ceil(wait)),
            };
            return self.decision(verdict, charged, limit);
        }
        if charged - debt > limit {
            return self.decision(Verdict::DenyForever, debt, limit);
        }
        if self.denials == Denials::Counted {
            debt = charged.min(deepest);
            *tat = Tat(now.saturating_add(debt));
        }
        let overshoot = debt + self.interval.get() * u64::from(cost.get()) - limit;
        let retry_after = nanos_ceil(overshoot);
        self.decision(Verdict::Deny { retry_after }, debt, limit)
    }

    /// The time that grants `remaining` anew, at least that to the next permit.
    pub(crate) fn effective_window(&self, decision: &Decision) -> Nanos {
        let remaining = u64::from(decision.remaining.get());
        let anew = self.interval.get().saturating_mul(remaining);
        let debt = decision
            .reset_after
            .as_nanos()
            .saturating_mul(1 << TICKS_PER_NANO_LOG2);
        let full = self.burst.saturating_add(self.queue);
        let next = debt
            .saturating_add(self.interval.get())
            .saturating_sub(full);
        nanos_ceil(anew.max(next))
    }

    fn decision(&self, verdict: Verdict, debt: u64, limit: u64) -> Decision {
        Decision {
            verdict,
            // Down: what is left is whole permits only.
            remaining: Permits::saturating_from(limit.saturating_sub(debt) / self.interval),
            reset_after: nanos_ceil(debt),
        }
    }
}

impl Algorithm for Gcra {
    type State = Tat;

    fn capacity(&self) -> Permits {
        Permits::saturating_from((self.burst + self.queue) / self.interval)
    }

    #[inline]
    fn decide(&self, tat: &mut Tat, now: Time, cost: Permits) -> Decision {
        self.charge(tat, now, cost, self.queue)
    }

    fn refund(&self, tat: &mut Tat, now: Time, cost: Permits) {
        let back = self.interval.get().saturating_mul(u64::from(cost.get()));
        *tat = Tat(tat.0.saturating_sub(back).max(tat.0.min(ticks(now))));
    }

    fn expires_at(&self, tat: &Tat) -> Time {
        Time::from_nanos(tat.0.div_ceil(1 << TICKS_PER_NANO_LOG2)) // up: not a tick too early
    }

    fn stricter(&self, tat: &mut Tat, other: &Tat) {
        *tat = (*tat).max(*other);
    }

    /// The debt is time, so it holds at any rate.
    fn keeps_state_of(&self, _old: &Self) -> bool {
        true
    }

    fn bound(&self, window: Nanos) -> u64 {
        let Some(last) = window.as_nanos().checked_sub(1) else {
            return 0;
        };
        let refilled = (u128::from(last) << TICKS_PER_NANO_LOG2) / u128::from(self.interval.get());
        let burst = (self.burst + self.queue) / self.interval;
        burst.saturating_add(u64::try_from(refilled).unwrap_or(u64::MAX))
    }
}

impl Reserve for Gcra {
    fn reserve(&self, tat: &mut Tat, now: Time, cost: Permits, max_wait: Nanos) -> Decision {
        let queue = max_wait
            .as_nanos()
            .min(HORIZON_TICKS >> TICKS_PER_NANO_LOG2);
        self.charge(tat, now, cost, queue << TICKS_PER_NANO_LOG2)
    }
}

/// Saturates at 9.1 years, where every limit is shut.
fn ticks(time: Time) -> u64 {
    time.as_nanos().min(u64::MAX >> TICKS_PER_NANO_LOG2) << TICKS_PER_NANO_LOG2
}

/// Up: who waits that long has waited enough.
fn nanos_ceil(ticks: u64) -> Nanos {
    Nanos::from_nanos(ticks.div_ceil(1 << TICKS_PER_NANO_LOG2))
}
