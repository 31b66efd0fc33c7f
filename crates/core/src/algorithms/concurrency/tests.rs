//! Tests of permits on loan: stories, one row a call.

use super::leases::MAX_BATCHES;
use super::*;
use crate::laws::Random;
use crate::{Refund as _, Window};
use std::collections::HashMap;
use std::vec::Vec;

fn id(name: u8) -> LeaseId {
    LeaseId::from_bytes([name; 16])
}

fn at(secs: u64) -> Time {
    Time::ZERO + Nanos::from_secs(secs)
}

fn limit(permits: u64) -> Concurrency {
    Concurrency::new(Permits::new(permits), Nanos::from_secs(16)).unwrap()
}

/// An operation on a key in a story.
#[derive(Clone, Copy, Debug)]
enum Act {
    Acquire(u8, u64),
    Release(u8),
    Renew(u8),
    Take(u64),
    GiveBack(u64),
}
use Act::{Acquire, GiveBack, Release, Renew, Take};

/// One row: the time in seconds, the act; then the permits that came back or were granted, or the
/// wait in seconds if denied, and the remaining permits.
type Row = (u64, Act, Result<u64, u64>, u64);

fn check(limit: Concurrency, rows: &[Row]) {
    let mut leases = ConcurrencyState::default();
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
            Renew(name) => Ok(u64::from(limit.renew(&mut leases, now, id(name)).is_some())),
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
            (4, Acquire(3, 1), Err(3), 0), // held for 4 s and for 1 s
            (5, Release(2), Ok(1), 1),
            (5, Acquire(3, 1), Ok(1), 0),
            (15, Acquire(4, 1), Err(1), 0), // the holder of 1 has crashed
            (16, Acquire(4, 2), Err(2), 1), // one was held for 2 s
            (16, Acquire(4, 1), Ok(1), 0),
        ],
    );
}

#[test]
fn a_second_release_returns_no_permits() {
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
fn a_cost_is_lent_whole_or_not_at_all_and_a_name_may_take_more() {
    check(
        limit(3),
        &[
            (0, Acquire(1, 2), Ok(2), 1),
            (1, Acquire(2, 2), Err(1), 1),
            (1, Acquire(2, 4), Err(NEVER), 1),
            (2, Acquire(1, 1), Ok(1), 0),
            (17, Acquire(2, 1), Err(1), 0), // all of them run as long as the last
            (17, Release(1), Ok(3), 3),
            (17, Acquire(2, 0), Ok(0), 3),
        ],
    );
}

#[test]
fn a_denial_estimates_its_wait_from_past_hold_times() {
    check(
        limit(2),
        &[
            (0, Acquire(1, 1), Ok(1), 1),
            (0, Acquire(2, 1), Ok(1), 0),
            (1, Acquire(3, 1), Err(1), 0), // nothing has come back: as long again
            (4, Release(1), Ok(1), 1),
            (4, Acquire(3, 1), Ok(1), 0),
            (5, Acquire(4, 1), Err(2), 0), // 4 s each, two at work: one every 2 s
            (5, Acquire(4, 2), Err(4), 0),
            (8, Release(2), Ok(1), 1), // (4 + 8) / 2 = 6 s each
            (8, Acquire(2, 1), Ok(1), 0),
            (8, Acquire(4, 1), Err(3), 0),
            (19, Acquire(4, 1), Err(1), 0), // the lease of 3 ends sooner than that
        ],
    );
}

/// A client of a fresh limit that waits for `retry_after` comes at most twice as late as it could.
#[test]
fn a_first_permit_is_waited_for_as_long_again() {
    let lease = Nanos::from_secs(60);
    for back in 1..70 {
        for named in [true, false] {
            let limit = Concurrency::new(Permits::ONE, lease).unwrap();
            let mut leases = ConcurrencyState::default();
            let lend = |leases: &mut _, now, name| {
                let lend = if named {
                    Lend::To(id(name))
                } else {
                    Lend::Unnamed
                };
                limit.lend(leases, now, Permits::ONE, lend)
            };
            let _ = lend(&mut leases, at(0), 1);
            let (mut now, mut asked) = (at(0), 0);
            while let Verdict::Deny { retry_after } = lend(&mut leases, now, 2).verdict {
                asked += 1;
                let next = now + retry_after;
                if now < at(back) && next >= at(back) {
                    if named {
                        limit.release(&mut leases, at(back), id(1));
                    } else {
                        limit.refund(&mut leases, at(back), Permits::ONE);
                    }
                }
                now = next;
            }
            // An anonymous permit may last a sixteenth of its lease longer, and looks younger.
            let latest = at((2 * back).min(64));
            assert!(now <= latest, "{back} s: {now:?}");
            assert!(asked <= 9, "{back} s: asked {asked} times");
        }
    }
}

#[test]
fn a_renewed_lease_counts_once_with_all_of_its_time() {
    check(
        limit(1),
        &[
            (0, Acquire(1, 1), Ok(1), 0),
            (10, Renew(1), Ok(1), 0),
            (13, Release(1), Ok(1), 1),
            (20, Acquire(2, 1), Ok(1), 0), // remembered while nothing is on loan
            (20, Acquire(3, 1), Err(13), 0),
        ],
    );
}

#[test]
fn hold_times_are_dropped_one_lease_after_the_last_release() {
    let (limit, mut leases) = (limit(1), ConcurrencyState::default());
    let _ = limit.acquire(&mut leases, at(0), id(1), Permits::ONE);
    limit.release(&mut leases, at(2), id(1));
    assert_eq!(limit.expires_at(&leases, at(2)), at(18));
    let standing = limit.look(&leases, at(2), Permits::ZERO);
    assert_eq!(standing.reset_after, Nanos::ZERO, "no permit is on loan");
}

#[test]
fn recent_leases_count_for_more_than_old_ones() {
    let (limit, mut leases, mut now) = (limit(1), ConcurrencyState::default(), Time::ZERO);
    for held in [[15; 100], [1; 100]].concat() {
        let _ = limit.acquire(&mut leases, now, id(1), Permits::ONE);
        now = now + Nanos::from_secs(held);
        limit.release(&mut leases, now, id(1));
    }
    let _ = limit.acquire(&mut leases, now, id(1), Permits::ONE);
    let wait = limit.look(&leases, now, Permits::ONE).verdict.retry_after();
    assert_eq!(
        wait.map(Nanos::as_secs_ceil),
        Some(2),
        "after 100 of 1 s: {wait:?}"
    );
}

#[test]
fn unnamed_refunds_return_the_permits_that_expire_first() {
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
fn named_and_unnamed_loans_share_the_permits_but_release_only_their_own() {
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
            (1, Take(1), Err(2), 0), // three at work, this one too: two are to come back
            (1, Take(1), Err(2), 0), // four: that is not enough
            (1, Take(3), Err(NEVER), 0), // never taken, and so
            (1, GiveBack(3), Ok(3), 0), // nothing to give back
            (1, Acquire(1, 1), Err(2), 0), // a name that is denied holds nothing
            (2, GiveBack(2), Ok(2), 0),
            (2, GiveBack(1), Ok(1), 1),
            (2, GiveBack(1), Ok(1), 2),
        ],
    );
}

#[test]
fn a_cost_above_a_lowered_limit_comes_back() {
    let (wide, narrow, mut leases) = (limit(9), limit(2), ConcurrencyState::default());
    let _ = wide.decide(&mut leases, at(0), Permits::new(8));
    for (cost, in_use) in [(9, 8), (5, 3), (4, 3), (3, 0)] {
        narrow.refund(&mut leases, at(1), Permits::new(cost));
        assert_eq!(leases.in_use(at(1)), in_use, "{cost}");
    }
}

#[test]
fn batches_stay_few_however_many_the_permits() {
    let limit = limit(MAX_LEASES.into()).with_denials(Denials::Counted);
    let mut leases = ConcurrencyState::default();
    let mut random = Random::new(3);
    let mut now = Time::ZERO;
    for _ in 0..50_000 {
        now = now + Nanos::from_millis(random.below(40));
        // A clock far behind, for a while: its leases end at other moments.
        let far = Nanos::from_secs(100 * random.below(2));
        let _ = limit.decide(&mut leases, now - far, Permits::new(20));
        assert!(leases.by_end.len() <= MAX_BATCHES);
    }
    assert_eq!(leases.sum, leases.in_use(Time::ZERO));
}

#[test]
fn a_lower_limit_keeps_the_permits_on_loan() {
    let (wide, narrow, mut leases) = (limit(5), limit(2), ConcurrencyState::default());
    let _ = wide.acquire(&mut leases, at(0), id(1), Permits::new(4));
    assert!(narrow.keeps_state_of(&wide));
    let denied = narrow.look(&leases, at(1), Permits::ONE);
    assert_eq!(denied.verdict.retry_after(), Some(Nanos::from_secs(3)));
    assert_eq!(narrow.in_use(&leases, at(1)), 4);
    assert_eq!(narrow.release(&mut leases, at(1), id(1)), Permits::new(4));
}

#[test]
fn lapsed_permits_are_counted_once() {
    let (limit, mut leases) = (limit(5), ConcurrencyState::default());
    let _ = limit.acquire(&mut leases, at(0), id(1), Permits::new(2));
    let _ = limit.acquire(&mut leases, at(1), id(2), Permits::new(3));
    assert_eq!(limit.lapse(&mut leases, at(15)), 0);
    assert_eq!(limit.lapse(&mut leases, at(16)), 2);
    assert_eq!(limit.lapse(&mut leases, at(60)), 3);
    assert_eq!(leases, ConcurrencyState::default());
}

#[test]
fn looking_lends_nothing() {
    let (limit, mut leases) = (limit(1), ConcurrencyState::default());
    let mut ask = |lend| limit.lend(&mut leases, at(0), Permits::ONE, lend).verdict;
    assert_eq!(ask(Lend::Nothing), Verdict::Allow);
    assert_eq!(ask(Lend::To(id(1))), Verdict::Allow);
    assert!(!ask(Lend::Nothing).allows());
    assert!(!ask(Lend::Unnamed).allows());
}

#[test]
fn named_loans_agree_with_a_map_of_names() {
    let mut random = Random::new(8);
    let limit = limit(4);
    let (mut leases, mut map) = (
        ConcurrencyState::default(),
        HashMap::<LeaseId, (Time, u64)>::new(),
    );
    let mut now = Time::ZERO;
    for _ in 0..20_000 {
        now = now + Nanos::from_millis(random.below(5_000));
        let name = id(u8::try_from(random.below(7)).unwrap());
        map.retain(|_, (ends, _)| *ends > now);
        let ends = now + limit.lease();
        let held = |then: Time| -> u64 {
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
                let cost = random.below(4);
                let decision = limit.acquire(&mut leases, now, name, Permits::new(cost));
                let fits = cost == 0 || held(now) + cost <= 4;
                assert_eq!(decision.verdict.allows(), fits, "{cost} {map:?}");
                if let Some(wait) = decision.verdict.retry_after() {
                    let just_before = now + wait - Nanos::from_nanos(1);
                    assert!(
                        held(just_before) + cost > 4,
                        "the wait never exceeds the end of the leases"
                    );
                    assert!(
                        wait >= Nanos::SECOND
                            || leases.held.releases > 0
                            || held(now + wait) + cost <= 4
                    );
                }
                if fits && cost > 0 {
                    let lease = map.entry(name).or_insert((ends, 0));
                    *lease = (ends, lease.1 + cost);
                }
                let held: u64 = map.values().map(|(_, permits)| permits).sum();
                assert_eq!(decision.remaining.get(), 4 - held);
            }
        }
    }
}

#[test]
fn unnamed_loans_agree_with_a_list_that_never_ends_early() {
    let mut random = Random::new(11);
    let limit = limit(6);
    // Each permit's end, and that rounded up to a sixteenth of the lease: a second.
    let (mut leases, mut list) = (ConcurrencyState::default(), Vec::<Time>::new());
    let mut now = Time::ZERO;
    for _ in 0..20_000 {
        now = now + Nanos::from_millis(random.below(4_000));
        list.retain(|ends| *ends > now);
        let cost = random.below(4);
        if random.below(3) == 0 {
            limit.refund(&mut leases, now, Permits::new(cost));
            let count = usize::try_from(cost).unwrap();
            list.drain(..list.len().min(count));
            continue;
        }
        let fits = cost == 0 || list.len() as u64 + cost <= 6;
        let decision = limit.decide(&mut leases, now, Permits::new(cost));
        assert_eq!(decision.verdict.allows(), fits);
        if fits {
            let ends = at((now + limit.lease()).as_nanos().div_ceil(1_000_000_000));
            list.extend((0..cost).map(|_| ends));
        }
        assert_eq!(decision.remaining.get(), 6 - list.len() as u64);
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
        let decision = window.decide(&mut state, Time::from_nanos(now), Permits::new(cost));
        assert_eq!(decision.verdict.allows(), fits);
        assert_eq!(decision.remaining.get(), permits);
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let new = |permits, ttl| Concurrency::new(Permits::new(permits), ttl);
    assert_eq!(new(0, Nanos::SECOND), Err(Error::NoPermits));
    assert_eq!(new(10_001, Nanos::SECOND), Err(Error::TooManyLeases));
    assert_eq!(new(1, Nanos::ZERO), Err(Error::NoSpan));
}
