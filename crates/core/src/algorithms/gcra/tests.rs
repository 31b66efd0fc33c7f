//! Stories: the decisions of a token bucket, a leaky bucket and a gap, moment by moment.

use alloc::vec::Vec;

use super::*;
use crate::Refund as _;
use crate::laws::Random;
use crate::stored_form::{KeptValue, StoredForm as _, UnixMicros};

fn quota(text: &str) -> Quota {
    text.parse().unwrap()
}

fn bucket(text: &str, burst: u64) -> Gcra {
    Gcra::token_bucket(quota(text).with_burst(Permits::new(burst)).unwrap()).unwrap()
}

fn millis(millis: u64) -> Time {
    Time::ZERO + Nanos::from_millis(millis)
}

/// One row of a story: at `now` ms, `cost`; then the wait in ms and the remaining permits.
enum Row {
    Allow(u64, u64, u64),
    After(u64, u64, u64, u64),
    Deny(u64, u64, u64, u64),
    Never(u64, u64, u64),
}
use Row::{After, Allow, Deny, Never};

/// The usage by the definition.
fn looked_usage(gcra: &Gcra, tat: Tat, now: Time) -> Permits {
    gcra.capacity() - gcra.look(&tat, now, Permits::ZERO).remaining
}

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
        assert_eq!(
            gcra.usage(&tat, millis(now)),
            looked_usage(&gcra, tat, millis(now))
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
    // For any cost, at most one further burst.
    check(
        counted(),
        &[
            Never(0, u64::MAX, 0),
            Never(0, u64::MAX, 0),
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
        gcra.expires_at(&tat, millis(900)),
        millis(150),
        "a refund does not change an expired state"
    );
}

#[test]
fn a_late_thread_does_not_cut_the_debt_of_others() {
    // A thread that read the clock, was suspended, and decides after others have moved the TAT
    // on.
    let gcra = bucket("10/1s", 3);
    let mut tat = Tat::default();
    let _ = gcra.decide(&mut tat, millis(1_000), Permits::new(3));
    let late = gcra.decide(&mut tat, millis(900), Permits::ONE);
    assert_eq!(late.verdict.retry_after(), Some(Nanos::from_millis(200)));
    let next = gcra.decide(&mut tat, millis(1_000), Permits::ONE);
    assert_eq!(next.verdict.retry_after(), Some(Nanos::from_millis(100)));
}

#[test]
fn a_clock_set_back_locks_no_caller_out() {
    let gcra = bucket("10/1s", 3);
    let mut tat = Tat::default();
    let _ = gcra.decide(&mut tat, millis(3_600_000), Permits::new(3));
    let now = millis(1_000);
    let denied = gcra.decide(&mut tat, now, Permits::ONE);
    assert_eq!(denied.verdict.retry_after(), Some(Nanos::from_millis(800)));
    assert_eq!(
        gcra.expires_at(&tat, now),
        millis(2_000),
        "the state holds the cut debt: the larger of quota and burst"
    );
}

#[test]
fn decisions_and_reloads_leave_reservations_alone() {
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
    // Decisions without a wait, and the reload to a faster quota, leave the queue alone.
    for gcra in [gcra, bucket("10/1s", 1).with_patience(Nanos::from_secs(60))] {
        let denied = gcra.decide(&mut tat, Time::ZERO, Permits::ONE).verdict;
        assert!(
            denied.retry_after() > Some(Nanos::from_secs(60)),
            "{denied:?}"
        );
    }
    let impatient = gcra.reserve(&mut tat, Time::ZERO, Permits::ONE, Nanos::from_secs(9));
    assert_eq!(impatient.verdict.retry_after(), Some(Nanos::from_secs(52)));
    assert_eq!(gcra.expires_at(&tat, Time::ZERO), millis(61_000));
}

#[test]
fn decisions_are_exact_across_the_overflow_of_ticks() {
    // Ticks are counted modulo 2^64: after 9.1 years they begin anew.
    for text in ["10/1s", "3/1s", "333/1s", "99999/1s"] {
        let gcra = bucket(text, 3);
        let wait = quota(text).time_for(Permits::ONE);
        let end = Nanos::from_nanos(1 << (64 - TICKS.ilog2()));
        let ends = [
            Time::ZERO + end,
            Time::ZERO + end + end,
            Time::ZERO + Nanos::SECOND,
        ];
        for start in ends.map(|end| end - wait - Nanos::from_nanos(1)) {
            let mut tat = Tat::default();
            let mut ask = |now, cost| gcra.decide(&mut tat, now, Permits::new(cost)).verdict;
            assert_eq!(ask(start, 3), Verdict::Allow, "{text} {start:?}");
            for step in 0..10 {
                let now = start + Nanos::from_nanos(step * wait.as_nanos());
                let Verdict::Deny { retry_after } = ask(now, 1) else {
                    panic!("{text}: allowed at {now:?}");
                };
                assert!(retry_after <= wait, "{text} {retry_after:?} at {now:?}");
                assert_eq!(ask(now + wait, 1), Verdict::Allow, "{text} at {now:?}");
            }
        }
    }
}

#[test]
fn an_expired_state_reads_as_fresh_for_four_and_a_half_years() {
    let gcra = bucket("10/1s", 3);
    let mut tat = Tat::default();
    let _ = gcra.decide(&mut tat, Time::ZERO, Permits::new(3));
    let expired = gcra.expires_at(&tat, Time::ZERO);
    for later in [Nanos::ZERO, gcra.lasts()] {
        assert_eq!(gcra.expires_at(&tat, expired + later), expired);
        let decision = gcra.look(&tat, expired + later, Permits::new(3));
        assert_eq!(decision.verdict, Verdict::Allow);
    }
    // Then as a full quota that is owed, once.
    let now = expired + gcra.lasts() + Nanos::SECOND;
    let wait = gcra
        .decide(&mut tat, now, Permits::new(3))
        .verdict
        .retry_after();
    assert_eq!(wait, Some(Nanos::SECOND));
    let after = gcra.decide(&mut tat, now + Nanos::SECOND, Permits::new(3));
    assert_eq!(after.verdict, Verdict::Allow);
}

#[test]
fn quotas_beyond_64_bits_are_refused() {
    let gcra = |text| Gcra::token_bucket(quota(text)).map(|_| ());
    for text in [
        "64/1ns",
        "3000000000/1s",
        "4294967295/67108864ns",
        "1/400d",
        "999983/30d",
        "10000000000/24h",
        "9999999967/24h", // a prime
        "9007199254740991/30d",
        "1000000000/1s burst 50000000000",
    ] {
        assert_eq!(gcra(text), Ok(()), "{text}");
    }
    for (text, error) in [
        ("65/1ns", Error::TooFast),
        ("4294967295/1ns", Error::TooFast),
        ("9007199254740991/1s", Error::TooFast),
        ("9007199254740991/1d", Error::TooFast), // 104 permits a nanosecond
        ("9007199254740991/1d burst 1", Error::TooFast),
        ("1/1s burst 9007199254740991", Error::TooLong),
        ("1/500d", Error::TooLong),
        ("7/500d", Error::TooLong),
        ("999983/500d", Error::TooLong),
        ("999983/9999d", Error::TooLong),
    ] {
        assert_eq!(gcra(text), Err(error), "{text}");
    }
    for permits in [4_294_967_291, 9_007_199_254_740_881] {
        let last = Quota::new(Permits::new(permits), Nanos::MAX).unwrap();
        assert_eq!(
            Gcra::token_bucket(last.with_burst(Permits::ONE).unwrap()).err(),
            Some(Error::TooLong)
        );
    }
    let most = quota("1000000000/1s").burst(Quota::MAX_PERMITS);
    assert!(Gcra::token_bucket(most).is_ok());
    let waiting = Gcra::new(most, Permits::ONE);
    assert_eq!(waiting.err(), Some(Error::TooManyPermits));
}

#[test]
fn a_cost_that_was_cut_to_the_maximum_never_fits() {
    let most = quota("1000000000/1s").burst(Quota::MAX_PERMITS);
    let gcra = Gcra::token_bucket(most).unwrap().with_patience(Nanos::MAX);
    let mut tat = Tat::default();
    let beyond = Permits::new(u64::MAX);
    let denied = gcra.decide(&mut tat, Time::ZERO, beyond);
    assert_eq!(denied.verdict, Verdict::DenyForever);
    let denied = gcra.reserve(&mut tat, Time::ZERO, beyond, Nanos::MAX);
    assert_eq!(denied.verdict, Verdict::DenyForever);
    let all = gcra.decide(&mut tat, Time::ZERO, most.burst_size());
    assert_eq!(
        (all.verdict, all.remaining),
        (Verdict::Allow, Permits::ZERO)
    );
}

#[test]
fn rates_are_met_and_never_exceeded() {
    const DAY: u64 = 86_400_000_000_000;
    for (text, days_of) in [
        ("3/1s", 30 * DAY),
        ("7/1m", 30 * DAY),
        ("333/1s", DAY),
        ("1000003/1s", 1_000_000_000),
        ("7000000/1s", 100_000_000),
        ("300000000/1s", 10_000_000),
        ("3000000000/1s", 1_000_000),
        ("10000000000/24h", 10_000_000_000),
        ("9999999967/24h", 10_000_000_000),
    ] {
        let gcra = bucket(text, 4); // more than a nanosecond grants
        let per = quota(text).per().as_nanos();
        let permits = quota(text).permits().get();
        // A caller that returns exactly at the end of each wait, for all permits there.
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
        assert!(
            (exact..=exact + 4).contains(&admitted),
            "{text}: {admitted} of {exact}"
        );
    }
}

#[test]
fn another_rate_keeps_the_used_permits() {
    // Limit before, permits charged; limit after, permits left, the wait for one more.
    let check = |old: &Gcra, used: u64, new: &Gcra, left: u64, wait_ms: u64| {
        let (now, mut tat) = (millis(5_000), Tat::default());
        let used = old.reserve(&mut tat, now, Permits::new(used), Nanos::MAX);
        assert!(used.verdict.allows());
        new.rescale(&mut tat, old, now, Nanos::ZERO);
        let mut new = *new;
        new.succeed(old);
        let seen = new.look(&tat, now, Permits::ONE);
        let wait = seen.verdict.retry_after().unwrap_or_default();
        let left_now = new.look(&tat, now, Permits::ZERO).remaining.get();
        assert_eq!(
            (left_now, wait),
            (left, Nanos::from_millis(wait_ms)),
            "{old:?} {new:?}"
        );
    };
    let of = |text: &str| Gcra::token_bucket(quota(text)).unwrap();
    check(&of("10/10h"), 10, &of("20/10h"), 10, 0);
    check(&of("100/1h"), 50, &of("1000/1h"), 950, 0);
    check(&of("100/1m"), 100, &of("100/1h"), 0, 36_000);
    check(&of("1000/1h"), 1_000, &of("100/1h"), 0, 36_000); // 900 are forgiven
    check(&of("3/1s"), 2, &of("7/1s"), 5, 0);
    check(
        &of("1000/1d"),
        1_000,
        &bucket("1000/1d", 500),
        0,
        501 * 86_400,
    );
    check(
        &bucket("10/1s", 1_000),
        1_000,
        &bucket("10/1s", 500),
        0,
        50_100,
    );
    // The larger of quota and burst.
    check(&of("100/1m"), 100, &bucket("100/1h", 10), 0, 91 * 36_000);
    check(&bucket("1/1s", 50), 50, &bucket("2/1s", 20), 0, 500);
    // Overruns stay permits, promised moments of a queue stay moments.
    let patient = |text: &str| of(text).with_patience(Nanos::MAX);
    check(&patient("10/10s"), 30, &patient("100/10s"), 70, 0);
    check(&patient("100/10s"), 300, &patient("10/10s"), 0, 201_000);
    let queue = |text: &str| Gcra::leaky_queue(quota(text), Permits::new(9)).unwrap();
    check(&queue("1/1s"), 10, &queue("10/1s"), 0, 8_200);
    let long = Gcra::leaky_queue(quota("1/1s"), Permits::new(60)).unwrap();
    check(&long, 61, &queue("10/1s"), 0, 59_200); // farther ahead than the slack of clocks
}

#[test]
fn a_queue_between_two_rates_grows_by_charges_alone() {
    let queue = |text: &str| Gcra::leaky_queue(quota(text), Permits::new(20)).unwrap();
    let (fast, slow) = (queue("30/5s"), queue("5/5s"));
    let (mut tat, now) = (Tat::default(), millis(0));
    let _ = fast.reserve(&mut tat, now, Permits::new(21), Nanos::MAX);
    slow.rescale(&mut tat, &fast, now, Nanos::ZERO);
    let _ = slow.reserve(&mut tat, now, Permits::ONE, Nanos::MAX);
    let full = slow.expires_at(&tat, now);
    for _ in 0..3 {
        fast.rescale(&mut tat, &slow, now, Nanos::ZERO);
        slow.rescale(&mut tat, &fast, now, Nanos::ZERO);
        assert_eq!(slow.expires_at(&tat, now), full);
    }
}

#[test]
fn a_lowered_burst_with_a_queue_keeps_the_used_permits_at_another_rate() {
    let queue = |text: &str, burst| {
        let quota = quota(text).with_burst(Permits::new(burst)).unwrap();
        Gcra::new(quota, Permits::ONE).unwrap()
    };
    let (wide, mut lowered, slow) = (queue("10/1s", 30), queue("10/1s", 4), queue("1/1s", 30));
    let (mut tat, now) = (Tat::default(), millis(0));
    assert!(wide.take(&mut tat, now, Permits::new(30)));
    lowered.rescale(&mut tat, &wide, now, Nanos::ZERO);
    lowered.succeed(&wide);
    slow.rescale(&mut tat, &lowered, now, Nanos::ZERO);
    // One of them was promised, and keeps its time.
    assert_eq!(slow.expires_at(&tat, now), millis(29_100));
}

#[test]
fn a_burst_that_falls_and_rises_gives_nothing_back() {
    let (wide, narrow) = (bucket("10/1s", 1_000), bucket("10/1s", 5));
    let (mut tat, now) = (Tat::default(), millis(0));
    assert!(wide.take(&mut tat, now, Permits::new(1_000)));
    for _ in 0..3 {
        narrow.rescale(&mut tat, &wide, now, Nanos::ZERO);
        let mut lowered = narrow;
        lowered.succeed(&wide);
        assert!(!lowered.take(&mut tat, now, Permits::ONE));
        wide.rescale(&mut tat, &lowered, now, Nanos::ZERO);
        assert!(!wide.take(&mut tat, now, Permits::ONE));
    }
}

/// The value of one key, shared by processes with different numbers, and the store's clock.
struct SharedValue(Vec<u8>, UnixMicros);

impl Default for SharedValue {
    fn default() -> Self {
        Self(Vec::new(), UnixMicros::new(1_700_000_000_000_000))
    }
}

impl SharedValue {
    /// Returns the decision, and the debt afterwards.
    fn ask(&mut self, gcra: &Gcra, cost: u64) -> (Decision, u64) {
        let Self(value, now) = self;
        let mut tat = gcra.read(value, *now).unwrap_or_default();
        let decision = gcra.decide(&mut tat, now.time(), Permits::new(cost));
        let (mut bytes, micros) = (Vec::new(), 0);
        gcra.write(&tat, *now, &mut bytes);
        let mut kept = KeptValue { bytes, micros };
        gcra.keep_beyond(&mut kept, value, *now);
        *value = kept.bytes;
        assert_eq!(
            gcra.usage(&tat, now.time()),
            looked_usage(gcra, tat, now.time())
        );
        let debt = gcra.expires_at(&tat, now.time()).since(now.time());
        (decision, debt.as_nanos())
    }
}

/// Returns two limits with other rates, bursts and queues.
fn two_processes(random: &mut Random) -> [Gcra; 2] {
    let mut make = || {
        let span = Nanos::from_secs(1 + random.below(600));
        let quota = Quota::new(Permits::new(1 + random.below(40)), span).unwrap();
        let quota = quota.with_burst(Permits::new(1 + random.below(40)));
        let queue = random.below(2) * random.below(60);
        Gcra::new(quota.unwrap(), Permits::new(queue)).unwrap()
    };
    [make(), make()]
}

#[test]
fn looks_of_two_processes_change_no_debt() {
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let processes = two_processes(&mut random);
        let mut value = SharedValue::default();
        for gcra in processes.iter().cycle().take(6) {
            let _ = value.ask(gcra, 1 + random.below(30));
        }
        let _ = processes.each_ref().map(|gcra| value.ask(gcra, 0));
        let debts = processes.each_ref().map(|gcra| value.ask(gcra, 0).1);
        for _ in 0..3 {
            for (gcra, debt) in processes.iter().zip(debts) {
                let looked = value.ask(gcra, 0).1;
                assert!(looked.abs_diff(debt) < 100, "{seed}: {looked} of {debt} ns");
            }
        }
    }
}

/// Both together admit no more than both hold, and the higher rate refills, however often they take
/// turns.
#[test]
fn two_processes_that_take_turns_admit_no_more_than_both_hold() {
    for seed in 0..3_000 {
        let mut random = Random::new(seed);
        let processes = two_processes(&mut random);
        let (mut value, mut admitted) = (SharedValue::default(), 0);
        let start = value.1;
        for step in 0..200 {
            if seed % 2 == 1 && random.below(8) == 0 {
                value.1 = UnixMicros::new(value.1.get() + random.below(9_000_000));
            }
            let gcra = &processes[usize::from(random.below(2) == 0)];
            let cost = random.below(8);
            if value.ask(gcra, cost).0.verdict.allows() {
                admitted += cost;
            }
            let span = Nanos::from_micros(value.1.get() - start.get() + 1);
            let refilled = |gcra: &Gcra| gcra.bound(span) - gcra.capacity().get();
            let fastest = processes.iter().map(refilled).max().unwrap();
            let most = processes.iter().map(|gcra| gcra.capacity().get());
            let most = most.sum::<u64>() + fastest;
            assert!(admitted <= most, "{seed}, {step}: {admitted} of {most}");
        }
    }
}
