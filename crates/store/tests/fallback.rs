//! Decisions while a store fails, and the debits afterwards; in virtual time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ratekeeper_core::{
    AnyAlgorithm, Charge, Concurrency, Gcra, Key, Lend, Limit, LimitId, LimitScope, Log, Mode,
    Nanos, Outage, Permits, Time, Verdict, WarmUp, Window,
};
use ratekeeper_store::{
    ActItem as _, ActKind, ActualCost, BreakerState, Decisions, Fallback, HealthChange, Hold,
    MemoryConfig, MemoryStore, Remote, Settled, Store, StoreAct, StoreError, conformance,
};

/// A memory store behind a wire that can be cut.
struct Distant {
    store: MemoryStore,
    cut: AtomicBool,
    foreign: AtomicBool,
    /// Debits are not answered.
    stalls: AtomicBool,
    /// Calls that reached the wire.
    calls: AtomicU64,
}

impl Distant {
    fn reach(&self) -> Result<&MemoryStore, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.cut.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("the wire is cut".into()));
        }
        Ok(&self.store)
    }
}

/// Where something else is in the store, while `foreign` says so.
const FOREIGN: &[u8] = b"foreign";

impl Store for Distant {
    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let store = self.reach()?;
        let of_it = |item: &A::Item<'_>| item.charge().key.as_bytes() == FOREIGN;
        let is_decided = act.kind() == ActKind::Decide(Lend::Unnamed);
        if is_decided && self.foreign.load(Ordering::Relaxed) && items.iter().any(of_it) {
            return Err(StoreError::Foreign("a list".into()));
        }
        store.settle(act, items, now).await
    }
}

impl Remote for Distant {
    async fn ping(&self) -> Result<(), StoreError> {
        self.reach().map(|_| ())
    }

    async fn debit(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        if self.stalls.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.decide(charges, now).await
    }
}

fn fallback(nodes: u32) -> Fallback<Distant> {
    let memory = || MemoryStore::new(MemoryConfig::default());
    let distant = Distant {
        store: memory(),
        cut: AtomicBool::new(false),
        foreign: AtomicBool::new(true),
        stalls: AtomicBool::new(false),
        calls: AtomicU64::new(0),
    };
    Fallback::new(distant, memory(), NonZeroU32::new(nodes).unwrap())
}

fn cut(store: &Fallback<Distant>, cut: bool) {
    store.main().cut.store(cut, Ordering::Relaxed);
}

fn at(millis: u64) -> Time {
    Time::ZERO + Nanos::from_millis(millis)
}

fn limit(id: u32, outage: Outage, algorithm: impl Into<AnyAlgorithm>) -> Limit {
    Limit {
        name: format!("limit-{id}").into(),
        id: LimitId::new(id),
        version: 1,
        outage,
        scope: LimitScope::Cluster,
        algorithm: algorithm.into(),
    }
}

fn tokens(id: u32, outage: Outage, quota: &str) -> Limit {
    limit(
        id,
        outage,
        Gcra::token_bucket(quota.parse().unwrap()).unwrap(),
    )
}

fn charge(limit: &Limit, cost: u64) -> Charge<'_> {
    Charge {
        limit,
        key: Key::from_bytes(b"ada"),
        cost: Permits::new(cost),
        mode: Mode::Enforce,
    }
}

/// The result of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    use std::task::{Context, Poll, Waker};
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the future is ready on its first poll"),
    }
}

fn decide(store: &Fallback<Distant>, charges: &[Charge<'_>], now: Time) -> Decisions {
    ready(store.decide(charges, now)).unwrap()
}

/// How many of a hundred requests of one permit pass at `now`.
fn passes(store: &Fallback<Distant>, limit: &Limit, now: Time) -> usize {
    let one = |_| decide(store, &[charge(limit, 1)], now).admitted;
    (0..100).map(one).filter(|admitted| *admitted).count()
}

#[test]
fn a_fallback_with_its_store_conforms() {
    conformance::check(|| fallback(3));
}

/// The fallback of a single process has the whole limit as its share.
#[test]
fn a_fallback_without_its_store_conforms() {
    conformance::check(|| {
        let store = fallback(1);
        cut(&store, true);
        Local(store)
    });
}

/// A fallback with local resets and grants, and refunds and settlements of charges not made here: the real one fails them,
/// since nothing would change where the states are.
struct Local(Fallback<Distant>);

impl Store for Local {
    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let local = self.0.local();
        match act.kind() {
            ActKind::GiveBack | ActKind::Settle => match self.0.settle(act, items, now).await {
                Err(StoreError::Unavailable(_)) => local.settle(act, items, now).await,
                refunded => refunded,
            },
            ActKind::Reset | ActKind::Grant => {
                assert!(self.0.settle(act, items, now).await.is_err());
                local.settle(act, items, now).await
            }
            ActKind::Release | ActKind::Renew => local.settle(act, items, now).await,
            _ => self.0.settle(act, items, now).await,
        }
    }
}

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
    ready(store.tend(at(60_000)));
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
    assert_eq!(
        decide(&store, &[charge(&limits[0], 0)], at(0)).each[0]
            .remaining
            .get(),
        6
    );
    assert_eq!(refund(&[local]), Ok(()));
    assert_eq!(
        decide(&store, &[charge(&limits[0], 0)], at(0)).each[0]
            .remaining
            .get(),
        10
    );
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
fn a_debt_is_owed_here_until_the_store_is_back() {
    let limits = [
        tokens(0, Outage::Local, "10/1h"),
        tokens(1, Outage::Deny, "10/1h"),
    ];
    let store = fallback(1);
    let settle = |taken, used: &[u64]| {
        let settled: Vec<_> = limits
            .iter()
            .zip(used)
            .map(|(limit, &used)| Settled {
                charge: charge(limit, taken),
                used: ActualCost::Permits(Permits::new(used)),
            })
            .collect();
        ready(store.correct(&settled, at(0)))
    };
    let remaining = || decide(&store, &[charge(&limits[0], 0)], at(0)).each[0].remaining;
    assert!(decide(&store, &[charge(&limits[0], 4)], at(0)).admitted);
    cut(&store, true);
    assert!(
        matches!(settle(4, &[1]), Err(StoreError::Unavailable(_))),
        "charged there"
    );
    assert!(
        settle(4, &[7, 7]).is_err(),
        "a limit that counts nothing here owes nothing here"
    );
    assert_eq!(remaining(), Permits::new(10));
    assert_eq!(settle(4, &[7]), Ok(()));
    assert_eq!(remaining(), Permits::new(7), "three are owed here");
    assert!(decide(&store, &[charge(&limits[0], 2)], at(0)).admitted);
    assert_eq!(settle(2, &[1]), Ok(()), "charged here");
    assert_eq!(remaining(), Permits::new(6));
    cut(&store, false);
    let _up = ready(store.tend(at(60_000)));
    assert_eq!(remaining(), Permits::new(2), "four there, four debited");
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
        let refused = ready(store.correct(&[Settled { charge, used }], at(0)));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
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
fn an_open_breaker_makes_no_calls_and_probes_by_itself() {
    let store = fallback(1);
    let limit = tokens(0, Outage::Local, "1000/1h");
    assert_eq!(ready(store.tend(at(0))), None, "the store is up");
    cut(&store, true);
    let before = store.main().calls.load(Ordering::Relaxed);
    assert_eq!(passes(&store, &limit, at(1)), 100);
    assert_eq!(
        store.main().calls.load(Ordering::Relaxed) - before,
        4,
        "the probe was the fifth call, then the breaker is open"
    );
    assert!(matches!(store.health().state, BreakerState::Open { .. }));
    let change = ready(store.tend(at(2)));
    assert!(matches!(change, Some(HealthChange::Down(why)) if why.contains("the wire is cut")));
    assert_eq!(ready(store.tend(at(3))), None, "a change is reported once");

    cut(&store, false);
    assert_eq!(
        passes(&store, &limit, at(4)),
        100,
        "no call is made before the pause is over"
    );
    assert_eq!(ready(store.tend(at(260))), Some(HealthChange::Up(200)));
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

#[test]
fn a_store_that_is_down_at_the_start_opens_the_breaker_at_once() {
    let store = fallback(1);
    cut(&store, true);
    assert!(matches!(
        ready(store.tend(at(0))),
        Some(HealthChange::Down(_))
    ));
    assert!(matches!(store.health().state, BreakerState::Open { .. }));
    cut(&store, false);
    assert_eq!(ready(store.tend(at(300))), Some(HealthChange::Up(0)));
}

/// At most one limit's worth for each key, and only charges that still count.
#[test]
fn debts_are_the_charges_that_still_count_against_a_key() {
    let quota = "10/1m";
    let parse = || quota.parse().unwrap();
    let algorithms: [AnyAlgorithm; 3] = [
        Gcra::token_bucket(parse()).unwrap().into(),
        Window::fixed(parse(), Nanos::ZERO).unwrap().into(),
        Log::sliding(parse()).unwrap().into(),
    ];
    for algorithm in algorithms {
        for (wait, debited) in [(0, 4), (61_000, 0)] {
            let store = fallback(2);
            let limit = limit(0, Outage::Local, algorithm.clone());
            cut(&store, true);
            let _ = ready(store.tend(at(0)));
            for _ in 0..4 {
                assert!(decide(&store, &[charge(&limit, 1)], at(0)).admitted);
            }
            cut(&store, false);
            let back = at(1_000 + wait);
            assert_eq!(ready(store.tend(back)), Some(HealthChange::Up(debited)));
            assert_eq!(
                passes(&store, &limit, back),
                usize::try_from(10 - debited).unwrap()
            );
        }
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
    let _ = ready(store.tend(at(1)));
    cut(&store, false);
    assert_eq!(ready(store.tend(at(300))), Some(HealthChange::Up(3)));
    assert_eq!(passes(&store, &limit, at(300)), 0);
}

/// What finds no room in the store still counts against the share, until it has drained.
#[test]
fn a_share_is_spent_once_however_often_the_store_fails() {
    let parse = || "10/1h".parse().unwrap();
    let algorithms: [AnyAlgorithm; 3] = [
        Gcra::token_bucket(parse()).unwrap().into(),
        Window::fixed(parse(), Nanos::ZERO).unwrap().into(),
        Log::sliding(parse()).unwrap().into(),
    ];
    for algorithm in algorithms {
        let store = fallback(2);
        let limit = limit(0, Outage::Local, algorithm);
        assert_eq!(passes(&store, &limit, at(0)), 10);
        let mut admitted = 0;
        for round in 1..=8 {
            cut(&store, true);
            admitted += passes(&store, &limit, at(round * 10_000));
            cut(&store, false);
            let back = at(round * 10_000 + 5_000);
            let _ = ready(store.tend(back));
            assert!(store.is_asked());
            admitted += passes(&store, &limit, back);
        }
        assert_eq!(admitted, 5, "{limit:?}");
    }
}

/// A program that never looks after it finds a store that was not there at first, and pays.
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
    assert_eq!(ready(store.tend(at(401))), None, "the store is up");
    cut(&store, true);
    assert_eq!(passes(&store, &limit, at(402)), 100);
    assert!(matches!(
        ready(store.tend(at(403))),
        Some(HealthChange::Down(_))
    ));
    cut(&store, false);
    let _ = decide(&store, &[charge(&limit, 1)], at(1_000));
    assert_eq!(ready(store.tend(at(1_001))), Some(HealthChange::Up(100)));
}

/// A request may be cancelled while it pays: unpaid debts are still owed.
#[test]
fn debts_outlive_the_request_that_pays_them() {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
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

/// However many there are, they do not outweigh those that need the store.
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

/// It is decided by this process alone, and holds up neither others nor their debts.
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
    assert_eq!(ready(store.tend(at(1))), None, "the store is up");
    assert!(decide(&store, &[charge(&limits[0], 1)], at(1)).admitted);
    assert_eq!(store.health().fallback.local, 100);

    cut(&store, true);
    for limit in &limits {
        let _ = passes(&store, limit, at(2));
    }
    let _ = ready(store.tend(at(2)));
    cut(&store, false);
    assert_eq!(ready(store.tend(at(300))), Some(HealthChange::Up(10)));
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
fn permits_lent_without_the_store_can_be_released() {
    use ratekeeper_core::{Concurrency, LeaseId};
    let pool = Concurrency::new(Permits::new(6), Nanos::from_secs(60)).unwrap();
    let limit = limit(0, Outage::Local, pool);
    let store = fallback(2);
    cut(&store, true);
    let _ = ready(store.tend(at(0)));
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
    let _ = ready(store.tend(at(300)));
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
