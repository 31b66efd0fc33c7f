//! Decisions while the store fails, by the choice of each limit.

use ratekeeper_core::{
    Charge, Concurrency, Key, LeaseId, Lend, Limit, LimitScope, Mode, Nanos, Outage, Permits,
    Verdict, WarmUp, Window,
};
use ratekeeper_store::{FallbackCounts, Hold, Store as _, StoreError, conformance};

use crate::{
    CROWDED, at, charge, cut, decide, fallback, limit, passes, ready, remaining, tend, tokens,
};

#[test]
fn each_limit_follows_its_choice_for_outages() {
    let quota = "10/1h";
    for (outage, nodes, expected) in [
        (Outage::Local, 1, 10),
        (Outage::Local, 3, 3),  // down: 3 x 3 <= 10
        (Outage::Local, 11, 0), // a part of a permit is none
        (Outage::Allow, 3, 100),
        (Outage::Deny, 3, 0),
    ] {
        let store = fallback(nodes);
        cut(&store, true);
        let limit = tokens(0, outage, quota);
        assert_eq!(
            passes(&store, &limit, at(0)),
            expected,
            "{outage:?} of {nodes}"
        );
        let refused = decide(&store, &[charge(&limit, 1)], at(0)).each[0].verdict;
        assert_ne!(refused, Verdict::DenyForever, "the denial has a wait");
    }
}

/// A limit that each process counts by itself is not divided, and its debts are whole.
#[test]
fn a_limit_of_each_process_is_held_whole() {
    let store = fallback(3);
    cut(&store, true);
    let whole = Limit {
        scope: LimitScope::Node,
        ..tokens(0, Outage::Local, "10/1h")
    };
    let shared = tokens(1, Outage::Local, "100/1h");
    let both = [charge(&whole, 4), charge(&shared, 4)];
    let decisions = decide(&store, &both, at(0));
    assert!(decisions.admitted);
    assert_eq!(decisions.each[0].remaining.get(), 6);
    assert_eq!(
        decisions.each[1].remaining.get(),
        29,
        "a third of 100, less 4"
    );
    assert_eq!(passes(&store, &whole, at(0)), 6);

    cut(&store, false);
    tend(&store, at(60_000));
    let left = |limit: &Limit| {
        let look = ready(store.main().look(&[charge(limit, 0)], at(60_000)));
        look.unwrap().each[0].remaining.get()
    };
    assert_eq!(left(&whole), 0, "the debt of 10 is charged");
    assert_eq!(left(&shared), 96);
}

#[test]
fn a_limit_may_return_the_error_of_the_store() {
    let store = fallback(3);
    cut(&store, true);
    let limits = [
        tokens(0, Outage::Local, "10/1h"),
        tokens(1, Outage::Error, "10/1h"),
    ];
    let [local, error] = [charge(&limits[0], 3), charge(&limits[1], 1)];
    let failed = ready(store.decide(&[local, error], at(0)));
    assert!(matches!(failed, Err(StoreError::Unavailable(_))));
    // Nothing was charged to the other.
    assert_eq!(passes(&store, &limits[0], at(0)), 3);
}

#[test]
fn a_refund_that_cannot_be_made_is_an_error() {
    let limits = [
        tokens(0, Outage::Local, "10/1h"),
        tokens(1, Outage::Allow, "10/1h"),
    ];
    let store = fallback(1);
    let refund = |charges: &[Charge<'_>]| ready(store.refund(charges, at(0)));
    let [local, passes] = [charge(&limits[0], 4), charge(&limits[1], 4)];
    assert!(decide(&store, &[local], at(0)).admitted);
    cut(&store, true);
    // A charge made there cannot be given back here.
    assert!(matches!(refund(&[local]), Err(StoreError::Unavailable(_))));
    // A charge made here can, but only with all the rest of a request.
    assert!(decide(&store, &[local, passes], at(0)).admitted);
    assert!(refund(&[local, passes]).is_err());
    assert_eq!(remaining(&store, &limits[0], at(0)), 6);
    assert_eq!(refund(&[local]), Ok(()));
    assert_eq!(remaining(&store, &limits[0], at(0)), 10);
    // In no store does a post-paid limit give anything back.
    cut(&store, false);
    let post_paid = limit(2, Outage::Local, WarmUp::bursty(1.0, 1.0).unwrap());
    let refused = refund(&[local, charge(&post_paid, 1)])
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("the limit `limit-2`: a smooth bursty limit"),
        "{refused}"
    );
}

#[test]
fn one_refusal_refuses_the_request_and_no_limit_is_charged() {
    let limits = [
        tokens(0, Outage::Local, "10/1h"),
        tokens(1, Outage::Allow, "10/1h"),
        tokens(2, Outage::Deny, "10/1h"),
    ];
    let store = fallback(1);
    cut(&store, true);
    let mut charges: Vec<Charge<'_>> = limits.iter().map(|limit| charge(limit, 1)).collect();
    let decided = decide(&store, &charges, at(0));
    assert!(!decided.admitted);
    assert_eq!(
        decided.each[0].remaining,
        Permits::new(10),
        "the balance is unchanged"
    );
    assert_eq!(
        passes(&store, &limits[0], at(0)),
        10,
        "no permit was charged"
    );

    charges[2].mode = Mode::Shadow;
    charges[0].key = Key::from_bytes(b"bob");
    assert!(
        decide(&store, &charges, at(0)).admitted,
        "a limit in shadow mode refuses no request"
    );
    let counts = store.health().fallback;
    assert_eq!((counts.deny, counts.allow), (1, 1));
}

#[test]
fn permits_lent_without_the_store_can_be_released() {
    let pool = Concurrency::new(Permits::new(6), Nanos::from_secs(60)).unwrap();
    let limit = limit(0, Outage::Local, pool);
    let store = fallback(2);
    cut(&store, true);
    let _ = tend(&store, at(0));
    let lease = LeaseId::from_bytes([7; 16]);
    let lent = ready(store.acquire(&[charge(&limit, 3)], Lend::To(lease), at(0))).unwrap();
    assert!(lent.admitted);
    let more = ready(store.acquire(
        &[charge(&limit, 1)],
        Lend::To(LeaseId::from_bytes([8; 16])),
        at(0),
    ));
    assert!(
        !more.unwrap().admitted,
        "the share of this process, half of six, is lent"
    );
    let hold = Hold {
        limit: &limit,
        key: Key::from_bytes(b"ada"),
        lease,
    };
    cut(&store, false);
    let _ = tend(&store, at(300));
    let renewed = ready(store.renew(&[hold], at(300))).unwrap();
    assert_eq!(renewed.as_slice(), [Some(Nanos::from_secs(60))]);
    let back = ready(store.release(&[hold], at(300))).unwrap();
    assert_eq!(back.as_slice(), [Permits::new(3)]);
}

/// A condition counts once in each process, and the headroom of a share is the same part of it.
#[test]
fn conditions_and_headroom_hold_without_the_store() {
    let window = |quota: &str| Window::fixed(quota.parse().unwrap(), Nanos::ZERO).unwrap();
    let seen = limit(0, Outage::Local, window("1/1h"));
    let values = limit(1, Outage::Local, window("4/1h"));
    let shared = limit(2, Outage::Local, window("10/1h"));
    let store = fallback(2);
    cut(&store, true);
    let met = |value: &'static [u8]| {
        let condition = Charge {
            key: Key::from_bytes(value),
            mode: Mode::Once,
            ..charge(&seen, 1)
        };
        decide(&store, &[condition, charge(&values, 1)], at(0)).admitted
    };
    // The share of one of two processes: two values of four.
    for (value, admitted) in [
        (&b"a"[..], true),
        (b"a", true),
        (b"b", true),
        (b"c", false),
        (b"b", true),
        (b"c", false),
    ] {
        assert_eq!(met(value), admitted, "{value:?}");
    }
    let headroom = Charge {
        mode: Mode::Headroom,
        ..charge(&shared, 2)
    };
    let low = || decide(&store, &[headroom, charge(&shared, 1)], at(0)).admitted;
    assert_eq!(
        (0..9).filter(|_| low()).count(),
        4,
        "a fifth of five is kept"
    );
    assert_eq!(passes(&store, &shared, at(0)), 1);
}

/// The store is in use, so nothing is decided without it, whatever was chosen for its failures.
#[test]
fn a_request_that_waits_too_long_is_refused_and_is_no_failure() {
    let store = fallback(1);
    for outage in [Outage::Local, Outage::Allow, Outage::Deny, Outage::Error] {
        let limit = tokens(0, outage, "10/1h");
        let crowded = |mode| Charge {
            mode,
            ..conformance::charge(&limit, CROWDED, 1)
        };
        for mode in [Mode::Enforce, Mode::Shadow] {
            // A condition excuses no charge, because it is not known either.
            let decided = decide(&store, &[crowded(Mode::Once), crowded(mode)], at(0));
            assert_eq!(decided.admitted, mode == Mode::Shadow, "{outage:?}");
            let retry_after = decided.each[1].verdict.retry_after();
            assert_eq!(retry_after, Some(Nanos::SECOND), "{outage:?}");
            assert!(decided.without_store && decided.each[0].verdict.allows());
        }
        assert!(decide(&store, &[charge(&limit, 1)], at(0)).admitted);
    }
    let health = store.health();
    assert_eq!(
        (health.failed, health.fallback),
        (0, FallbackCounts::default())
    );
    assert!(!health.is_down);
}

/// Otherwise no limit would be the one that refuses.
#[test]
fn a_condition_does_not_excuse_the_charge_that_an_outage_refuses() {
    let store = fallback(1);
    cut(&store, true);
    let limit = tokens(0, Outage::Deny, "10/1h");
    let condition = Charge {
        mode: Mode::Once,
        ..charge(&limit, 1)
    };
    let decided = decide(&store, &[condition, charge(&limit, 1)], at(0));
    assert!(!decided.admitted && !decided.each[1].verdict.allows());
    assert!(decided.asks(1, |at| [Mode::Once, Mode::Enforce][at]));
}
