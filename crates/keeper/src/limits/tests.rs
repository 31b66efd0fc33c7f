//! Several limits over one store: all or none, and corrected afterwards.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Concurrency, Gcra, Log, Nanos, Permits, WarmUp};

use super::*;
use crate::limiter::Refused;
use crate::{ManualClock, at_once};

fn limits() -> Limits<MemoryStore, Arc<ManualClock>> {
    let store = MemoryStore::new(MemoryConfig::default());
    Limits::new(store, Arc::default())
}

fn bucket<S: Store, C: Clock>(limits: &Limits<S, C>, name: &str, quota: &str) -> NamedLimit<S, C> {
    limits.token_bucket(name, quota.parse().unwrap()).unwrap()
}

fn remaining<S: Store, C: Clock>(limit: &NamedLimit<S, C>, key: &str) -> u64 {
    at_once(limit.peek(key)).unwrap().remaining.get()
}

fn refused(limit: &str, refused: Refused) -> CheckError {
    let limit = limit.into();
    CheckError::Refused { limit, refused }
}

#[test]
fn the_longest_wait_of_those_that_refuse_is_reported() {
    let limits = limits();
    let [short, long] = [
        bucket(&limits, "short", "1/1s"),
        bucket(&limits, "long", "1/1h"),
    ];
    let ask = |cost| at_once(limits.check(&[long.of("ann"), short.of("ann").cost(cost)]));
    let grant = ask(1).unwrap();
    let each: Vec<_> = grant.decisions().map(|(name, _)| name).collect();
    assert_eq!(each, ["long", "short"]);
    let hour = at_once(long.check("ann")).unwrap_err();
    assert_eq!(ask(1), Err(hour.clone()));
    assert_eq!(
        hour.to_string(),
        "limit `long`: the limit is used up; try again in 60 min"
    );
    assert_eq!(ask(2), Err(refused("short", Refused::Never)));
    let too_much = u64::from(u32::MAX) + 1;
    assert_eq!(ask(too_much), Err(refused("short", Refused::Never)));
}

#[test]
fn one_refusal_charges_nothing_and_a_settlement_corrects_all() {
    let limits = limits();
    let [requests, tokens] = [
        bucket(&limits, "requests", "10/1h"),
        bucket(&limits, "tokens", "1000/1h"),
    ];
    let charges = |cost| [requests.of("ann"), tokens.of(("ann", "large")).cost(cost)];
    let left = || {
        let tokens = at_once(tokens.peek(("ann", "large"))).unwrap();
        (remaining(&requests, "ann"), tokens.remaining.get())
    };
    let grant = at_once(limits.check(&charges(600))).unwrap();
    assert!(at_once(limits.check(&charges(600))).is_err());
    assert_eq!(left(), (9, 400));
    at_once(limits.settle(grant.used(&tokens, 100))).unwrap();
    assert_eq!(left(), (9, 900));
    let grant = at_once(limits.check(&charges(900))).unwrap();
    at_once(limits.settle(grant.used(&requests, 0).used(&tokens, 1_000))).unwrap();
    assert_eq!(left(), (9, 0));
    let debt = at_once(tokens.check(("ann", "large"))).unwrap_err();
    let hundred_owed = "limit `tokens`: the limit is used up; try again in 7 min";
    assert_eq!(debt.to_string(), hundred_owed, "101 tokens, 3.6 s each");
    let unchanged = at_once(requests.check("ann")).unwrap();
    at_once(limits.settle(unchanged)).unwrap();
    let given_back = at_once(requests.check("ann")).unwrap();
    at_once(limits.refund(given_back)).unwrap();
    assert_eq!(left(), (8, 0));
    assert!(at_once(requests.reset("ann")).unwrap());
    assert_eq!(left(), (10, 0));
}

#[test]
fn limits_of_others_and_of_one_name_are_errors() {
    let (limits, others) = (limits(), self::limits());
    let mine = bucket(&limits, "calls", "1/1h");
    let theirs = bucket(&others, "calls", "1/1h");
    let error = at_once(limits.check(&[mine.of(()), theirs.of(())])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store is misconfigured: the limit `calls` belongs to other `Limits`"
    );
    assert!(at_once(mine.check(())).is_ok(), "nothing was charged");

    for (name, message) in [
        (
            "calls",
            "two limits are called `calls`; hint: keep the limit that was added, and clone it",
        ),
        (
            "Per\nUser",
            "`Per\\nUser` is not a valid name of a limit; expected 1 to 40 of a-z, 0-9 and -, for \
             example `per-user`",
        ),
    ] {
        let error = limits.token_bucket(name, Quota::per_second(1)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let unsupported = "1/365d"
        .parse::<Quota>()
        .unwrap()
        .with_burst(Permits::new(9))
        .unwrap();
    assert!(matches!(
        limits.token_bucket("slow", unsupported),
        Err(NewLimitError::Quota(_))
    ));
}

#[test]
fn a_grant_is_settled_by_the_limits_that_made_it() {
    let (limits, others) = (limits(), self::limits());
    let mine = bucket(&limits, "mine", "5/1h");
    let theirs = bucket(&others, "theirs", "5/1h");
    for settles in [true, false] {
        at_once(theirs.check_n("ann", 2)).unwrap();
        let grant = at_once(mine.check_n("ann", 2)).unwrap();
        let result = if settles {
            at_once(others.settle(grant.used(&mine, 0)))
        } else {
            at_once(others.refund(grant))
        };
        let why = "the store is misconfigured: the grant belongs to other `Limits`";
        assert_eq!(result.unwrap_err().to_string(), why);
    }
    assert_eq!((remaining(&mine, "ann"), remaining(&theirs, "ann")), (1, 1));
}

#[test]
fn algorithms_that_take_nothing_back_are_not_settled() {
    let limits = limits();
    let paced = limits
        .limit("paced", WarmUp::bursty(1.0, 1.0).unwrap())
        .unwrap();
    let lent = Concurrency::new(Permits::new(1), Nanos::from_secs(60)).unwrap();
    let lent = limits.limit("lent", lent).unwrap();
    let grant = at_once(limits.check(&[paced.of(()), lent.of(())])).unwrap();
    let error = at_once(limits.settle(grant.used(&paced, 2))).unwrap_err();
    assert!(matches!(error, StoreError::Unsupported(_)), "{error}");
    assert!(at_once(lent.check(())).is_err());
}

#[test]
fn a_permit_is_refunded_and_not_settled() {
    let limits = limits();
    let lent = Concurrency::new(Permits::new(1), Nanos::from_secs(60)).unwrap();
    let lent = limits.limit("lent", lent).unwrap();
    let grant = at_once(lent.check(())).unwrap();
    assert!(at_once(lent.check(())).is_err());
    at_once(limits.refund(grant)).unwrap();
    let grant = at_once(lent.check(())).unwrap();
    let error = at_once(limits.settle(grant.used(&lent, 2))).unwrap_err();
    let why = "the limit `lent` lends permits, which are released and not settled";
    assert_eq!(error.to_string(), why);
}

#[test]
fn a_changed_limit_inherits_the_used_permits() {
    let limits = limits();
    let log = |quota: &str| Log::sliding(quota.parse().unwrap()).unwrap();
    let calls = limits.limit("calls", log("5/1h")).unwrap();
    at_once(calls.check_n("ann", 4)).unwrap();
    calls.clone().set_limit(log("20/1h"));
    assert_eq!(remaining(&calls, "ann"), 16);
    let denied = calls.on_outage(Outage::Deny);
    assert_eq!(remaining(&denied, "ann"), 16);
}

#[test]
fn debug_output_holds_no_key() {
    let limits = limits();
    let calls = bucket(&limits, "calls", "5/1h");
    let charge = calls.of("ann@example.com");
    let grant = at_once(limits.check(&[calls.of("ann@example.com")])).unwrap();
    let shown = format!("{limits:?} {charge:?} {grant:?}");
    assert!(shown.contains("calls") && !shown.contains("ann"), "{shown}");
}

#[test]
fn threads_admit_exactly_the_limit_and_charge_nothing_else() {
    let limits = limits();
    let [requests, tokens] = [
        bucket(&limits, "requests", "1000/24h"),
        bucket(&limits, "tokens", "300/24h"),
    ];
    let ask = || {
        let charges = [requests.of("ann"), tokens.of("team").cost(3)];
        let asked = (0..100).map(|_| at_once(limits.check(&charges)));
        asked.flatten().count()
    };
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        threads.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
    assert_eq!(
        (remaining(&requests, "ann"), remaining(&tokens, "team")),
        (900, 0)
    );
}

/// Polls a future that waits by a clock that is moved by hand, to its end.
fn waited<T>(clock: &ManualClock, future: impl Future<Output = T>) -> (Nanos, T) {
    let mut future = std::pin::pin!(future);
    let (began, mut context) = (
        clock.now(),
        std::task::Context::from_waker(std::task::Waker::noop()),
    );
    loop {
        if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return (clock.now().since(began), value);
        }
        clock.set(clock.next_wake().unwrap());
    }
}

#[test]
fn a_caller_waits_for_all_limits_and_settles_what_it_took() {
    let limits = limits();
    let [calls, tokens] = [
        bucket(&limits, "calls", "1/1s"),
        bucket(&limits, "tokens", "60/1m"),
    ];
    let charges = [calls.of("ann"), tokens.of("ann").cost(40)];
    let acquire = || waited(limits.clock(), limits.acquire(&charges));
    assert_eq!(acquire().0, Nanos::ZERO);
    let (span, grant) = acquire();
    assert_eq!(span, Nanos::from_secs(20));
    at_once(limits.settle(grant.unwrap().used(&tokens, 10))).unwrap();
    assert_eq!(acquire().0, Nanos::from_secs(10));

    let within = |secs| limits.acquire_within(&charges, Duration::from_secs(secs));
    let (span, late) = waited(limits.clock(), within(39));
    assert_eq!(
        (span, late.is_err()),
        (Nanos::ZERO, true),
        "refused at once"
    );
    assert!(waited(limits.clock(), within(40)).1.is_ok());
    let never = waited(limits.clock(), tokens.acquire_n("ann", 61)).1;
    assert_eq!(never, Err(refused("tokens", Refused::Never)));
}

#[test]
fn under_a_leaky_queue_a_caller_waits_for_its_delay() {
    let limits = limits();
    let queue = Gcra::leaky_queue(Quota::per_minute(60), 1).unwrap();
    let mails = limits.limit("mails", queue).unwrap();
    let waits = [0, 1, 1].map(Nanos::from_secs);
    assert_eq!(
        waits.map(|_| waited(limits.clock(), mails.acquire(())).0),
        waits
    );
    let other = bucket(&limits, "other", "2/1m");
    let charges = [mails.of(()), other.of("ann")];
    let within = |millis| limits.acquire_within(&charges, Duration::from_millis(millis));
    let (span, late) = waited(limits.clock(), within(999));
    let wait = Refused::Until(Duration::from_secs(1));
    assert_eq!((span, late), (Nanos::ZERO, Err(refused("mails", wait))));
    assert_eq!(remaining(&other, "ann"), 2, "nothing is charged");
    let (span, served) = waited(limits.clock(), within(1_000));
    assert_eq!((span, served.is_ok()), (Nanos::SECOND, true));
}

#[test]
fn a_reservation_is_charged_and_can_be_given_back() {
    let limits = limits();
    let mails = bucket(&limits, "mails", "2/1m");
    let hour = Duration::from_secs(3_600);
    let reserve = |cost| mails.reserve("ann", cost, hour);
    assert!(reserve(2).unwrap().delay().is_zero());
    let later = reserve(3).unwrap();
    assert_eq!(later.delay().as_secs(), 90, "also above the burst");
    at_once(limits.refund(later)).unwrap();
    assert_eq!(reserve(1).unwrap().delay().as_secs(), 30);
    assert!(matches!(reserve(1_000), Err(CheckError::Refused { .. })));
    let log = limits.limit("log", Log::sliding("1/1s".parse().unwrap()).unwrap());
    let unsupported = log.unwrap().reserve("ann", 1, hour);
    assert!(matches!(
        unsupported,
        Err(CheckError::Store(StoreError::Unsupported(_)))
    ));
}

#[test]
fn keys_with_numbers_of_their_own_keep_them_across_changes() {
    let limits = limits();
    let calls = bucket(&limits, "calls", "2/1h");
    let quota = |text: &str| text.parse::<Quota>().unwrap();
    let large = || [calls.of("ann").quota(quota("10/1h")).cost(4)];
    let grant = at_once(limits.check(&large())).unwrap();
    at_once(limits.settle(grant.used(&calls, 3))).unwrap();
    calls.set_quota(quota("1/1h")).unwrap();
    let calls = calls.on_outage(Outage::Deny);
    let left = |charge| at_once(limits.peek(&[charge])).unwrap()[0].remaining.get();
    let of = |text| calls.of("ann").quota(quota(text)).cost(0);
    assert_eq!([left(of("10/1h")), left(of("20/1h"))], [7, 17]);
    assert_eq!(remaining(&calls, "ann"), 0, "three are more than 1/1h");
    let refused = at_once(limits.check(&[calls.of("ann").quota(quota("10/1h")).cost(8)]));
    let named = "limit `calls`: the limit is used up; try again in 6 min";
    assert_eq!(refused.unwrap_err().to_string(), named);
    assert!(at_once(calls.reset("ann")).unwrap());
    assert_eq!(left(of("10/1h")), 10);

    let unsupported = quota("1/365d").with_burst(Permits::new(9)).unwrap();
    let fits = |permits: &u64| {
        let quota = Quota::per_hour(permits * 100);
        at_once(limits.check(&[calls.of("bob").quota(quota)])).is_ok()
    };
    assert_eq!((1..=1_100).filter(fits).count(), 998, "two were used above");
    let wrong = at_once(limits.check(&[calls.of("ann").quota(unsupported)]));
    assert!(matches!(
        wrong,
        Err(CheckError::Store(StoreError::Misconfigured(_)))
    ));
}

#[test]
fn a_name_that_is_let_go_can_be_added_again() {
    let limits = limits();
    let old = bucket(&limits, "calls", "10/1h");
    at_once(old.check_n("ann", 4)).unwrap();
    assert!(limits.remove("calls") && !limits.remove("calls") && !limits.remove("other"));
    assert_eq!(format!("{limits:?}"), "Limits { names: [], .. }");
    let log = Log::sliding("20/1h".parse().unwrap()).unwrap();
    let new = limits.limit("calls", log).unwrap();
    assert_eq!([remaining(&old, "ann"), remaining(&new, "ann")], [16, 16]);
    assert!(limits.token_bucket("calls", Quota::per_second(1)).is_err());
}
