//! Stories: what a token bucket, a leaky bucket and a gap say, moment by moment.

use super::*;
use crate::Refund as _;

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn bucket(text: &str, burst: u32) -> Gcra {
    Gcra::token_bucket(quota(text).with_burst(Permits::new(burst)).unwrap()).unwrap()
}

fn millis(millis: u64) -> Time {
    Time::ZERO + Nanos::from_millis(millis)
}

/// One row of a story: at `now` ms, `cost`; then the wait in ms and what remains.
enum Row {
    Allow(u64, u32, u32),
    After(u64, u32, u64, u32),
    Deny(u64, u32, u64, u32),
    Never(u64, u32, u32),
}
use Row::{After, Allow, Deny, Never};

fn check(gcra: Gcra, rows: &[Row]) {
    let mut tat = Tat::default();
    for row in rows {
        let (now, cost, verdict, remaining) = match *row {
            Allow(now, cost, left) => (now, cost, Verdict::Allow, left),
            After(now, cost, wait, left) => (
                now,
                cost,
                Verdict::AllowAfter(Nanos::from_millis(wait)),
                left,
            ),
            Deny(now, cost, wait, left) => {
                let retry_after = Nanos::from_millis(wait);
                (now, cost, Verdict::Deny { retry_after }, left)
            }
            Never(now, cost, left) => (now, cost, Verdict::DenyForever, left),
        };
        let decision = gcra.decide(&mut tat, millis(now), Permits::new(cost));
        assert_eq!(decision.verdict, verdict, "cost {cost} at {now} ms");
        assert_eq!(
            decision.remaining.get(),
            remaining,
            "cost {cost} at {now} ms"
        );
    }
}

#[test]
fn burst_then_pace() {
    check(
        bucket("10/1s", 3),
        &[
            Allow(0, 1, 2),
            Allow(0, 2, 0),
            Deny(0, 1, 100, 0),
            Deny(50, 2, 150, 0),
            Allow(100, 1, 0),
            Deny(199, 1, 1, 0),
            Allow(200, 1, 0),
            Never(200, 4, 0),
            Allow(1_000, 0, 3),
        ],
    );
}

#[test]
fn a_queue_waits_its_turn() {
    check(
        Gcra::leaky_queue(quota("10/1s"), Permits::new(2)).unwrap(),
        &[
            Allow(0, 1, 2),
            After(0, 1, 100, 1),
            After(50, 1, 150, 0),
            Deny(50, 1, 50, 0),
            After(100, 1, 200, 0),
        ],
    );
}

#[test]
fn spacing_keeps_the_gap() {
    let gcra = Gcra::spacing(Nanos::from_millis(250)).unwrap();
    check(
        gcra,
        &[
            Allow(7, 1, 0),
            Deny(7, 1, 250, 0),
            Deny(256, 1, 1, 0),
            Allow(257, 1, 0),
        ],
    );
}

#[test]
fn counted_denials_lock_out_for_a_finite_time() {
    check(
        bucket("10/1s", 3).with_denials(Denials::Counted),
        &[
            Allow(0, 3, 0),
            Deny(0, 1, 200, 0), // the denial costs a permit too
            Deny(0, 3, 600, 0), // but the debt stops at twice the burst
            Deny(0, 3, 600, 0),
            Never(0, 4, 0),
            Allow(600, 3, 0),
        ],
    );
}

#[test]
fn a_counted_cost_above_the_burst_is_recorded() {
    let counted = || bucket("10/1s", 3).with_denials(Denials::Counted);
    check(counted(), &[Never(0, 4, 0), Deny(0, 1, 300, 0)]);
    // Whatever it is, no more than one further burst.
    check(
        counted(),
        &[
            Never(0, u32::MAX, 0),
            Never(0, u32::MAX, 0),
            Deny(0, 3, 600, 0),
            Allow(600, 3, 0),
        ],
    );
}

#[test]
fn a_refund_undoes_a_charge_and_no_more() {
    let gcra = bucket("10/1s", 3);
    let mut tat = Tat::default();
    let _ = gcra.decide(&mut tat, millis(100), Permits::new(2));
    gcra.refund(&mut tat, millis(100), Permits::ONE);
    assert_eq!(
        gcra.look(&tat, millis(100), Permits::ZERO).remaining,
        Permits::new(2)
    );
    gcra.refund(&mut tat, millis(150), Permits::MAX);
    assert_eq!(
        gcra.look(&tat, millis(150), Permits::ZERO).remaining,
        Permits::new(3)
    );
    gcra.refund(&mut tat, millis(900), Permits::MAX);
    assert_eq!(
        gcra.expires_at(&tat),
        millis(150),
        "an old state stays as it is"
    );
}

#[test]
fn a_late_thread_does_not_cut_the_debt_of_others() {
    // It read the clock, was suspended, and decides when others have moved the TAT on.
    let gcra = bucket("10/1s", 3);
    let mut tat = Tat::default();
    let _ = gcra.decide(&mut tat, millis(1_000), Permits::new(3));
    let late = gcra.decide(&mut tat, millis(900), Permits::ONE);
    assert_eq!(late.verdict.retry_after(), Some(Nanos::from_millis(200)));
    let next = gcra.decide(&mut tat, millis(1_000), Permits::ONE);
    assert_eq!(next.verdict.retry_after(), Some(Nanos::from_millis(100)));
}

#[test]
fn a_clock_set_back_locks_nobody_out() {
    let gcra = bucket("10/1s", 3);
    let mut tat = Tat::default();
    let _ = gcra.decide(&mut tat, millis(3_600_000), Permits::new(3));
    let now = millis(1_000);
    let denied = gcra.decide(&mut tat, now, Permits::ONE);
    assert_eq!(denied.verdict.retry_after(), Some(Nanos::from_millis(100)));
    assert_eq!(gcra.expires_at(&tat), millis(1_300), "the cut is kept");
}

#[test]
fn what_is_reserved_stays_reserved() {
    let gcra = bucket("1/1s", 1).with_patience(Nanos::from_secs(60));
    let mut tat = Tat::default();
    for wait in 0..=60 {
        let wait = Nanos::from_secs(wait);
        let verdict = gcra
            .reserve(&mut tat, Time::ZERO, Permits::ONE, Nanos::MAX)
            .verdict;
        match wait {
            Nanos::ZERO => assert_eq!(verdict, Verdict::Allow),
            wait => assert_eq!(verdict, Verdict::AllowAfter(wait)),
        }
    }
    // Whoever does not wait, and the reload to a faster quota, leave the queue alone.
    for gcra in [gcra, bucket("10/1s", 1).with_patience(Nanos::from_secs(60))] {
        let denied = gcra.decide(&mut tat, Time::ZERO, Permits::ONE).verdict;
        assert!(
            denied.retry_after() > Some(Nanos::from_secs(60)),
            "{denied:?}"
        );
    }
    let impatient = gcra.reserve(&mut tat, Time::ZERO, Permits::ONE, Nanos::from_secs(9));
    assert_eq!(impatient.verdict.retry_after(), Some(Nanos::from_secs(52)));
    assert_eq!(gcra.expires_at(&tat), millis(61_000));
}

#[test]
fn the_end_of_ticks_is_shut() {
    let gcra = bucket("10/1s", 3);
    let end = 1_u64 << (64 - TICKS_PER_NANO_LOG2); // 9.1 years
    for (now, allowed) in [
        (end - 300_000_001, 3),
        (end - 300_000_000, 2), // tat would be 2^64 exactly
        (end - 100_000_001, 1),
        (end - 100_000_000, 0),
        (end - 1, 0),
        (end, 0),
        (u64::MAX, 0),
    ] {
        let now = Time::from_nanos(now);
        let mut tat = Tat::default();
        let fresh = gcra.decide(&mut tat, now, Permits::ZERO);
        assert_eq!(fresh.remaining.get(), allowed, "at {now:?}");
        for cost in 1..=3 {
            let verdict = gcra.look(&tat, now, Permits::new(cost)).verdict;
            let expected = if cost <= allowed {
                Verdict::Allow
            } else {
                Verdict::DenyForever
            };
            assert_eq!(verdict, expected, "cost {cost} at {now:?}");
        }
    }
}

#[test]
fn rates_are_met_and_never_passed() {
    const DAY: u64 = 86_400_000_000_000;
    for (text, days_of, lost_ppm) in [
        ("3/1s", 30 * DAY, 0),
        ("7/1m", 30 * DAY, 0),
        ("1000003/1s", 1_000_000_000, 16),
        ("7000000/1s", 100_000_000, 20),
    ] {
        let gcra = bucket(text, 2);
        let per = quota(text).per().as_nanos();
        let permits = u64::from(quota(text).permits().get());
        // A caller that returns at the very moment it is told to.
        let (mut tat, mut now, mut admitted) = (Tat::default(), Time::ZERO, 0_u64);
        while now.as_nanos() < days_of {
            match gcra.decide(&mut tat, now, Permits::ONE).verdict {
                Verdict::Deny { retry_after } => now = now + retry_after,
                verdict => {
                    assert_eq!(verdict, Verdict::Allow);
                    admitted += 1;
                }
            }
        }
        let exact = u128::from(days_of) * u128::from(permits) / u128::from(per);
        let exact = u64::try_from(exact).unwrap();
        assert!(admitted <= exact + 2, "{text}: {admitted} of {exact}");
        let lost = exact.saturating_sub(admitted);
        assert!(
            lost <= exact * lost_ppm / 1_000_000 + 1,
            "{text}: {admitted} of {exact}"
        );
    }
}
