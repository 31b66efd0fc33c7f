//! Permits on loan through the whole pipeline, in virtual time: taken with the rates or not
//! at all, given back once, lost at their expiry, kept across reloads.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper::core::{LeaseId, Nanos, Origin, Permits};
use ratekeeper::policy::{Facts, Policy, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Act, Answer, Asked, Keeper, ManualClock, Permit, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

fn policy(text: &str) -> Policy {
    let context = config::Context::from(Origin::UNIX);
    match config::parse(&format!("version = 1\n{text}"), context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn keeper(text: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(text), store, ManualClock::at(Origin::UNIX))
}

const IN_FLIGHT: &str = r#"
[[limit]]
name = "in-flight"
key = ["attr:user"]
concurrency = { max = 2, lease = "60s" }
"#;

const BESIDE_A_RATE: &str = r#"
[[limit]]
name = "in-flight"
key = ["attr:user"]
concurrency = { max = 2, lease = "60s" }
[[limit]]
name = "per-hour"
key = ["attr:user"]
limit = "3/1h"
algorithm = "fixed-window"
"#;

const ANN: Facts<'static> = Facts {
    routes: &[],
    method: "",
    host: "",
    path: "",
    query: "",
    ip: None,
    country: None,
    network: None,
    headers: &[],
    cost: None,
    attributes: &[("user", "ann")],
    body: None,
    claims: None,
    descriptor: None,
};

fn acquire(keeper: &TestKeeper, name: u8, cost: u64) -> Answer {
    let facts = Facts {
        cost: Some(Permits::new(cost)),
        ..ANN
    };
    at_once(keeper.acquire(&facts, Scope::All, LeaseId::from_bytes([name; 16]))).unwrap()
}

fn permits(answer: &Answer) -> Vec<Permit> {
    answer.permits().map(|(permit, _)| permit).collect()
}

fn left(answer: &Answer) -> Vec<u64> {
    let outcomes = answer.outcomes();
    outcomes
        .map(|outcome| outcome.decision.remaining.get())
        .collect()
}

fn header(answer: &Answer, name: &str) -> Option<String> {
    let mut fields = answer.header_fields().into_iter();
    fields
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value)
}

#[test]
fn a_permit_is_taken_returned_and_released_once() {
    let keeper = keeper(IN_FLIGHT);
    let first = acquire(&keeper, 1, 1);
    let (permit, expires) = first.permits().next().unwrap();
    assert_eq!(
        (permit.limit(), expires),
        ("in-flight", Nanos::from_secs(60))
    );
    assert_eq!(
        header(&first, "ratelimit-policy").unwrap(),
        r#""in-flight";q=2;qu="concurrent-requests""#
    );
    assert_eq!(header(&first, "ratelimit").unwrap(), r#""in-flight";r=1"#);
    // As the holder sends it back.
    let permit: Permit = permit.to_string().parse().unwrap();
    let again = [permit.clone(), permit];
    assert_eq!(
        at_once(keeper.release(&again)).unwrap()[..],
        [Permits::ONE, Permits::ZERO]
    );
    assert_eq!(at_once(keeper.renew(&again)).unwrap()[..], [None, None]);
}

#[test]
fn a_refusal_lends_no_permit_and_returns_the_end_of_a_lease() {
    let keeper = keeper(IN_FLIGHT);
    let held = acquire(&keeper, 1, 2);
    assert_eq!(permits(&held).len(), 1, "one id covers the whole cost");
    keeper.clock().advance(Nanos::from_millis(59_500));
    let refused = acquire(&keeper, 2, 1);
    assert_eq!(permits(&refused), []);
    let answer = &refused;
    assert_eq!((answer.allowed(), answer.status()), (false, 429));
    assert_eq!(header(answer, "retry-after").unwrap(), "1");
    let body = answer.body().unwrap().content;
    assert!(body.contains("in-flight allows 2 at once"), "{body}");
    // The holder has crashed.
    keeper.clock().advance(Nanos::from_millis(500));
    assert!(acquire(&keeper, 3, 2).allowed());
    assert_eq!(
        at_once(keeper.release(&permits(&held))).unwrap()[..],
        [Permits::ZERO]
    );
}

#[test]
fn a_holder_that_renews_keeps_its_permits() {
    let keeper = keeper(IN_FLIGHT);
    let held = permits(&acquire(&keeper, 1, 2));
    for _ in 0..5 {
        keeper.clock().advance(Nanos::from_secs(59));
        assert_eq!(
            at_once(keeper.renew(&held)).unwrap()[..],
            [Some(Nanos::from_secs(60))]
        );
        assert!(!acquire(&keeper, 2, 1).allowed());
    }
}

#[test]
fn rates_are_charged_and_permits_taken_together_or_not_at_all() {
    let keeper = keeper(BESIDE_A_RATE);
    let first = acquire(&keeper, 1, 2);
    assert_eq!(left(&first), [0, 1]);
    let refused = acquire(&keeper, 2, 1);
    assert_eq!((refused.allowed(), left(&refused)), (false, vec![0, 1]));
    assert_eq!(
        at_once(keeper.release(&permits(&first))).unwrap()[..],
        [Permits::new(2)]
    );
    let last = acquire(&keeper, 3, 1);
    assert_eq!(left(&last), [1, 0]);
    let by_the_rate = acquire(&keeper, 4, 1);
    assert_eq!(left(&by_the_rate), [1, 0]);
    assert_eq!(permits(&by_the_rate), []);
}

#[test]
fn a_check_looks_at_permits_and_is_charged_the_rate() {
    let keeper = keeper(BESIDE_A_RATE);
    let check = || keeper.check_now(&ANN, Scope::All);
    assert_eq!(left(&check()), [2, 2]);
    let held = permits(&acquire(&keeper, 1, 2));
    let refused = check();
    assert_eq!((refused.allowed(), left(&refused)), (false, vec![0, 0]));
    at_once(keeper.refund(&ANN, Scope::All)).unwrap(); // of the check: no permit comes back
    assert_eq!(
        left(&at_once(keeper.peek(&ANN, Scope::All)).unwrap()),
        [0, 1]
    );
    assert_eq!(
        at_once(keeper.release(&held)).unwrap()[..],
        [Permits::new(2)]
    );
    assert_eq!((check().allowed(), check().allowed()), (true, false));
}

#[test]
fn a_call_takes_and_returns_unnamed_permits() {
    let keeper = keeper(IN_FLIGHT);
    let call = |act| {
        at_once(keeper.call(&[Asked { facts: ANN, act }]))
            .unwrap()
            .allowed()
    };
    assert!(call(Act::Charge) && call(Act::Charge) && !call(Act::Charge));
    assert!(call(Act::GiveBack));
    assert!(call(Act::Charge) && !call(Act::Charge));
}

#[test]
fn a_reload_keeps_the_permits_on_loan() {
    let keeper = keeper(IN_FLIGHT);
    let held = permits(&acquire(&keeper, 1, 2));
    keeper.install(policy(&IN_FLIGHT.replace("max = 2", "max = 3")));
    let more = acquire(&keeper, 2, 1);
    assert_eq!(left(&more), [0]);
    keeper.install(policy(
        &IN_FLIGHT.replace("max = 2, lease = \"60s\"", "max = 1"),
    ));
    assert!(!acquire(&keeper, 3, 1).allowed());
    assert_eq!(
        at_once(keeper.release(&held)).unwrap()[..],
        [Permits::new(2)]
    );
    assert_eq!(
        at_once(keeper.release(&permits(&more))).unwrap()[..],
        [Permits::ONE]
    );
    let last = permits(&acquire(&keeper, 3, 1));
    // A limit that is gone returns no permits, and no error either.
    keeper.install(policy(&IN_FLIGHT.replace("in-flight", "other")));
    assert_eq!(at_once(keeper.release(&last)).unwrap()[..], [Permits::ZERO]);
    assert_eq!(at_once(keeper.renew(&last)).unwrap()[..], [None]);
}

#[test]
fn a_missing_key_that_refuses_lends_no_permit() {
    let keeper = keeper(&IN_FLIGHT.replace("key =", "missing_key = \"deny\"\nkey ="));
    let lease = LeaseId::from_bytes([1; 16]);
    let refused = at_once(keeper.acquire(&Facts::default(), Scope::All, lease)).unwrap();
    assert!(!refused.allowed());
    assert_eq!(permits(&refused), []);
}

#[test]
fn permits_stay_on_loan_when_the_override_of_their_key_changes_or_ends() {
    let numbers = |max: u64| {
        policy(&format!(
            "{IN_FLIGHT}[[override]]\nlimit = \"in-flight\"\nkey = {{ \"attr:user\" = \"ann\" }}\n\
             set = {max}\n"
        ))
    };
    for after in [numbers(4), policy(IN_FLIGHT)] {
        let keeper = keeper(IN_FLIGHT);
        keeper.install(numbers(3));
        let lent: Vec<_> = (1..4)
            .flat_map(|name| permits(&acquire(&keeper, name, 1)))
            .collect();
        assert_eq!(lent.len(), 3);
        keeper.install(after);
        let renewed = at_once(keeper.renew(&lent)).unwrap();
        assert_eq!(renewed, [Some(Nanos::from_secs(60)); 3]);
        let released = at_once(keeper.release(&lent)).unwrap();
        assert_eq!(released, [Permits::ONE; 3]);
    }
}
