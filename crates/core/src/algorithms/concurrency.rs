//! Permits on loan: at most N at a time, each given back, or lost at its expiry.
//!
//! Limits not a rate but a level: the number of permits at work at once. Holders name their
//! permits, so that giving back twice gives back once; a holder that crashes loses its permits
//! when the lease ends.
//!
//! ```text
//!   N = 3    a |=========x release
//!            b |====~~~~~~~~~~~~~o            o the lease ends: b's holder crashed,
//!            c   |======r=========~~~~~o        or is late; r renewed, which moves the end
//!            d |              |=======x
//!            e      deny ---->| one is free again
//!          ----+---+----------+--------------> time
//! ```
//!
//! Allow iff `permits of leases not ended + cost <= N`; then the cost is lent for `lease`.
//!
//! `retry_after` is an estimate. Once a name has released its permits:
//!
//! ```text
//!   retry_after = min(mean hold * permits missing / permits held, wait until leases end)
//! ```
//!
//! With 10 held for 2 s each, one comes back every 0.2 s. The mean is over the key's last
//! eight to sixteen named leases, and is kept for the length of a lease after the last
//! release. Before the first release, and for anonymous permits alone, all that is known is how
//! long the present permits have been held. Then it is that long again, at least a second:
//!
//! ```text
//!   retry_after = min(max(mean age * permits missing, 1 s), wait until leases end)
//! ```
//!
//! So a client waits for 1, 1, 2, 4, .. s, and comes at most twice as late as it could have.
//!
//! Protocols without names for their permits (one more when a stream begins, one less when it is
//! done) use [`decide`](Algorithm::decide) and [`refund`](crate::Refund::refund): their permits
//! are counted in batches, by end, and the batch that ends first is given back first.
//!
//! ```text
//!   ends at     60   63.75  67.5 s  ..      lease 60 s, in sixteenths, rounded up
//!   anonymous   12     3      40            17 batches at most, however many permits
//! ```
//!
//! * State: 56 bytes, and 32 a lease or batch; nothing for a key never seen. At most N
//!   leases, N at most [`MAX_LEASES`]. Error: an anonymous permit may last a sixteenth of
//!   the lease longer, never less.
//! * Worst case: N at work at any moment, if every holder stops when its lease ends; a holder
//!   that works on after that is one more (and gives back another's permits, if it has no name).
//!   No bound holds for a span of time, because short work may pass any number of times. If no
//!   permit is ever given back, at most N pass in a lease, which is the value of `bound`.
//! * Choose it to protect resources that break under too many at once: connections, jobs, memory.
//!   Let `lease` be a little more than the longest work, and renew longer ones.
//! * [`Denials::Counted`] counts a denied anonymous request as at work too, above N if need be:
//!   for protocols that give back denied requests as well. A denied name holds nothing. A cost
//!   above N is never taken, so giving it back gives nothing.
//! * A clock that steps back finds leases that end later by the step, and never gains.
//! * Laws: all, except that `retry_after` is exact, and that a refund undoes a charge of the same
//!   instant. It gives back the permits that end first, not the last ones charged: the holder of
//!   the first may have crashed, and then the end of its lease must not take the permit of a living
//!   holder.
//! * A semaphore that hands out N permits anew each period, as in Resilience4j and founding
//!   document 1, is a quota per fixed cycle: [`Window::fixed`](crate::Window::fixed).
//! * Source: C. Gray, D. Cheriton, "Leases" (1989); Stripe, "Scaling your API with rate
//!   limiters" (2017), for limiting by concurrency.

mod leases;
mod loans;
mod reconfigure;
mod stored_form;

pub use leases::{ConcurrencyState, LeaseId};

use crate::algorithm::{Algorithm, Denials, Lend};
use crate::{Decision, Error, Nanos, Permits, Time, Verdict};
use leases::{Backwards, Lease, PARTS};

/// Maximum number of permits that a limit may lend: 320,000 bytes a key.
pub const MAX_LEASES: u32 = 10_000;

/// The shortest wait before any permit came back, as `Retry-After` has whole seconds.
const SHORTEST_GUESS: Nanos = Nanos::SECOND;

/// Clocks of racing threads differ by less; beyond this, the clock was set.
const LATE: Nanos = Nanos::from_secs(10);

/// A limit of work at one time; see the [module](self) for the figure.
///
/// ```
/// use ratekeeper_core::{Concurrency, LeaseId, ConcurrencyState, Nanos, Permits, Time, Verdict};
///
/// let limit = Concurrency::new(Permits::ONE, Nanos::from_secs(30)).unwrap();
/// let [a, b] = [1, 2].map(|id| LeaseId::from_bytes([id; 16]));
/// let (mut leases, one, now) = (ConcurrencyState::default(), Permits::ONE, Time::ZERO);
/// assert_eq!(limit.acquire(&mut leases, now, a, one).verdict, Verdict::Allow);
/// let retry_after = Nanos::from_secs(1); // nothing is known yet
/// let denied = limit.acquire(&mut leases, now, b, one);
/// assert_eq!(denied.verdict, Verdict::Deny { retry_after });
/// assert_eq!(limit.release(&mut leases, now, a), one);
/// assert_eq!(limit.release(&mut leases, now, a), Permits::ZERO);
/// assert_eq!(limit.acquire(&mut leases, now, b, one).verdict, Verdict::Allow);
/// ```
#[doc(alias("semaphore", "bulkhead"))]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Concurrency {
    /// N: 1 to [`MAX_LEASES`].
    permits: u32,
    /// How long a lease runs.
    lease: Nanos,
    denials: Denials,
}

impl Concurrency {
    /// At most `permits` on loan at a time, each for `lease` unless renewed.
    ///
    /// # Errors
    /// [`Error::NoPermits`] and [`Error::NoSpan`] for zeros, [`Error::TooManyLeases`] for
    /// more than [`MAX_LEASES`].
    pub fn new(permits: impl Into<Permits>, lease: impl Into<Nanos>) -> Result<Self, Error> {
        let lease = lease.into();
        let permits = match u32::try_from(permits.into().get()) {
            Ok(0) => return Err(Error::NoPermits),
            Ok(permits @ 1..=MAX_LEASES) => permits,
            _ => return Err(Error::TooManyLeases),
        };
        if lease == Nanos::ZERO {
            return Err(Error::NoSpan);
        }
        Ok(Self {
            permits,
            lease,
            denials: Denials::Free,
        })
    }

    /// The same limit with another cost of anonymous denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// How long a permit is lent, at least.
    pub const fn lease(&self) -> Nanos {
        self.lease
    }

    /// Lends `cost` permits to `id`, or none. If `id` holds permits already, they are added, and
    /// all of them run as long as the last.
    pub fn acquire(
        &self,
        leases: &mut ConcurrencyState,
        now: Time,
        id: LeaseId,
        cost: Permits,
    ) -> Decision {
        let verdict = self.judge(leases, now, cost);
        if verdict.allows() && cost > Permits::ZERO {
            self.take(leases, now, Some(id), cost);
        }
        self.standing(leases, now, verdict)
    }

    /// Permits on loan at `now`; above [`capacity`](Algorithm::capacity) where denials are
    /// counted, or the limit was lowered.
    pub fn in_use(&self, leases: &ConcurrencyState, now: Time) -> u64 {
        leases.in_use(now)
    }

    /// Returns the verdict on `cost` more permits.
    fn judge(&self, leases: &ConcurrencyState, now: Time, cost: Permits) -> Verdict {
        if cost == Permits::ZERO {
            return Verdict::Allow;
        }
        if cost > self.capacity() {
            return Verdict::DenyForever;
        }
        match self.freed(leases, now, cost) {
            Nanos::ZERO => Verdict::Allow,
            ended => {
                let held = leases.in_use(now);
                let missing = (held + cost.get()).saturating_sub(self.permits.into());
                let estimate = leases.held.estimate(missing, held);
                let estimate = estimate.unwrap_or_else(|| self.as_long_again(leases, now, missing));
                let retry_after = estimate.min(ended);
                Verdict::Deny { retry_after }
            }
        }
    }

    /// The estimate before the first release: the mean time that the present permits have been
    /// held, for each that is missing.
    fn as_long_again(&self, leases: &ConcurrencyState, now: Time, missing: u64) -> Nanos {
        let (mut ages, mut held) = (0, 0);
        for lease in &leases.by_end[leases.ended(now)..] {
            let permits = u128::from(lease.permits);
            ages += u128::from(self.held_for(lease, now).as_nanos()) * permits;
            held += permits;
        }
        let wait = (ages * u128::from(missing)).div_ceil(held.max(1)); // up: rather late
        Nanos::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)).max(SHORTEST_GUESS)
    }

    /// The time until enough leases have ended for `cost`; zero if it fits, or never does.
    fn freed(&self, leases: &ConcurrencyState, now: Time, cost: Permits) -> Nanos {
        let Some(others) = u64::from(self.permits).checked_sub(cost.get()) else {
            return Nanos::ZERO;
        };
        let mut held = leases.in_use(now);
        if held <= others {
            return Nanos::ZERO;
        }
        for lease in &leases.by_end[leases.ended(now)..] {
            held -= u64::from(lease.permits);
            if held <= others {
                return lease.ends.since(now);
            }
        }
        Nanos::ZERO // not reached: when all have ended, nothing is held
    }

    fn take(
        &self,
        leases: &mut ConcurrencyState,
        now: Time,
        holder: Option<LeaseId>,
        cost: Permits,
    ) {
        leases.drop_ended(now);
        let mut ends = self.end(leases, now, holder);
        let mut permits = u32::try_from(cost.get()).unwrap_or(u32::MAX); // at most N
        if let Some(at) = holder.and_then(|id| leases.find(id, now)) {
            let before = leases.remove(at);
            leases.held.renewed(self.held_for(&before, now));
            ends = ends.max(before.ends);
            permits = permits.saturating_add(before.permits);
        }
        let lease = Lease {
            ends,
            holder,
            permits,
        };
        leases.insert(lease, self.places());
        if holder.is_none() {
            leases.merge_batches();
        }
    }

    /// The end of a lease given at `now`. A clock behind other clocks, by less than [`LATE`],
    /// gives the same end as they did.
    fn end(&self, leases: &ConcurrencyState, now: Time, holder: Option<LeaseId>) -> Time {
        let until = now + self.lease;
        let own = match holder {
            Some(_) => until,
            None => self.rounded(until),
        };
        let latest = leases.latest();
        if latest > own && latest <= self.rounded(until + LATE) {
            latest
        } else {
            own
        }
    }

    /// Rounds up, so that no permit ends early.
    fn rounded(&self, end: Time) -> Time {
        let part = self.lease.as_nanos().div_ceil(PARTS); // up: no more parts than said
        let rounded = end.as_nanos().checked_next_multiple_of(part);
        rounded.map_or(Time::MAX, Time::from_nanos)
    }

    fn remaining(&self, leases: &ConcurrencyState, now: Time) -> Permits {
        self.capacity() - Permits::new(leases.in_use(now))
    }

    fn standing(&self, leases: &ConcurrencyState, now: Time, verdict: Verdict) -> Decision {
        let remaining = self.remaining(leases, now);
        Decision {
            verdict,
            remaining,
            reset_after: leases.latest().since(now),
            more_after: self.freed(leases, now, remaining + Permits::ONE),
        }
    }
}

impl Algorithm for Concurrency {
    type State = ConcurrencyState;

    fn name(&self) -> &'static str {
        "concurrency"
    }

    /// The cost of an anonymous denial.
    fn denials(&self) -> Denials {
        self.denials
    }

    fn capacity(&self) -> Permits {
        Permits::new(self.permits.into())
    }

    fn look(&self, leases: &ConcurrencyState, now: Time, cost: Permits) -> Decision {
        let verdict = self.judge(leases, now, cost);
        let denied = matches!(verdict, Verdict::Deny { .. });
        if denied && self.denials == Denials::Counted {
            return self.decide(&mut leases.clone(), now, cost);
        }
        let standing = self.standing(leases, now, verdict);
        if !verdict.allows() || cost == Permits::ZERO {
            return standing;
        }
        let end = self.end(leases, now, None);
        let first = leases.by_end.get(leases.ended(now));
        let first = first.map_or(end, |lease| lease.ends.min(end));
        Decision {
            remaining: standing.remaining - cost,
            reset_after: end.max(leases.latest()).since(now),
            more_after: first.since(now),
            ..standing
        }
    }

    /// Lends `cost` anonymous permits.
    fn decide(&self, leases: &mut ConcurrencyState, now: Time, cost: Permits) -> Decision {
        let mut verdict = self.judge(leases, now, cost);
        let denied = matches!(verdict, Verdict::Deny { .. });
        let counted = denied && self.denials == Denials::Counted;
        if cost > Permits::ZERO && (verdict.allows() || counted) {
            self.take(leases, now, None, cost);
        }
        if counted {
            verdict = self.judge(leases, now, cost);
        }
        self.standing(leases, now, verdict)
    }

    fn lend(
        &self,
        leases: &mut ConcurrencyState,
        now: Time,
        cost: Permits,
        lend: Lend,
    ) -> Decision {
        match lend {
            Lend::Unnamed => self.decide(leases, now, cost),
            Lend::To(id) => self.acquire(leases, now, id, cost),
            Lend::Nothing => self.standing(leases, now, self.judge(leases, now, cost)),
        }
    }

    fn lapse(&self, leases: &mut ConcurrencyState, now: Time) -> u64 {
        leases.drop_ended(now)
    }

    fn expires_at(&self, leases: &ConcurrencyState, _now: Time) -> Time {
        leases.latest().max(leases.held.until)
    }

    /// Keeps the later end of the two, permit by permit from the one that ends last; in batches,
    /// because names do not outlive an evicted key.
    fn stricter(&self, leases: &mut ConcurrencyState, other: &ConcurrencyState) {
        let mut strict = ConcurrencyState::default();
        let (mut mine, mut theirs) = (Backwards::new(leases), Backwards::new(other));
        loop {
            let permits = match (mine.permits(), theirs.permits()) {
                (None, None) => break,
                (Some(permits), None) | (None, Some(permits)) => permits,
                (Some(mine), Some(theirs)) => mine.min(theirs),
            };
            let ends = mine.take(permits).max(theirs.take(permits));
            let batch = Lease {
                ends: self.rounded(ends),
                holder: None,
                permits,
            };
            strict.insert(batch, self.places());
        }
        strict.merge_batches();
        *leases = strict;
    }

    /// A permit on loan is one under any numbers, and ends at the moment given to its holder.
    fn keeps_state_of(&self, _old: &Self) -> bool {
        true
    }

    fn bound(&self, window: Nanos) -> u64 {
        let leases = window.as_nanos().div_ceil(self.lease.as_nanos()); // up: a part holds N
        u64::from(self.permits).saturating_mul(leases)
    }

    fn heap_bytes(&self) -> usize {
        self.places() * size_of::<Lease>()
    }
}

#[cfg(test)]
mod tests;
