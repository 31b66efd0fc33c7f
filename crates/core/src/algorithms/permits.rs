//! Permits on loan: at most N at a time, each given back, or lost at its expiry.
//!
//! Not a rate but a level: how many are at work at once. Who holds a permit names it, so
//! that giving back twice gives back once; who crashes with it loses it when the lease ends.
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
//! Allow iff `leases not ended + asked <= N`; then each name holds a lease of `ttl`. A name
//! that holds one already renews it and takes no other. `retry_after` is the least wait
//! after which enough leases have ended if none is released or renewed: at most so long.
//!
//! * State: 24 bytes a lease, N at most, nothing for a key never seen. N is bounded by
//!   [`MAX_LEASES`]. Error: none.
//! * Worst case: N at work at any moment, if every holder stops when its lease ends; a
//!   holder that works on after that is one more. In time there is no bound: short work may
//!   pass any number of times.
//! * Choose it to protect what breaks under too many at once: connections, jobs, memory.
//!   Let `ttl` be a little more than the longest work, and renew longer ones.
//! * A clock that steps back finds leases that end later by the step, and never gains.
//! * It is no [`Algorithm`](crate::Algorithm): a permit has a name, and comes back by it.
//! * A semaphore that hands out N permits anew each period, as in Resilience4j and founding
//!   document 1, is a quota per fixed cycle: [`Window::fixed`](crate::Window::fixed).
//! * Source: C. Gray, D. Cheriton, "Leases" (1989); Stripe, "Scaling your API with rate
//!   limiters" (2017), for limiting by concurrency.

use alloc::vec::Vec;

use crate::{Decision, Error, Nanos, Permits, Time, Verdict};

/// The most permits a limit may lend: 240,000 bytes a key.
pub const MAX_LEASES: u32 = 10_000;

/// The name of a permit on loan; unique among those of a key, chosen by its holder.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LeaseId([u8; 16]);

impl LeaseId {
    /// The name with these bytes: a random number, a request id, a UUID.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// A limit of work at one time; see the [module](self) for the figure.
///
/// ```
/// use ratekeeper_core::{Concurrency, LeaseId, Leases, Nanos, Permits, Time, Verdict};
///
/// let limit = Concurrency::new(Permits::ONE, Nanos::from_secs(30)).unwrap();
/// let [a, b] = [1, 2].map(|id| LeaseId::from_bytes([id; 16]));
/// let mut leases = Leases::default();
/// assert_eq!(limit.acquire(&mut leases, Time::ZERO, &[a]).verdict, Verdict::Allow);
/// let retry_after = Nanos::from_secs(30); // at the latest
/// let denied = limit.acquire(&mut leases, Time::ZERO, &[b]);
/// assert_eq!(denied.verdict, Verdict::Deny { retry_after });
/// assert_eq!(limit.release(&mut leases, Time::ZERO, &[a, a]), Permits::ONE);
/// assert_eq!(limit.acquire(&mut leases, Time::ZERO, &[b]).verdict, Verdict::Allow);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Concurrency {
    /// N: 1 to [`MAX_LEASES`].
    permits: u32,
    /// How long a lease runs.
    ttl: Nanos,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Lease {
    ends: Time,
    id: LeaseId,
}

/// The permits of one key that are on loan, by end.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Leases(Vec<Lease>);

impl Leases {
    /// Those that have not ended at `now`.
    fn live(&self, now: Time) -> &[Lease] {
        &self.0[self.0.partition_point(|lease| lease.ends <= now)..]
    }
}

impl Concurrency {
    /// At most `permits` on loan at a time, each for `ttl` unless renewed.
    ///
    /// # Errors
    /// [`Error::NoPermits`] and [`Error::NoSpan`] for zeros, [`Error::TooManyLeases`] for
    /// more than [`MAX_LEASES`].
    pub fn new(permits: Permits, ttl: Nanos) -> Result<Self, Error> {
        let permits = permits.get();
        match permits {
            0 => return Err(Error::NoPermits),
            1..=MAX_LEASES => {}
            _ => return Err(Error::TooManyLeases),
        }
        if ttl == Nanos::ZERO {
            return Err(Error::NoSpan);
        }
        Ok(Self { permits, ttl })
    }

    /// The most that can be on loan.
    pub const fn capacity(&self) -> Permits {
        Permits::new(self.permits)
    }

    /// What [`acquire`](Self::acquire) would say to `cost` new names; nothing is lent.
    pub fn look(&self, leases: &Leases, now: Time, cost: Permits) -> Decision {
        let held = count(leases.live(now));
        let verdict = self.judge(leases, now, cost.get());
        let taken = if verdict.allows() { cost.get() } else { 0 };
        let newest = if taken > 0 {
            now + self.ttl
        } else {
            Time::ZERO
        };
        Decision {
            verdict,
            remaining: self.capacity() - Permits::new(held) - Permits::new(taken),
            reset_after: self.expires_at(leases).max(newest).since(now),
        }
    }

    /// Lends a permit to each of `ids`, or to none. One that holds a permit keeps it, and its
    /// lease runs `ttl` from now if that is longer.
    pub fn acquire(&self, leases: &mut Leases, now: Time, ids: &[LeaseId]) -> Decision {
        let asked = sorted(ids.iter().copied());
        let live = leases.live(now).iter().map(|lease| lease.id);
        let held = sorted(live.filter(|id| asked.binary_search(id).is_ok()));
        let new = u32::try_from(asked.len() - held.len()).unwrap_or(u32::MAX);
        let verdict = if asked.len() > self.permits as usize {
            Verdict::DenyForever
        } else {
            self.judge(leases, now, new)
        };
        if verdict.allows() {
            let ends = now + self.ttl;
            self.renew(leases, now, &held);
            leases.0.retain(|lease| lease.ends > now);
            let fresh = asked.iter().filter(|id| held.binary_search(id).is_err());
            leases.0.extend(fresh.map(|&id| Lease { ends, id }));
            leases.0.sort_by_key(|lease| lease.ends);
        }
        let standing = self.look(leases, now, Permits::ZERO);
        Decision {
            verdict,
            ..standing
        }
    }

    /// Takes back what `ids` hold; a name that holds nothing changes nothing. Returns how
    /// many permits came back.
    pub fn release(&self, leases: &mut Leases, now: Time, ids: &[LeaseId]) -> Permits {
        let held = count(leases.live(now));
        let ids = sorted(ids.iter().copied());
        leases
            .0
            .retain(|lease| lease.ends > now && ids.binary_search(&lease.id).is_err());
        Permits::new(held - count(&leases.0))
    }

    /// Lets the leases of `ids` run `ttl` from now. Returns how many there were: a name
    /// whose lease has ended is not among them, and must acquire again.
    pub fn renew(&self, leases: &mut Leases, now: Time, ids: &[LeaseId]) -> Permits {
        let ids = sorted(ids.iter().copied());
        let mut renewed = 0;
        for lease in &mut leases.0 {
            if lease.ends > now && ids.binary_search(&lease.id).is_ok() {
                lease.ends = lease.ends.max(now + self.ttl);
                renewed += 1;
            }
        }
        leases.0.sort_by_key(|lease| lease.ends);
        Permits::new(renewed)
    }

    /// From this moment on nothing is on loan.
    pub fn expires_at(&self, leases: &Leases) -> Time {
        leases.0.last().map_or(Time::ZERO, |lease| lease.ends)
    }

    /// Whether `new` more fit.
    fn judge(&self, leases: &Leases, now: Time, new: u32) -> Verdict {
        let live = leases.live(now);
        if new == 0 {
            return Verdict::Allow;
        }
        let Some(room) = self.permits.checked_sub(new) else {
            return Verdict::DenyForever;
        };
        // So many must end first; the leases are in the order of their ends.
        match live.len().checked_sub(room as usize) {
            None | Some(0) => Verdict::Allow,
            Some(too_many) => Verdict::Deny {
                retry_after: live[too_many - 1].ends.since(now),
            },
        }
    }
}

/// Each name once. The caller bounds how many names a request may carry.
fn sorted(ids: impl Iterator<Item = LeaseId>) -> Vec<LeaseId> {
    let mut ids: Vec<LeaseId> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn count(leases: &[Lease]) -> u32 {
    u32::try_from(leases.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Window;
    use crate::algorithm::Algorithm;
    use crate::laws::Random;
    use std::collections::HashMap;

    fn id(name: u8) -> LeaseId {
        LeaseId::from_bytes([name; 16])
    }

    fn at(secs: u64) -> Time {
        Time::ZERO + Nanos::from_secs(secs)
    }

    fn limit(permits: u32) -> Concurrency {
        Concurrency::new(Permits::new(permits), Nanos::from_secs(10)).unwrap()
    }

    #[test]
    fn a_permit_comes_back_by_release_or_by_expiry() {
        let (limit, mut leases) = (limit(2), Leases::default());
        assert!(limit.acquire(&mut leases, at(0), &[id(1)]).verdict.allows());
        assert!(limit.acquire(&mut leases, at(3), &[id(2)]).verdict.allows());
        let denied = limit.acquire(&mut leases, at(4), &[id(3)]);
        let retry_after = Nanos::from_secs(6);
        assert_eq!(denied.verdict, Verdict::Deny { retry_after });
        assert_eq!(limit.release(&mut leases, at(5), &[id(2)]), Permits::ONE);
        assert!(limit.acquire(&mut leases, at(5), &[id(3)]).verdict.allows());
        // The holder of 1 has crashed.
        let two = limit.look(&leases, at(9), Permits::ONE).verdict;
        assert_eq!(two.retry_after(), Some(Nanos::SECOND));
        assert!(limit.look(&leases, at(10), Permits::ONE).verdict.allows());
        assert_eq!(limit.expires_at(&leases), at(15));
    }

    #[test]
    fn releasing_twice_gives_back_once() {
        let (limit, mut leases) = (limit(2), Leases::default());
        let _ = limit.acquire(&mut leases, at(0), &[id(1), id(2)]);
        assert_eq!(limit.release(&mut leases, at(1), &[id(1)]), Permits::ONE);
        assert_eq!(limit.release(&mut leases, at(1), &[id(1)]), Permits::ZERO);
        let left = limit.look(&leases, at(1), Permits::ZERO).remaining;
        assert_eq!(left, Permits::ONE);
    }

    #[test]
    fn a_renewed_lease_runs_on_and_an_ended_one_is_gone() {
        let (limit, mut leases) = (limit(1), Leases::default());
        let _ = limit.acquire(&mut leases, at(0), &[id(1)]);
        assert_eq!(limit.renew(&mut leases, at(9), &[id(1)]), Permits::ONE);
        assert!(!limit.look(&leases, at(18), Permits::ONE).verdict.allows());
        assert_eq!(limit.renew(&mut leases, at(19), &[id(1)]), Permits::ZERO);
        assert!(
            limit
                .acquire(&mut leases, at(19), &[id(2)])
                .verdict
                .allows()
        );
    }

    #[test]
    fn all_names_get_a_permit_or_none_does() {
        let (limit, mut leases) = (limit(3), Leases::default());
        let _ = limit.acquire(&mut leases, at(0), &[id(1), id(2)]);
        let before = leases.clone();
        assert!(
            !limit
                .acquire(&mut leases, at(1), &[id(3), id(4)])
                .verdict
                .allows()
        );
        assert_eq!(leases, before);
        // Asking again for one's own is no second permit.
        let again = limit.acquire(&mut leases, at(1), &[id(1), id(1), id(3)]);
        assert_eq!(
            (again.verdict, again.remaining),
            (Verdict::Allow, Permits::ZERO)
        );
        let mut others = Leases::default();
        let twice = limit.acquire(&mut others, at(1), &[id(1), id(1), id(1), id(2), id(3)]);
        assert_eq!(
            (twice.verdict, twice.remaining),
            (Verdict::Allow, Permits::ZERO)
        );
        let names = [id(5), id(6), id(7), id(8)];
        let never = limit.acquire(&mut leases, at(1), &names);
        assert_eq!(never.verdict, Verdict::DenyForever);
    }

    #[test]
    fn agrees_with_a_map_of_names() {
        let mut random = Random::new(8);
        let limit = limit(4);
        let (mut leases, mut map) = (Leases::default(), HashMap::<LeaseId, Time>::new());
        let mut now = Time::ZERO;
        for _ in 0..20_000 {
            now = now + Nanos::from_millis(random.below(3_000));
            let names: Vec<LeaseId> = (0..random.below(4))
                .map(|_| id(u8::try_from(random.below(9)).unwrap()))
                .collect();
            map.retain(|_, ends| *ends > now);
            let ends = now + Nanos::from_secs(10);
            match random.below(4) {
                0 => {
                    let held = map.len();
                    map.retain(|id, _| !names.contains(id));
                    let back = limit.release(&mut leases, now, &names);
                    assert_eq!(back.get() as usize, held - map.len());
                }
                1 => {
                    let mut renewed = 0;
                    for (_, lease) in map.iter_mut().filter(|(id, _)| names.contains(id)) {
                        *lease = ends;
                        renewed += 1;
                    }
                    assert_eq!(limit.renew(&mut leases, now, &names), Permits::new(renewed));
                }
                _ => {
                    let mut with = map.clone();
                    with.extend(names.iter().map(|&id| (id, ends)));
                    let decision = limit.acquire(&mut leases, now, &names);
                    let fits = with.len() <= 4 || with.len() == map.len();
                    assert_eq!(decision.verdict.allows(), fits, "{names:?} {map:?}");
                    if fits {
                        map = with;
                    }
                    assert_eq!(decision.remaining.get() as usize, 4 - map.len());
                    if let Some(wait) = decision.verdict.retry_after() {
                        let held = |then| map.values().filter(|&&ends| ends > then).count();
                        let new = names.iter().filter(|id| !map.contains_key(id));
                        let new = new.collect::<std::collections::HashSet<_>>().len();
                        assert!(held(now + wait) + new <= 4);
                        assert!(held(now + wait - Nanos::from_nanos(1)) + new > 4);
                    }
                }
            }
            assert!(leases.0.len() <= 4 && leases.0.is_sorted_by_key(|lease| lease.ends));
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
