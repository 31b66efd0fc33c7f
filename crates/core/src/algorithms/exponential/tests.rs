//! Tests of the exponential counter: the story of its figure, and its numbers at any size.

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
        let bits = 7 + random.below(57);
        let per = Nanos::from_nanos(1 + (random.next() >> bits));
        waits_are_exact(per, &mut random);
    }
}

/// From 16 days to the longest time constant: the span is not known to the nanosecond, and
/// is searched.
#[test]
fn the_wait_is_exact_where_rounding_exceeds_a_nanosecond() {
    let mut random = Random::new(8);
    for _ in 0..3_000 {
        let least: u64 = 1 << (50 + random.below(7));
        let per = Nanos::from_nanos(least + random.below(least));
        waits_are_exact(per, &mut random);
    }
}

/// Checks a few denials of a limit of any size.
fn waits_are_exact(per: Nanos, random: &mut Random) {
    let most = MAX_PERMITS >> random.below(43);
    let permits = Permits::new(1 + random.below(most));
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

/// A request that could not be sent costs nothing, also after the time in which that was noticed.
#[test]
fn a_charge_that_comes_back_bars_no_permit() {
    for text in ["1/1h", "4/1h", "1000/1s", "3/1us"] {
        let limit = Exponential::new(text.parse().unwrap()).unwrap();
        for waits in [0, 1, 2_000_000, 300_000_000] {
            let (mut level, now) = (ExponentialState::default(), Time::from_nanos(waits));
            let charged = limit.decide(&mut level, Time::ZERO, Permits::ONE);
            let receipt = Receipt::of(&charged, Time::ZERO);
            limit.give_back_late(&mut level, now, Permits::ONE, receipt);
            let all = limit.decide(&mut level, now, limit.capacity()).verdict;
            assert!(all.allows(), "{text}, {waits} ns: {all:?}");
        }
    }
}
