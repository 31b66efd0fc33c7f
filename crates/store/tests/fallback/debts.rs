//! Charges made without the store, and debited afterwards.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use ratekeeper_core::{
    AnyAlgorithm, Charge, Concurrency, Gcra, Key, Limit, Log, Nanos, Outage, Permits, WarmUp,
    Window,
};
use ratekeeper_store::{ActualCost, HealthChange, Settled, Store as _, StoreError};

use crate::{
    FOREIGN, at, charge, cut, decide, fallback, limit, passes, ready, remaining, tend, tokens,
};

#[test]
fn a_debt_is_owed_here_until_the_store_is_back() {
    let limits = [
        tokens(0, Outage::Local, "10/1h"),
        tokens(1, Outage::Deny, "10/1h"),
    ];
    let store = fallback(1);
    let settle = |origin, taken, used: &[u64]| {
        let settled: Vec<_> = limits
            .iter()
            .zip(used)
            .map(|(limit, &used)| Settled {
                charge: charge(limit, taken),
                used: ActualCost::Permits(Permits::new(used)),
                origin,
            })
            .collect();
        ready(store.correct(&settled, at(0)))
    };
    let remaining = || remaining(&store, &limits[0], at(0));
    let decide = |cost| {
        let decided = decide(&store, &[charge(&limits[0], cost)], at(0));
        assert!(decided.admitted);
        decided.origin(0).unwrap()
    };
    let there = decide(4);
    cut(&store, true);
    assert!(
        matches!(settle(there, 4, &[1]), Err(StoreError::Unavailable(_))),
        "charged there"
    );
    assert!(
        settle(there, 4, &[7, 7]).is_err(),
        "a limit that counts nothing here owes nothing here"
    );
    assert_eq!(remaining(), 10);
    assert_eq!(settle(there, 4, &[7]), Ok(()));
    assert_eq!(remaining(), 7, "three are owed here");
    let here = decide(2);
    assert_eq!(settle(here, 2, &[1]), Ok(()), "charged here");
    assert_eq!(remaining(), 6);
    let late = decide(1);
    cut(&store, false);
    let _up = tend(&store, at(60_000));
    assert_eq!(remaining(), 1, "four there, five debited");
    assert_eq!(settle(late, 1, &[0]), Ok(()));
    assert_eq!(
        remaining(),
        1,
        "a charge made here does not come back there"
    );
    // Loans are released, and post-paid limits take nothing back.
    for (algorithm, why) in [
        (
            Concurrency::new(Permits::new(2), Nanos::SECOND)
                .unwrap()
                .into(),
            "lends permits",
        ),
        (
            AnyAlgorithm::from(WarmUp::bursty(1.0, 1.0).unwrap()),
            "does not support refunds",
        ),
    ] {
        let limit = limit(2, Outage::Local, algorithm);
        let charge = charge(&limit, 1);
        let used = ActualCost::Permits(Permits::new(2));
        let settled = Settled {
            charge,
            used,
            origin: late,
        };
        let refused = ready(store.correct(&[settled], at(0)));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
}

/// Algorithms with states of different kinds, all of which are debited.
fn debited_algorithms(quota: &str) -> [AnyAlgorithm; 3] {
    let quota = quota.parse().unwrap();
    [
        Gcra::token_bucket(quota).unwrap().into(),
        Window::fixed(quota, Nanos::ZERO).unwrap().into(),
        Log::sliding(quota).unwrap().into(),
    ]
}

/// At most one limit's worth for each key, and only charges that still count.
#[test]
fn debts_are_the_charges_that_still_count_against_a_key() {
    for algorithm in debited_algorithms("10/1m") {
        for (wait, debited) in [(0, 4), (61_000, 0)] {
            let store = fallback(2);
            let limit = limit(0, Outage::Local, algorithm.clone());
            cut(&store, true);
            let _ = tend(&store, at(0));
            for _ in 0..4 {
                assert!(decide(&store, &[charge(&limit, 1)], at(0)).admitted);
            }
            cut(&store, false);
            let back = at(1_000 + wait);
            assert_eq!(tend(&store, back), Some(HealthChange::Up(debited)));
            assert_eq!(
                passes(&store, &limit, back),
                usize::try_from(10 - debited).unwrap()
            );
        }
    }
}

/// Numbers that change in an outage change no debt: it is counted as the memory store counts now.
#[test]
fn a_debt_keeps_its_permits_when_the_numbers_change() {
    for (before, after, left) in [("100/300d", "50/300d", 42), ("10/300d", "100/300d", 92)] {
        let store = fallback(1);
        let old = tokens(0, Outage::Local, before);
        let new = Limit {
            version: old.version + 1,
            ..tokens(0, Outage::Local, after)
        };
        assert!(decide(&store, &[charge(&old, 3)], at(0)).admitted);
        cut(&store, true);
        assert!(decide(&store, &[charge(&old, 5)], at(0)).admitted);
        store.adopt(&std::iter::once(&new), at(0));
        cut(&store, false);
        let _up = tend(&store, at(1_000));
        assert_eq!(remaining(&store, &new, at(1_000)), left, "{before}");
    }
}

/// Other processes may have spent meanwhile: then as much as fits is charged, and no more.
#[test]
fn debts_above_the_remaining_permits_take_all_of_them() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Local, "10/1h");
    assert!(decide(&store, &[charge(&limit, 7)], at(0)).admitted);
    cut(&store, true);
    assert_eq!(passes(&store, &limit, at(1)), 10);
    let _ = tend(&store, at(1));
    cut(&store, false);
    assert_eq!(tend(&store, at(300)), Some(HealthChange::Up(3)));
    assert_eq!(passes(&store, &limit, at(300)), 0);
}

/// A debt that finds no room in the store still counts against the share, until it has drained.
#[test]
fn a_share_is_spent_once_however_often_the_store_fails() {
    for algorithm in debited_algorithms("10/1h") {
        let store = fallback(2);
        let limit = limit(0, Outage::Local, algorithm);
        assert_eq!(passes(&store, &limit, at(0)), 10);
        let mut admitted = 0;
        for round in 1..=8 {
            cut(&store, true);
            admitted += passes(&store, &limit, at(round * 10_000));
            cut(&store, false);
            let back = at(round * 10_000 + 5_000);
            let _ = tend(&store, back);
            assert!(store.is_asked());
            admitted += passes(&store, &limit, back);
        }
        assert_eq!(admitted, 5, "{limit:?}");
    }
}

/// A request may be cancelled while it pays: unpaid debts are still owed.
#[test]
fn debts_outlive_the_request_that_pays_them() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Local, "10/1h");
    cut(&store, true);
    assert_eq!(passes(&store, &limit, at(0)), 10);
    cut(&store, false);
    store.main().stalls.store(true, Ordering::Relaxed);
    {
        let charges = [charge(&limit, 1)];
        let mut request = pin!(store.decide(&charges, at(400)));
        let polled = request
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Pending));
    }
    store.main().stalls.store(false, Ordering::Relaxed);
    // The probe was given back with the request; another is made when the pause is over.
    assert!(!decide(&store, &[charge(&limit, 1)], at(31_000)).admitted);
    assert_eq!(store.health().debited, 10);
}

/// A foreign key is decided by this process alone, and delays neither other keys nor their debts.
#[test]
fn a_foreign_key_affects_no_other_key() {
    let store = fallback(2);
    let limits = [0, 1].map(|id| tokens(id, Outage::Local, "10/1h"));
    let foreign = |limit| Charge {
        key: Key::from_bytes(FOREIGN),
        ..charge(limit, 1)
    };
    let passed = (0..100).filter(|_| decide(&store, &[foreign(&limits[0])], at(0)).admitted);
    assert_eq!(passed.count(), 5, "a process admits its share");
    assert_eq!(tend(&store, at(1)), None, "the store is up");
    assert!(decide(&store, &[charge(&limits[0], 1)], at(1)).admitted);
    assert_eq!(store.health().fallback.local, 100);

    cut(&store, true);
    for limit in &limits {
        let _ = passes(&store, limit, at(2));
    }
    let _ = tend(&store, at(2));
    cut(&store, false);
    assert_eq!(tend(&store, at(300)), Some(HealthChange::Up(10)));
    let held = store
        .local()
        .key(&limits[0], Key::from_bytes(FOREIGN), at(300));
    assert_eq!(
        held.unwrap().remaining,
        Permits::ZERO,
        "the debt is still held locally"
    );
}

#[test]
fn a_reset_waits_for_a_debit_that_is_under_way() {
    let limit = tokens(0, Outage::Local, "10/1h");
    let (store, later) = (fallback(1), at(60_000));
    cut(&store, true);
    assert!(decide(&store, &[charge(&limit, 5)], at(0)).admitted);
    cut(&store, false);
    store.main().stalls.store(true, Ordering::Relaxed);
    let mut context = Context::from_waker(Waker::noop());
    let mut debit = pin!(store.tend(later));
    assert!(debit.as_mut().poll(&mut context).is_pending());
    let charges = [charge(&limit, 0)];
    let mut reset = pin!(store.reset(&charges, later));
    assert!(reset.as_mut().poll(&mut context).is_pending());
    store.main().stalls.store(false, Ordering::Relaxed);
    assert!(debit.poll(&mut context).is_ready());
    let Poll::Ready(was_there) = reset.poll(&mut context) else {
        unreachable!("no debit is under way");
    };
    assert!(was_there.unwrap()[0], "the debit");
    assert_eq!(remaining(&store, &limit, later), 10);
}
