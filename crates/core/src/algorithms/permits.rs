//! Permits on loan: at most N at a time, each given back, or lost at its expiry.
//!
//! Not a rate but a level: how many are at work at once. Who holds permits names them, so
//! that giving back twice gives back once; who crashes with them loses them when the lease
//! ends.
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
//! `retry_after` is the least wait after which enough leases have ended if none is released
//! or renewed: at most so long.
//!
//! Protocols without a name for what they take (one more when a stream begins, one less when
//! it is done) use [`decide`](Algorithm::decide) and [`refund`](Refund::refund): what they
//! hold is counted in batches, by end, and the batch that ends first is given back first.
//!
//! ```text
//!   ends at     60   63.75  67.5 s  ..      lease 60 s, in sixteenths, rounded up
//!   anonymous   12     3      40            17 batches at most, however many permits
//! ```
//!
//! * State: 32 bytes, and 32 a lease or batch; nothing for a key never seen. At most N
//!   leases, N at most [`MAX_LEASES`]. Error: an anonymous permit may last a sixteenth of
//!   the lease longer, never less.
//! * Worst case: N at work at any moment, if every holder stops when its lease ends; a
//!   holder that works on after that is one more (and gives back what another took, if it
//!   has no name). In time there is no bound: short work may pass any number of times; what
//!   is never given back is at most N in a lease, which is what `bound` says.
//! * Choose it to protect what breaks under too many at once: connections, jobs, memory.
//!   Let `lease` be a little more than the longest work, and renew longer ones.
//! * [`Denials::Counted`] counts a denied anonymous request as at work too, above N if need
//!   be: for protocols that give back what was denied as well. A denied name holds nothing.
//!   A cost above N is never taken, so giving it back gives nothing.
//! * A clock that steps back finds leases that end later by the step, and never gains.
//! * Laws: all, but that a refund undoes a charge of the same instant. It gives back what
//!   ends first, not what came last: the holder of the first may have crashed, and then its
//!   permit must not take that of a living one with it.
//! * A semaphore that hands out N permits anew each period, as in Resilience4j and founding
//!   document 1, is a quota per fixed cycle: [`Window::fixed`](crate::Window::fixed).
//! * Source: C. Gray, D. Cheriton, "Leases" (1989); Stripe, "Scaling your API with rate
//!   limiters" (2017), for limiting by concurrency.

mod leases;
mod shared;

pub use leases::{LeaseId, Leases};

use crate::algorithm::{Algorithm, Denials, Lend, Refund};
use crate::{Decision, Error, Nanos, Permits, Time, Verdict};
use leases::{Backwards, Lease, MAX_BATCHES, PARTS};

/// The most permits a limit may lend: 320,000 bytes a key.
pub const MAX_LEASES: u32 = 10_000;

/// Clocks of racing threads differ by less; beyond, the clock was set.
const LATE: Nanos = Nanos::from_secs(10);

/// A limit of work at one time; see the [module](self) for the figure.
///
/// ```
/// use ratekeeper_core::{Concurrency, LeaseId, Leases, Nanos, Permits, Time, Verdict};
///
/// let limit = Concurrency::new(Permits::ONE, Nanos::from_secs(30)).unwrap();
/// let [a, b] = [1, 2].map(|id| LeaseId::from_bytes([id; 16]));
/// let (mut leases, one, now) = (Leases::default(), Permits::ONE, Time::ZERO);
/// assert_eq!(limit.acquire(&mut leases, now, a, one).verdict, Verdict::Allow);
/// let retry_after = Nanos::from_secs(30); // at the latest
/// let denied = limit.acquire(&mut leases, now, b, one);
/// assert_eq!(denied.verdict, Verdict::Deny { retry_after });
/// assert_eq!(limit.release(&mut leases, now, a), one);
/// assert_eq!(limit.release(&mut leases, now, a), Permits::ZERO);
/// assert_eq!(limit.acquire(&mut leases, now, b, one).verdict, Verdict::Allow);
/// ```
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
    pub fn new(permits: Permits, lease: Nanos) -> Result<Self, Error> {
        let permits = permits.get();
        match permits {
            0 => return Err(Error::NoPermits),
            1..=MAX_LEASES => {}
            _ => return Err(Error::TooManyLeases),
        }
        if lease == Nanos::ZERO {
            return Err(Error::NoSpan);
        }
        Ok(Self {
            permits,
            lease,
            denials: Denials::Free,
        })
    }

    /// The same limit with another price of anonymous denials.
    #[must_use]
    pub fn with_denials(self, denials: Denials) -> Self {
        Self { denials, ..self }
    }

    /// As many permits as the caller says, lent as long; denials cost what they did.
    pub(crate) fn with_permits(&self, permits: Permits) -> Result<Self, Error> {
        Ok(Self::new(permits, self.lease)?.with_denials(self.denials))
    }

    /// How long a permit is lent, at least.
    pub const fn lease(&self) -> Nanos {
        self.lease
    }

    /// What an anonymous denial costs.
    pub const fn denials(&self) -> Denials {
        self.denials
    }

    #[expect(clippy::unused_self, reason = "as every algorithm")]
    pub(crate) const fn name(&self) -> &'static str {
        "concurrency"
    }

    /// Lends `cost` permits to `id`, or none. A name that holds some holds more then, and
    /// all of them as long as the last.
    pub fn acquire(&self, leases: &mut Leases, now: Time, id: LeaseId, cost: Permits) -> Decision {
        let verdict = self.judge(leases, now, cost);
        if verdict.allows() && cost > Permits::ZERO {
            self.take(leases, now, Some(id), cost);
        }
        self.standing(leases, now, verdict)
    }

    /// Takes back what `id` holds; returns how many permits came back. A name that holds
    /// nothing, or not any more, changes nothing.
    pub fn release(&self, leases: &mut Leases, now: Time, id: LeaseId) -> Permits {
        match leases.find(id, now) {
            Some(at) => Permits::new(leases.remove(at).permits),
            None => Permits::ZERO,
        }
    }

    /// Lets the lease of `id` run its full length from now; returns how long that is. `None`
    /// if it has ended or was released: then the holder must acquire again.
    pub fn renew(&self, leases: &mut Leases, now: Time, id: LeaseId) -> Option<Nanos> {
        let at = leases.find(id, now)?;
        let lease = leases.remove(at);
        let ends = lease.ends.max(self.end(leases, now, lease.holder));
        leases.insert(Lease { ends, ..lease }, self.places());
        Some(ends.since(now))
    }

    /// Permits on loan at `now`; above [`capacity`](Algorithm::capacity) where denials are
    /// counted, or the limit was lowered.
    pub fn in_use(&self, leases: &Leases, now: Time) -> u64 {
        leases.held(now)
    }

    /// Whether `cost` more fit.
    fn judge(&self, leases: &Leases, now: Time, cost: Permits) -> Verdict {
        if cost == Permits::ZERO {
            return Verdict::Allow;
        }
        let Some(others) = self.permits.checked_sub(cost.get()) else {
            return Verdict::DenyForever;
        };
        let mut held = leases.held(now);
        if held <= u64::from(others) {
            return Verdict::Allow;
        }
        for lease in &leases.by_end[leases.ended(now)..] {
            held -= u64::from(lease.permits);
            if held <= u64::from(others) {
                let retry_after = lease.ends.since(now);
                return Verdict::Deny { retry_after };
            }
        }
        Verdict::Allow // not reached: when all have ended, nothing is held
    }

    fn take(&self, leases: &mut Leases, now: Time, holder: Option<LeaseId>, cost: Permits) {
        leases.drop_ended(now);
        let mut ends = self.end(leases, now, holder);
        let mut permits = cost.get();
        if let Some(at) = holder.and_then(|id| leases.find(id, now)) {
            let before = leases.remove(at);
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

    /// When a lease given at `now` ends. A clock behind that of others, by less than
    /// [`LATE`], gives what they gave.
    fn end(&self, leases: &Leases, now: Time, holder: Option<LeaseId>) -> Time {
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

    /// Up: no permit ends early.
    fn rounded(&self, end: Time) -> Time {
        let part = self.lease.as_nanos().div_ceil(PARTS); // up: no more parts than said
        let rounded = end.as_nanos().checked_next_multiple_of(part);
        rounded.map_or(Time::MAX, Time::from_nanos)
    }

    fn remaining(&self, leases: &Leases, now: Time) -> Permits {
        self.capacity() - Permits::saturating_from(leases.held(now))
    }

    fn standing(&self, leases: &Leases, now: Time, verdict: Verdict) -> Decision {
        Decision {
            verdict,
            remaining: self.remaining(leases, now),
            reset_after: leases.latest().since(now),
        }
    }

    /// The most leases and batches of one key.
    fn places(&self) -> usize {
        self.permits as usize + MAX_BATCHES
    }
}

impl Algorithm for Concurrency {
    type State = Leases;

    fn capacity(&self) -> Permits {
        Permits::new(self.permits)
    }

    fn look(&self, leases: &Leases, now: Time, cost: Permits) -> Decision {
        let verdict = self.judge(leases, now, cost);
        let denied = matches!(verdict, Verdict::Deny { .. });
        if denied && self.denials == Denials::Counted {
            return self.decide(&mut leases.clone(), now, cost);
        }
        let standing = self.standing(leases, now, verdict);
        if !verdict.allows() || cost == Permits::ZERO {
            return standing;
        }
        Decision {
            remaining: standing.remaining - cost,
            reset_after: self.end(leases, now, None).max(leases.latest()).since(now),
            ..standing
        }
    }

    /// Lends `cost` permits to nobody in particular.
    fn decide(&self, leases: &mut Leases, now: Time, cost: Permits) -> Decision {
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

    fn lend(&self, leases: &mut Leases, now: Time, cost: Permits, lend: Lend) -> Decision {
        match lend {
            Lend::Unnamed => self.decide(leases, now, cost),
            Lend::To(id) => self.acquire(leases, now, id, cost),
            Lend::Nothing => self.standing(leases, now, self.judge(leases, now, cost)),
        }
    }

    fn lapse(&self, leases: &mut Leases, now: Time) -> u64 {
        leases.drop_ended(now)
    }

    fn expires_at(&self, leases: &Leases) -> Time {
        leases.latest()
    }

    /// Permit by permit, from the one that ends last, the later end of the two; in batches,
    /// since names do not outlive a key that is pushed out.
    fn stricter(&self, leases: &mut Leases, other: &Leases) {
        let mut strict = Leases::default();
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

    /// A permit on loan is one, whatever the numbers, and ends when its holder was told.
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

impl Refund for Concurrency {
    /// Gives back anonymous permits, those that end first.
    fn refund(&self, leases: &mut Leases, now: Time, cost: Permits) {
        if cost > self.capacity() {
            return; // was never taken
        }
        let (mut left, mut at) = (cost.get(), leases.ended(now));
        while left > 0 && at < leases.by_end.len() {
            let lease = &mut leases.by_end[at];
            if lease.holder.is_some() {
                at += 1;
                continue;
            }
            let back = left.min(lease.permits);
            left -= back;
            lease.permits -= back;
            leases.sum -= u64::from(back);
            if lease.permits == 0 {
                leases.by_end.remove(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;
    use crate::laws::Random;
    use std::collections::HashMap;
    use std::vec::Vec;

    fn id(name: u8) -> LeaseId {
        LeaseId::from_bytes([name; 16])
    }

    fn at(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn limit(permits: u32) -> Concurrency {
        Concurrency::new(Permits::new(permits), Nanos::from_secs(16)).unwrap()
    }

    /// What is done to a key in a story.
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Acquire(u8, u32),
        Release(u8),
        Renew(u8),
        Take(u32),
        GiveBack(u32),
    }
    use Act::{Acquire, GiveBack, Release, Renew, Take};

    /// One row: at so many seconds, the act; then how many came back or were granted, the
    /// wait in seconds if denied, and how many are left.
    type Row = (u64, Act, Result<u32, u64>, u32);

    fn check(limit: Concurrency, rows: &[Row]) {
        let mut leases = Leases::default();
        for &(now, act, expected, left) in rows {
            let now = at(now);
            let granted = |decision: Decision, cost| match decision.verdict {
                Verdict::Allow => Ok(cost),
                Verdict::Deny { retry_after } => Err(retry_after.as_secs_ceil()),
                _ => Err(u64::MAX),
            };
            let done = match act {
                Acquire(name, cost) => {
                    let cost = Permits::new(cost);
                    granted(limit.acquire(&mut leases, now, id(name), cost), cost.get())
                }
                Release(name) => Ok(limit.release(&mut leases, now, id(name)).get()),
                Renew(name) => Ok(u32::from(limit.renew(&mut leases, now, id(name)).is_some())),
                Take(cost) => {
                    let decision = limit.decide(&mut leases, now, Permits::new(cost));
                    granted(decision, cost)
                }
                GiveBack(cost) => {
                    limit.refund(&mut leases, now, Permits::new(cost));
                    Ok(cost)
                }
            };
            assert_eq!(done, expected, "{act:?} at {now:?}");
            let standing = limit.look(&leases, now, Permits::ZERO);
            assert_eq!(standing.remaining.get(), left, "{act:?} at {now:?}");
            assert!(leases.by_end.is_sorted() && leases.by_end.capacity() <= limit.places());
        }
    }

    const NEVER: u64 = u64::MAX;

    #[test]
    fn a_permit_comes_back_by_release_or_by_expiry() {
        check(
            limit(2),
            &[
                (0, Acquire(1, 1), Ok(1), 1),
                (3, Acquire(2, 1), Ok(1), 0),
                (4, Acquire(3, 1), Err(12), 0),
                (5, Release(2), Ok(1), 1),
                (5, Acquire(3, 1), Ok(1), 0),
                (15, Acquire(4, 1), Err(1), 0), // the holder of 1 has crashed
                (16, Acquire(4, 2), Err(5), 1),
                (16, Acquire(4, 1), Ok(1), 0),
            ],
        );
    }

    #[test]
    fn releasing_twice_gives_back_once() {
        check(
            limit(3),
            &[
                (0, Acquire(1, 2), Ok(2), 1),
                (0, Acquire(2, 1), Ok(1), 0),
                (1, Release(1), Ok(2), 2),
                (1, Release(1), Ok(0), 2),
                (1, Release(9), Ok(0), 2),
                (16, Release(2), Ok(0), 3), // it has ended: nothing is left to give back
            ],
        );
    }

    #[test]
    fn a_renewed_lease_runs_on_and_an_ended_one_is_gone() {
        check(
            limit(1),
            &[
                (0, Acquire(1, 1), Ok(1), 0),
                (15, Renew(1), Ok(1), 0),
                (30, Acquire(2, 1), Err(1), 0),
                (31, Renew(1), Ok(0), 1),
                (31, Acquire(2, 1), Ok(1), 0),
            ],
        );
    }

    #[test]
    fn all_of_a_cost_is_lent_or_none_and_a_name_may_take_more() {
        check(
            limit(3),
            &[
                (0, Acquire(1, 2), Ok(2), 1),
                (1, Acquire(2, 2), Err(15), 1),
                (1, Acquire(2, 4), Err(NEVER), 1),
                (2, Acquire(1, 1), Ok(1), 0),
                (17, Acquire(2, 1), Err(1), 0), // all of them run as long as the last
                (17, Release(1), Ok(3), 3),
                (17, Acquire(2, 0), Ok(0), 3),
            ],
        );
    }

    #[test]
    fn without_a_name_what_ends_first_comes_back_first() {
        check(
            limit(3),
            &[
                (0, Take(1), Ok(1), 2), // its holder has crashed
                (5, Take(2), Ok(2), 0), // one of these is done at 6
                (6, GiveBack(1), Ok(1), 1),
                (16, Take(2), Err(5), 1), // so nothing ends before 21
                (21, Take(3), Ok(3), 0),
                (22, GiveBack(3), Ok(3), 3),
                (22, GiveBack(1), Ok(1), 3),
            ],
        );
    }

    #[test]
    fn names_and_the_nameless_share_the_permits_and_give_back_their_own() {
        check(
            limit(3),
            &[
                (0, Acquire(1, 1), Ok(1), 2),
                (0, Take(1), Ok(1), 1),
                (0, GiveBack(2), Ok(2), 2),
                (0, GiveBack(2), Ok(2), 2),
                (0, Release(1), Ok(1), 3),
            ],
        );
    }

    #[test]
    fn counted_denials_are_given_back_without_a_loss() {
        let counted = limit(2).with_denials(Denials::Counted);
        check(
            counted,
            &[
                (0, Take(2), Ok(2), 0),
                (1, Take(1), Err(15), 0), // three at work, this one too: two end at 16
                (1, Take(1), Err(16), 0), // four: that is not enough
                (1, Take(3), Err(NEVER), 0), // never taken, and so
                (1, GiveBack(3), Ok(3), 0), // nothing to give back
                (1, Acquire(1, 1), Err(16), 0), // a name that is denied holds nothing
                (2, GiveBack(2), Ok(2), 0),
                (2, GiveBack(1), Ok(1), 1),
                (2, GiveBack(1), Ok(1), 2),
            ],
        );
    }

    #[test]
    fn batches_stay_few_however_many_the_permits() {
        let limit = limit(MAX_LEASES).with_denials(Denials::Counted);
        let mut leases = Leases::default();
        let mut random = Random::new(3);
        let mut now = Time::ZERO;
        for _ in 0..50_000 {
            now = now + Nanos::from_millis(random.below(40));
            // A clock far behind, for a while: what it gives ends at other moments.
            let far = Nanos::from_secs(100 * random.below(2));
            let _ = limit.decide(&mut leases, now - far, Permits::new(20));
            assert!(leases.by_end.len() <= MAX_BATCHES);
        }
        assert_eq!(leases.sum, leases.held(Time::ZERO));
    }

    #[test]
    fn a_lower_limit_keeps_what_is_on_loan() {
        let (wide, narrow, mut leases) = (limit(5), limit(2), Leases::default());
        let _ = wide.acquire(&mut leases, at(0), id(1), Permits::new(4));
        assert!(narrow.keeps_state_of(&wide));
        let denied = narrow.look(&leases, at(1), Permits::ONE);
        assert_eq!(denied.verdict.retry_after(), Some(Nanos::from_secs(15)));
        assert_eq!(narrow.in_use(&leases, at(1)), 4);
        assert_eq!(narrow.release(&mut leases, at(1), id(1)), Permits::new(4));
    }

    #[test]
    fn what_lapses_is_told_once() {
        let (limit, mut leases) = (limit(5), Leases::default());
        let _ = limit.acquire(&mut leases, at(0), id(1), Permits::new(2));
        let _ = limit.acquire(&mut leases, at(1), id(2), Permits::new(3));
        assert_eq!(limit.lapse(&mut leases, at(15)), 0);
        assert_eq!(limit.lapse(&mut leases, at(16)), 2);
        assert_eq!(limit.lapse(&mut leases, at(60)), 3);
        assert_eq!(leases, Leases::default());
    }

    #[test]
    fn looking_lends_nothing() {
        let (limit, mut leases) = (limit(1), Leases::default());
        let mut ask = |lend| limit.lend(&mut leases, at(0), Permits::ONE, lend).verdict;
        assert_eq!(ask(Lend::Nothing), Verdict::Allow);
        assert_eq!(ask(Lend::To(id(1))), Verdict::Allow);
        assert!(!ask(Lend::Nothing).allows());
        assert!(!ask(Lend::Unnamed).allows());
    }

    #[test]
    fn agrees_with_a_map_of_names() {
        let mut random = Random::new(8);
        let limit = limit(4);
        let (mut leases, mut map) = (Leases::default(), HashMap::<LeaseId, (Time, u32)>::new());
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now = now + Nanos::from_millis(random.below(5_000));
            let name = id(u8::try_from(random.below(7)).unwrap());
            map.retain(|_, (ends, _)| *ends > now);
            let ends = now + limit.lease();
            let held = |then: Time| -> u32 {
                let live = map.values().filter(|(ends, _)| *ends > then);
                live.map(|(_, permits)| permits).sum()
            };
            match random.below(4) {
                0 => {
                    let back = map.remove(&name).map_or(0, |(_, permits)| permits);
                    let released = limit.release(&mut leases, now, name);
                    assert_eq!(released, Permits::new(back));
                }
                1 => {
                    let renewed = map.get_mut(&name).map(|(at, _)| {
                        *at = ends;
                        limit.lease()
                    });
                    assert_eq!(limit.renew(&mut leases, now, name), renewed);
                }
                _ => {
                    let cost = u32::try_from(random.below(4)).unwrap();
                    let decision = limit.acquire(&mut leases, now, name, Permits::new(cost));
                    let fits = cost == 0 || held(now) + cost <= 4;
                    assert_eq!(decision.verdict.allows(), fits, "{cost} {map:?}");
                    if let Some(wait) = decision.verdict.retry_after() {
                        assert!(held(now + wait) + cost <= 4);
                        assert!(held(now + wait - Nanos::from_nanos(1)) + cost > 4);
                    }
                    if fits && cost > 0 {
                        let lease = map.entry(name).or_insert((ends, 0));
                        *lease = (ends, lease.1 + cost);
                    }
                    let held: u32 = map.values().map(|(_, permits)| permits).sum();
                    assert_eq!(decision.remaining.get(), 4 - held);
                }
            }
        }
    }

    #[test]
    fn without_names_agrees_with_a_list_that_never_ends_early() {
        let mut random = Random::new(11);
        let limit = limit(6);
        // Each permit's end, and that rounded up to a sixteenth of the lease: a second.
        let (mut leases, mut list) = (Leases::default(), Vec::<Time>::new());
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now = now + Nanos::from_millis(random.below(4_000));
            list.retain(|ends| *ends > now);
            let cost = u32::try_from(random.below(4)).unwrap();
            if random.below(3) == 0 {
                limit.refund(&mut leases, now, Permits::new(cost));
                list.drain(..list.len().min(cost as usize));
                continue;
            }
            let fits = cost == 0 || list.len() + cost as usize <= 6;
            let decision = limit.decide(&mut leases, now, Permits::new(cost));
            assert_eq!(decision.verdict.allows(), fits);
            if fits {
                let ends = at((now + limit.lease()).as_nanos().div_ceil(1_000_000_000));
                list.extend(std::iter::repeat_n(ends, cost as usize));
            }
            assert_eq!(decision.remaining.get() as usize, 6 - list.len());
        }
    }

    #[test]
    fn permits_handed_out_anew_each_period_are_a_fixed_window() {
        let mut random = Random::new(9);
        let window = Window::fixed("7/1s".parse().unwrap(), Nanos::ZERO).unwrap();
        let (mut state, mut permits, mut period) = (crate::WindowState::default(), 7, 0);
        let mut now = 0;
        for _ in 0..10_000 {
            now += random.below(300_000_000);
            if now / 1_000_000_000 > period {
                (period, permits) = (now / 1_000_000_000, 7);
            }
            let cost = random.below(4);
            let fits = cost <= permits;
            permits -= if fits { cost } else { 0 };
            let decision = window.decide(
                &mut state,
                Time::from_nanos(now),
                Permits::saturating_from(cost),
            );
            assert_eq!(decision.verdict.allows(), fits);
            assert_eq!(u64::from(decision.remaining.get()), permits);
        }
    }

    #[test]
    fn parameters_that_make_no_sense_are_refused() {
        let new = |permits, ttl| Concurrency::new(Permits::new(permits), ttl);
        assert_eq!(new(0, Nanos::SECOND), Err(Error::NoPermits));
        assert_eq!(new(10_001, Nanos::SECOND), Err(Error::TooManyLeases));
        assert_eq!(new(1, Nanos::ZERO), Err(Error::NoSpan));
    }
}
