//! Calls about descriptors, end to end in virtual time: policy text in, answers out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper::core::{Nanos, Origin, Permits};
use ratekeeper::policy::{Descriptor, Facts, Numbers, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Act, Answers, Asked, Keeper, ManualClock, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

fn keeper(text: &str) -> TestKeeper {
    let context = config::Context::from(Origin::UNIX);
    let policy = match config::parse(&format!("version = 1\n{text}"), context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    };
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy, store, ManualClock::at(Origin::UNIX))
}

/// Entries, cost, act.
type Row<'a> = (&'a [(&'a str, &'a str)], u64, Act);

fn asked((entries, cost, act): Row<'_>) -> Asked<'_> {
    let descriptor = Descriptor {
        domain: "edge",
        entries,
        instead: None,
    };
    Asked {
        facts: Facts {
            cost: Some(Permits::new(cost)),
            descriptor: Some(descriptor),
            ..Facts::default()
        },
        act,
    }
}

fn call(keeper: &TestKeeper, rows: &[Row<'_>]) -> Answers {
    let asked: Vec<_> = rows.iter().map(|row| asked(*row)).collect();
    at_once(keeper.call(&asked)).unwrap()
}

/// `ok` or `over`, then the remaining quota of each limit asked.
fn shown(answers: &Answers) -> String {
    let each = (0..answers.len()).map(|index| {
        let sign = if answers.refuses(index) { "!" } else { "" };
        let limits = answers.outcomes(index).map(|outcome| {
            let name = &outcome.rule.limit.name;
            format!("{name}={}", outcome.decision.remaining)
        });
        format!("{sign}{}", limits.collect::<Vec<_>>().join(","))
    });
    let each: Vec<_> = each.collect();
    let word = if answers.allowed() { "ok" } else { "over" };
    format!("{word} {}", each.join(" "))
}

const USER_AND_PATH: &str = r#"
[[limit]]
name = "user"
match = { domain = "edge" }
key = ["descriptor:user"]
limit = "3/1m"
algorithm = "fixed-window"

[[limit]]
name = "path"
match = { domain = "edge", descriptor.path = "/login" }
key = ["all"]
limit = "2/1m"
algorithm = "fixed-window"
"#;

const ADA: &[(&str, &str)] = &[("user", "ada")];
const BOB: &[(&str, &str)] = &[("user", "bob")];
const LOGIN: &[(&str, &str)] = &[("path", "/login")];
const OTHER: &[(&str, &str)] = &[("path", "/")];

#[test]
fn a_call_is_charged_as_a_whole_or_not_at_all() {
    let keeper = keeper(USER_AND_PATH);
    let both = |user| [(user, 1, Act::Charge), (LOGIN, 1, Act::Charge)];
    for (rows, expected) in [
        (both(ADA), "ok user=2 path=1"),
        (both(ADA), "ok user=1 path=0"),
        (both(BOB), "over user=3 !path=0"),
        (both(ADA), "over user=1 !path=0"),
        (
            [(ADA, 1, Act::Charge), (OTHER, 1, Act::Charge)],
            "ok user=0 ",
        ),
        (both(ADA), "over !user=0 !path=0"),
    ] {
        assert_eq!(shown(&call(&keeper, &rows)), expected);
    }
}

#[test]
fn a_cost_of_zero_only_looks() {
    let keeper = keeper(USER_AND_PATH);
    let look = [(ADA, 0, Act::Charge)];
    for (rows, expected) in [
        (look, "ok user=3"),
        ([(ADA, 3, Act::Charge)], "ok user=0"),
        (look, "ok user=0"),
        ([(ADA, 1, Act::Charge)], "over !user=0"),
    ] {
        assert_eq!(shown(&call(&keeper, &rows)), expected);
    }
}

#[test]
fn refunded_permits_can_be_spent_in_the_same_call() {
    let keeper = keeper(USER_AND_PATH);
    let (spend, back) = (Act::Charge, Act::GiveBack);
    for (rows, expected) in [
        (vec![(ADA, 3, spend)], "ok user=0"),
        (vec![(ADA, 1, spend), (ADA, 1, back)], "ok user=0 user=0"),
        (vec![(ADA, 2, spend), (ADA, 1, back)], "over !user=1 user=1"),
        (vec![(ADA, 9, back)], "ok user=3"),
        (
            vec![(ADA, 9, back), (LOGIN, 3, spend)],
            "over user=3 !path=2",
        ),
    ] {
        assert_eq!(shown(&call(&keeper, &rows)), expected);
    }
}

#[test]
fn what_is_given_back_costs_nothing() {
    let keeper = keeper(USER_AND_PATH);
    let answers = call(&keeper, &[(ADA, 2, Act::Charge), (ADA, 1, Act::GiveBack)]);
    let costs = answers.whole().outcomes().map(|outcome| outcome.cost.get());
    assert_eq!(costs.collect::<Vec<_>>(), [2, 0]);
}

#[test]
fn two_charges_of_one_key_are_decided_together() {
    let keeper = keeper(USER_AND_PATH);
    let twice = [(ADA, 2, Act::Charge), (ADA, 2, Act::Charge)];
    assert_eq!(shown(&call(&keeper, &twice)), "over user=3 !user=3");
    let fits = [(ADA, 2, Act::Charge), (ADA, 1, Act::Charge)];
    assert_eq!(shown(&call(&keeper, &fits)), "ok user=1 user=0");
}

#[test]
fn a_caller_may_override_the_limit() {
    let keeper = keeper(USER_AND_PATH);
    let with = |permits, seconds| {
        let numbers = Numbers::new(Permits::new(permits), Nanos::from_secs(seconds)).unwrap();
        let mut asked = asked((ADA, 1, Act::Charge));
        if let Some(descriptor) = &mut asked.facts.descriptor {
            descriptor.instead = Some(numbers);
        }
        let answers = at_once(keeper.call(&[asked])).unwrap();
        let outcome = answers.outcomes(0).next().unwrap();
        let (quota, window) = (outcome.quota(), outcome.window().unwrap());
        format!("{} of {quota}/{window}", shown(&answers))
    };
    for (permits, seconds, expected) in [
        (5, 600, "ok user=4 of 5/10m"),
        (5, 600, "ok user=3 of 5/10m"),
        (1, 60, "ok user=0 of 1/1m"),
        (1, 60, "over !user=0 of 1/1m"),
        (0, 60, "over !user=0 of 0/1m"),
        // The limit's own numbers are the limit itself.
        (3, 60, "ok user=2 of 3/1m"),
    ] {
        assert_eq!(with(permits, seconds), expected);
    }
    let own = [(ADA, 1, Act::Charge)];
    assert_eq!(shown(&call(&keeper, &own)), "ok user=1");
}

/// Tokens are counted when an answer has been sent: the way in only looks. (A log remembers
/// no more than it allows, so a look at it never refuses.)
#[test]
fn look_then_charge_works_for_llm_tokens() {
    for numbers in [
        "bucket = { size = 100, refill = \"1/1s\" }",
        "limit = \"100/100s\"\nalgorithm = \"token-bucket\"",
        "limit = \"100/100s\"\nalgorithm = \"fixed-window\"",
        "limit = \"100/100s\"",
        "limit = \"100/100s\"\nalgorithm = \"sub-buckets\"",
        "limit = \"100/100s\"\nalgorithm = \"exponential\"",
    ] {
        let limit = format!(
            "[[limit]]\nname = \"tokens\"\nkey = [\"descriptor:user\"]\ncount_denied = true\n{numbers}\n"
        );
        let keeper = keeper(&limit);
        let ask = |cost| call(&keeper, &[(ADA, cost, Act::Charge)]).allowed();
        assert!(ask(0), "{numbers}: no token is used");
        assert!(ask(90), "{numbers}");
        assert!(ask(0), "{numbers}: tokens remain");
        assert!(!ask(60), "{numbers}: the cost exceeds the limit");
        assert!(!ask(0), "{numbers}: 150 of 100 are used");
        // Never more than one further quota, so the wait ends.
        for _ in 0..100 {
            ask(60);
        }
        keeper.clock().advance(Nanos::from_secs(10));
        assert!(!ask(0), "{numbers}: the debt is not yet paid");
        keeper.clock().advance(Nanos::from_secs(600));
        assert!(ask(0), "{numbers}: the debt is paid");
    }
}

/// A proxy gives back its charge whatever the answer was: a request refused by a caller's limit
/// of zero must have been charged too.
#[test]
fn requests_refused_without_a_decision_are_charged_where_denials_count() {
    let keeper = keeper(
        r#"
[[limit]]
name = "flights"
match = { domain = "edge", descriptor.flow = "up" }
key = ["all"]
concurrency = { max = 2, lease = "60s" }
count_denied = true

[[limit]]
name = "calls"
match = { domain = "edge", descriptor.flow = "up" }
key = ["all"]
limit = "5/1m"
algorithm = "fixed-window"
count_denied = true

[[limit]]
name = "plain"
match = { domain = "edge", descriptor.flow = "up" }
key = ["all"]
limit = "5/1m"

[[limit]]
name = "user"
match = { domain = "edge" }
key = ["descriptor:user"]
limit = "5/1m"
"#,
    );
    let up: &[(&str, &str)] = &[("flow", "up")];
    let (charge, back) = (Act::Charge, Act::GiveBack);
    let nothing = Numbers::new(Permits::ZERO, Nanos::from_secs(60)).unwrap();
    let mut barred = asked((ADA, 1, charge));
    barred.facts.descriptor = barred.facts.descriptor.map(|descriptor| Descriptor {
        instead: Some(nothing),
        ..descriptor
    });
    let up_once = asked((up, 1, charge));
    for (asked, expected) in [
        (&[up_once][..], "ok flights=1,calls=4,plain=4"),
        (&[up_once, barred], "over flights=0,calls=3,plain=4 !user=0"),
        (&[up_once], "over !flights=0,calls=2,plain=4"),
    ] {
        assert_eq!(shown(&at_once(keeper.call(asked)).unwrap()), expected);
    }
    // Each of the three gives back; then as many fit as before, and no more.
    for _ in 0..3 {
        let _ = call(&keeper, &[(up, 1, back)]);
    }
    let fits = (0..4).filter(|_| call(&keeper, &[(up, 1, charge)]).allowed());
    assert_eq!(fits.count(), 2);
}
