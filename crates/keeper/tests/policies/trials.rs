//! Limits that take the place of others, and numbers that are tried before they are enforced.

#![expect(clippy::unwrap_used, reason = "a test fails where it panics")]

use std::collections::BTreeMap;

use ratekeeper::{Answer, Keeper, ManualClock, Scope};
use ratekeeper_core::{Mode, Nanos, Origin};
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_policy::{Facts, Policy};
use ratekeeper_store::{MemoryConfig, MemoryStore};

fn policy(text: &str) -> Policy {
    parse(&format!("version = 1\n{text}"), Context::default())
        .unwrap()
        .policy
}

fn keeper(text: &str) -> Keeper<MemoryStore, ManualClock> {
    let store = MemoryStore::new(MemoryConfig::default());
    // In 2030: before 1971 the time is not known, and all limits are active.
    let clock = ManualClock::at(Origin::from_unix_nanos(1_900_000_000 * 1_000_000_000));
    Keeper::new(policy(text), store, clock)
}

fn ask(
    keeper: &Keeper<MemoryStore, ManualClock>,
    path: &str,
    attributes: &[(&str, &str)],
) -> Answer {
    let facts = Facts {
        path,
        attributes,
        ..Facts::default()
    };
    keeper.check_now(&facts, Scope::All)
}

/// Returns the names of the limits that were asked, with those that denied marked.
fn asked(answer: &Answer) -> String {
    let names = answer.outcomes().map(|outcome| {
        let mark = if outcome.decision.verdict.allows() {
            ""
        } else {
            "!"
        };
        format!("{mark}{}", outcome.rule.limit.name)
    });
    names.collect::<Vec<_>>().join(" ")
}

const TWO: &str = r#"
[[limit]]
name = "api"
key = ["all"]
limit = "2/1h"
otherwise = ["promo"]
candidate = "1/1h"
[[limit]]
name = "promo"
key = ["all"]
limit = "1/1h"
[[limit]]
name = "login"
match = { path = "/login" }
key = ["attr:user"]
missing_key = "skip"
limit = "4/1h"
replaces = ["api"]
"#;

#[test]
fn a_replaced_limit_is_not_asked_with_all_that_belongs_to_it() {
    let keeper = keeper(TWO);
    let ann = &[("user", "ann")][..];
    assert_eq!(asked(&ask(&keeper, "/", ann)), "api promo api+candidate");
    for _ in 0..4 {
        assert_eq!(asked(&ask(&keeper, "/login", ann)), "login");
    }
    let refused = ask(&keeper, "/login", ann);
    assert_eq!(
        (asked(&refused).as_str(), refused.allowed()),
        ("!login", false)
    );
    // `api` was charged once, and its candidate as well.
    let second = ask(&keeper, "/", ann);
    assert_eq!(asked(&second), "api promo !api+candidate");
    assert!(second.allowed());
}

#[test]
fn a_limit_that_does_not_apply_replaces_nothing() {
    // Without the key part, `login` is skipped: the request must not be without a limit.
    let one = keeper(TWO);
    assert_eq!(asked(&ask(&one, "/login", &[])), "api promo api+candidate");

    for (field, expected) in [
        ("mode = \"shadow\"", "api login"),
        ("mode = \"off\"", "api"),
        ("percent = 0", "api login"),
        ("percent = 100", "login"),
        ("active = { until = 2020-01-01T00:00:00Z }", "api"),
    ] {
        let keeper = keeper(&format!(
            r#"
            [[limit]]
            name = "api"
            key = ["all"]
            limit = "2/1h"
            [[limit]]
            name = "login"
            match = {{ path = "/login" }}
            key = ["attr:user"]
            limit = "4/1h"
            replaces = ["api"]
            {field}
            "#
        ));
        let ann = &[("user", "ann")];
        assert_eq!(asked(&ask(&keeper, "/login", ann)), expected, "{field}");
    }
}

#[test]
fn an_exempt_request_is_replaced_by_nothing_and_an_unlimited_key_is_asked_nothing() {
    let keeper = keeper(
        r#"
        [plan]
        from = "attr:plan"
        default = "free"
        [[limit]]
        name = "api"
        key = ["all"]
        limit = "2/1h"
        [[limit]]
        name = "login"
        match = { path = "/login" }
        key = ["all"]
        limit = "4/1h"
        plans = { pro = "unlimited", none = "blocked" }
        replaces = ["api"]
        [[exempt]]
        limits = ["login"]
        match = { attr.probe = "yes" }
        "#,
    );
    assert_eq!(asked(&ask(&keeper, "/login", &[("probe", "yes")])), "api");
    assert_eq!(asked(&ask(&keeper, "/login", &[("plan", "pro")])), "");
    let blocked = ask(&keeper, "/login", &[("plan", "none")]);
    assert_eq!(asked(&blocked), "!login");
}

/// A replaced limit does not refuse, whatever it holds for the key: a ban, or a missing part.
#[test]
fn bans_and_missing_keys_of_a_replaced_limit_do_not_matter() {
    let keeper = keeper(
        r#"
        [[limit]]
        name = "api"
        key = ["attr:user"]
        missing_key = "deny"
        limit = "1/1h"
        ban = { after = 1, within = "1h", for = "2h" }
        [[limit]]
        name = "login"
        match = { path = "/login" }
        key = ["all"]
        limit = "4/1h"
        replaces = ["api"]
        "#,
    );
    let ann = &[("user", "ann")][..];
    assert!(ask(&keeper, "/", ann).allowed());
    for _ in 0..3 {
        assert!(!ask(&keeper, "/", ann).allowed());
    }
    assert!(ask(&keeper, "/login", ann).allowed());
    assert!(ask(&keeper, "/login", &[]).allowed());
    assert!(!ask(&keeper, "/", &[]).allowed());
}

/// Replacing depends on the request, and not on whether the replacing limit is replaced itself.
#[test]
fn a_replaced_limit_still_replaces_others() {
    let keeper = keeper(
        r#"
        [[limit]]
        name = "a"
        match = { path = "/x/y/z" }
        key = ["all"]
        limit = "4/1h"
        replaces = ["b"]
        [[limit]]
        name = "c"
        key = ["all"]
        limit = "4/1h"
        [[limit]]
        name = "b"
        match = { path = "/x/**" }
        key = ["all"]
        limit = "4/1h"
        replaces = ["c"]
        "#,
    );
    assert_eq!(asked(&ask(&keeper, "/x/y/z", &[])), "a");
    assert_eq!(asked(&ask(&keeper, "/x/y", &[])), "b");
    assert_eq!(asked(&ask(&keeper, "/", &[])), "c");
}

/// Asks twice for each of 1,000 users; returns those that were refused.
fn refused(percent: u8) -> Vec<usize> {
    let keeper = keeper(&format!(
        r#"
        [[limit]]
        name = "api"
        key = ["attr:user"]
        limit = "1/1h"
        percent = {percent}
        "#
    ));
    let users = (0..1_000).filter(|number| {
        let user = format!("u{number}");
        let user = &[("user", &*user)][..];
        assert!(ask(&keeper, "/", user).allowed());
        let second = ask(&keeper, "/", user);
        let outcome = second.outcomes().next().unwrap();
        assert!(!outcome.decision.verdict.allows());
        let enforced = outcome.mode() == Some(Mode::Enforce);
        assert_eq!(
            (second.allowed(), outcome.shadow_denies()),
            (!enforced, !enforced)
        );
        // Only a limit that is enforced is shown to clients.
        assert_eq!(second.header_fields().is_empty(), !enforced);
        enforced
    });
    users.collect()
}

#[test]
fn a_percentage_of_keys_is_enforced_and_the_others_are_in_shadow_mode() {
    let (none, ten, twenty, all) = (refused(0), refused(10), refused(20), refused(100));
    assert_eq!((none.len(), all.len()), (0, 1_000));
    assert!((60..140).contains(&ten.len()), "{}", ten.len());
    assert!((150..250).contains(&twenty.len()), "{}", twenty.len());
    assert!(ten.iter().all(|user| twenty.contains(user)));
}

#[test]
fn keys_that_are_missing_or_blocked_follow_the_percentage() {
    for (percent, allowed) in [(0, true), (100, false)] {
        let keeper = keeper(&format!(
            r#"
            [[limit]]
            name = "api"
            key = ["attr:user"]
            missing_key = "deny"
            limit = "1/1h"
            percent = {percent}
            [[override]]
            limit = "api"
            key = {{ "attr:user" = "ann" }}
            set = "blocked"
            reason = "abuse"
            "#
        ));
        let missing = ask(&keeper, "/", &[]);
        assert_eq!(
            (missing.allowed(), missing.outcomes().count()),
            (allowed, 1),
            "{percent}"
        );
        let blocked = ask(&keeper, "/", &[("user", "ann")]);
        assert_eq!(
            (blocked.allowed(), blocked.outcomes().count()),
            (allowed, 1),
            "{percent}"
        );
    }
}

/// The candidate denies exactly the requests that it would refuse in the place of the limit, as
/// long as the limit refuses none.
#[test]
fn a_candidate_refuses_nothing_and_denies_what_it_would_refuse() {
    let limit = |number: &str, more: &str| {
        keeper(&format!(
            "[[limit]]\nname = \"api\"\nkey = [\"attr:user\"]\nlimit = \"{number}\"\n{more}"
        ))
    };
    let tried = limit("100/1m", "candidate = \"5/1m\"");
    let alone = limit("5/1m", "");
    let mut counts = BTreeMap::new();
    for step in 0..60_u64 {
        let user = format!("u{}", step * step % 3);
        let user = &[("user", &*user)][..];
        let (with, without) = (ask(&tried, "/", user), ask(&alone, "/", user));
        let outcomes: Vec<_> = with.outcomes().collect();
        let [live, candidate] = outcomes.as_slice() else {
            panic!("{outcomes:?}");
        };
        assert_eq!(&*candidate.limit.name, "api+candidate");
        assert_eq!(candidate.mode(), Some(Mode::Shadow));
        assert!(with.allowed() && live.decision.verdict.allows());
        let own = without.outcomes().next().unwrap().decision;
        assert_eq!(candidate.decision.verdict, own.verdict, "{step}");
        assert_eq!(candidate.decision.remaining, own.remaining, "{step}");
        *counts.entry(own.verdict.allows()).or_insert(0) += 1;
        for (name, value) in with.header_fields() {
            assert!(!value.contains("candidate"), "{name}: {value}");
        }
        tried.clock().advance(Nanos::from_millis(700));
        alone.clock().advance(Nanos::from_millis(700));
    }
    assert!(counts[&true] > 5 && counts[&false] > 5, "{counts:?}");
}

/// Requests that any limit refuses do not reach the candidate.
#[test]
fn a_candidate_counts_the_requests_that_pass() {
    let keeper = keeper(
        r#"
        [[limit]]
        name = "api"
        key = ["all"]
        limit = "4/1h"
        candidate = "3/1h"
        [[limit]]
        name = "all"
        key = ["all"]
        match = { path = "/narrow" }
        limit = "1/1h"
        "#,
    );
    let left = |answer: &Answer| {
        let mut outcomes = answer.outcomes();
        let candidate = outcomes.find(|it| &*it.limit.name == "api+candidate");
        candidate.unwrap().decision.remaining.get()
    };
    assert_eq!(left(&ask(&keeper, "/narrow", &[])), 2);
    for _ in 0..5 {
        let refused = ask(&keeper, "/narrow", &[]);
        assert_eq!((refused.allowed(), left(&refused)), (false, 2));
    }
    assert_eq!(left(&ask(&keeper, "/", &[])), 1);
}

#[test]
fn a_candidate_is_named_with_its_limit_and_left_to_its_own_numbers() {
    let keeper = keeper(
        r#"
        [plan]
        from = "attr:plan"
        default = "free"
        [[limit]]
        name = "api"
        key = ["all"]
        bucket = { size = 40, refill = "20/1s" }
        candidate = "10/1s burst 20"
        plans = { pro = "100/1s burst 100" }
        [[limit]]
        name = "other"
        key = ["all"]
        limit = "100/1s"
        "#,
    );
    let facts = Facts::default();
    let of = |names: &[&str]| asked(&keeper.check_now(&facts, Scope::Only(names)));
    assert_eq!(of(&["api"]), "api api+candidate");
    assert_eq!(of(&["other"]), "other");
    assert_eq!(asked(&ask(&keeper, "/", &[("plan", "pro")])), "api other");
}
