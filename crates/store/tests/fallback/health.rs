//! When the store is asked, and when it is not; and the counts of its calls.

use std::sync::atomic::Ordering;

use ratekeeper_core::{Charge, Key, Outage, Permits};
use ratekeeper_store::{BreakerState, HealthChange, Store as _};

use crate::{FOREIGN, at, charge, cut, decide, fallback, passes, ready, tend, tokens};

#[test]
fn a_foreign_value_is_reported_once_a_minute() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Local, "10/1h");
    let foreign = Charge {
        key: Key::from_bytes(FOREIGN),
        ..charge(&limit, 1)
    };
    assert_eq!(tend(&store, at(0)), None, "the store is up");
    let mut reports = Vec::new();
    for seconds in 0..120 {
        let _ = decide(&store, &[foreign], at(seconds * 1_000));
        match tend(&store, at(seconds * 1_000)) {
            None => {}
            Some(HealthChange::Foreign(why)) if why.contains("foreign") => reports.push(seconds),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(reports, [0, 60]);
}

#[test]
fn an_open_breaker_makes_no_calls_and_probes_by_itself() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Local, "1000/1h");
    assert_eq!(tend(&store, at(0)), None, "the store is up");
    cut(&store, true);
    let before = store.main().calls.load(Ordering::Relaxed);
    assert_eq!(passes(&store, &limit, at(1)), 100);
    assert_eq!(
        store.main().calls.load(Ordering::Relaxed) - before,
        4,
        "the probe was the fifth call, then the breaker is open"
    );
    assert!(matches!(store.health().state, BreakerState::Open { .. }));
    let change = tend(&store, at(2));
    assert!(matches!(change, Some(HealthChange::Down(why)) if why.contains("the wire is cut")));
    assert_eq!(tend(&store, at(3)), None, "a change is reported once");

    cut(&store, false);
    assert_eq!(
        passes(&store, &limit, at(4)),
        100,
        "no call is made before the pause is over"
    );
    assert_eq!(tend(&store, at(260)), Some(HealthChange::Up(200)));
    let left = decide(&store, &[charge(&limit, 1)], at(260)).each[0].remaining;
    assert_eq!(
        left,
        Permits::new(1_000 - 200 - 1),
        "the local charges are debited"
    );
    assert_eq!(store.health().debited, 200);
    assert_eq!(passes(&store, &limit, at(261)), 100);
    assert_eq!(
        store.health().fallback.local,
        200,
        "the store decides again"
    );
}

/// A busy store is away for a second: too few of the calls of ten seconds fail to open the breaker.
#[test]
fn a_short_outage_under_traffic_is_reported() {
    let store = fallback(1);
    store.main().notices.store(true, Ordering::Relaxed);
    let limit = tokens(0, Outage::Local, "100000/1h");
    assert_eq!(tend(&store, at(0)), None);
    assert_eq!(passes(&store, &limit, at(1)), 100);
    cut(&store, true);
    assert!(decide(&store, &[charge(&limit, 1)], at(2)).admitted);
    assert_eq!(store.health().state, BreakerState::Closed);
    assert!(store.is_down() && store.health().is_down);
    assert!(matches!(tend(&store, at(3)), Some(HealthChange::Down(_))));
    assert_eq!(tend(&store, at(4)), None, "a change is reported once");
    cut(&store, false);
    assert_eq!(tend(&store, at(5)), Some(HealthChange::Up(1)));
    assert!(!store.is_down());
}

#[test]
fn a_store_that_is_down_at_the_start_opens_the_breaker_at_once() {
    let store = fallback(1);
    cut(&store, true);
    assert!(matches!(tend(&store, at(0)), Some(HealthChange::Down(_))));
    assert!(matches!(store.health().state, BreakerState::Open { .. }));
    cut(&store, false);
    assert_eq!(tend(&store, at(300)), Some(HealthChange::Up(0)));
}

/// A store without requests that fails is noticed by the call that asks for something else.
#[test]
fn a_doubted_store_is_probed_until_it_answers_or_is_not_asked() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Deny, "10/1h");
    assert!(decide(&store, &[charge(&limit, 1)], at(0)).admitted);
    assert_eq!(tend(&store, at(1)), None);
    ready(store.doubt(at(100)));
    assert!(store.is_asked(), "it answers");
    cut(&store, true);
    ready(store.doubt(at(200)));
    assert!(!store.is_asked());
    assert!(matches!(tend(&store, at(201)), Some(HealthChange::Down(_))));
    let before = store.main().calls.load(Ordering::Relaxed);
    ready(store.doubt(at(202)));
    assert_eq!(store.main().calls.load(Ordering::Relaxed), before);
    cut(&store, false);
    assert_eq!(tend(&store, at(600)), Some(HealthChange::Up(0)));
}

/// A program that never tends its store uses one that was not there at first, and pays its debts.
#[test]
fn requests_alone_detect_that_the_store_is_back() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Local, "1000/1h");
    cut(&store, true);
    assert_eq!(passes(&store, &limit, at(0)), 100);
    assert!(!store.is_asked());
    cut(&store, false);
    let before = store.main().calls.load(Ordering::Relaxed);
    assert_eq!(passes(&store, &limit, at(99)), 100);
    assert_eq!(
        store.main().calls.load(Ordering::Relaxed),
        before,
        "no probe is due yet"
    );
    let decided = decide(&store, &[charge(&limit, 1)], at(400));
    assert!(store.is_asked());
    assert_eq!(store.health().debited, 200);
    assert_eq!(decided.each[0].remaining, Permits::new(1_000 - 200 - 1));
    // `tend` reports changes of health, however the upkeep was started.
    assert_eq!(tend(&store, at(401)), None, "the store is up");
    cut(&store, true);
    assert_eq!(passes(&store, &limit, at(402)), 100);
    assert!(matches!(tend(&store, at(403)), Some(HealthChange::Down(_))));
    cut(&store, false);
    let _ = decide(&store, &[charge(&limit, 1)], at(1_000));
    assert_eq!(tend(&store, at(1_001)), Some(HealthChange::Up(100)));
}

/// Their number does not outweigh the requests that need the store.
#[test]
fn requests_without_limits_do_not_count_for_the_health_of_the_store() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Deny, "10/1h");
    cut(&store, true);
    for _ in 0..100 {
        assert!(decide(&store, &[], at(0)).admitted);
        assert!(ready(store.look(&[], at(0))).unwrap().admitted);
    }
    assert_eq!(passes(&store, &limit, at(0)), 0);
    assert!(!store.is_asked());
    assert_eq!((store.health().answered, store.health().failed), (0, 5));
    assert!(decide(&store, &[], at(0)).admitted);
    assert_eq!(store.health().fallback.local, 0, "no decision was made");
}

#[test]
fn calls_are_counted_by_act_and_probes_apart() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Deny, "10/1h");
    assert!(decide(&store, &[charge(&limit, 1)], at(0)).admitted);
    assert!(
        ready(store.look(&[charge(&limit, 1)], at(0)))
            .unwrap()
            .admitted
    );
    cut(&store, true);
    assert_eq!(passes(&store, &limit, at(0)), 0);
    assert!(!store.is_asked());
    cut(&store, false);
    let _ = decide(&store, &[charge(&limit, 1)], at(31_000)); // it starts a probe
    let health = store.health();
    let calls = |op: &str| {
        let found = health.calls.iter().find(|it| it.op == op);
        found.map(|it| (it.answered, it.failed))
    };
    assert_eq!(calls("look"), Some((1, 0)));
    // With the two that were answered, they are the five calls that the breaker needs.
    assert_eq!(calls("decide").map(|(_, failed)| failed), Some(3));
    assert_eq!(calls("probe"), Some((1, 0)));
    let answered = health.calls.iter().map(|it| it.answered).sum::<u64>();
    assert_eq!((health.answered, health.failed), (answered - 1, 3));
}
