//! Plans and overrides, end to end in virtual time: policy text in, answers out.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::sync::Arc;

use ratekeeper::core::{LeaseId, Nanos, Origin, Permits};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Act, Answer, Asked, Keeper, ManualClock, Permit, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

const PLAN: &str = "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n";

fn policy(text: &str) -> ratekeeper::policy::Policy {
    let context = config::Context::from(Origin::UNIX);
    match config::parse(&format!("version = 1\ntimezone = \"UTC\"\n{text}"), context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn keeper(text: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(text), store, ManualClock::at(Origin::UNIX))
}

fn ask(keeper: &TestKeeper, plan: &str, user: &str) -> Answer {
    let facts = Facts {
        attributes: &[("plan", plan), ("user", user)],
        ..Facts::default()
    };
    keeper.check_now(&facts, Scope::All)
}

/// Returns the number of requests at once that pass, at most 99.
fn passed(keeper: &TestKeeper, plan: &str, user: &str) -> usize {
    let passed = |_: &usize| ask(keeper, plan, user).allowed();
    (0..99).take_while(passed).count()
}

fn limit(quantity: &str, plans: &str) -> String {
    format!(
        "{PLAN}[[limit]]\nname = \"api\"\nkey = [\"attr:user\"]\nmissing_key = \"shared\"\n\
         {quantity}\nplans = {{ {plans} }}\n"
    )
}

#[test]
fn a_plan_sets_the_numbers_and_the_default_holds_for_all_others() {
    let plans = r#"pro = "8/1m", internal = "unlimited", ended = "blocked""#;
    let keeper = keeper(&limit(r#"limit = "3/1m""#, plans));
    for (plan, expected) in [
        ("free", 3),
        ("pro", 8),
        ("internal", 99),
        ("ended", 0),
        ("", 3),
        ("PRO", 3),
        ("no such plan", 3),
    ] {
        assert_eq!(
            passed(&keeper, plan, &format!("u-{plan}")),
            expected,
            "{plan}"
        );
    }
    let answer = ask(&keeper, "pro", "ada");
    let outcome = answer.outcomes().next().unwrap();
    assert_eq!(&*outcome.rule.limit.name, "api");
    assert_eq!(outcome.quota(), Permits::new(8));
    assert_eq!(outcome.text(), "8/1m");
    assert_eq!(outcome.report().name, "api");
    assert!(ask(&keeper, "internal", "ada").outcomes().next().is_none());
    let refused = ask(&keeper, "ended", "ada");
    assert_eq!(refused.retry_after(), None);
    assert_eq!(refused.refused_by().unwrap().quota(), Permits::ZERO);
}

#[test]
fn an_unknown_plan_has_the_numbers_of_the_default_and_a_known_one_the_limits_own() {
    let text = r#"
[plan]
from = "attr:plan"
default = "paid"
[[limit]]
name = "api"
key = ["attr:user"]
limit = "2/1m"
plans = { paid = "5/1m" }
[[limit]]
name = "other"
key = ["attr:user"]
match = { path = "/other" }
limit = "9/1m"
plans = { trial = "1/1m" }
"#;
    let keeper = keeper(text);
    for (plan, expected) in [("paid", 5), ("", 5), ("typo", 5), ("trial", 2)] {
        assert_eq!(
            passed(&keeper, plan, &format!("u-{plan}")),
            expected,
            "{plan}"
        );
    }
}

/// Every form of a quantity, and every algorithm.
#[test]
fn all_quantities_take_other_numbers() {
    let limit_by = |algorithm: &str| format!("limit = \"3/1m\"\nalgorithm = \"{algorithm}\"");
    let algorithms = [
        "token-bucket",
        "fixed-window",
        "sliding-window-counter",
        "sliding-window-log",
        "sub-buckets",
        "quota-reset",
        "hybrid",
        "exponential",
    ];
    let by_name = algorithms.iter().map(|name| (limit_by(name), "8/1m", 8));
    let others = [
        ("limit = \"3/day\"", "8/day", 8),
        ("limit = \"3/1m\"", "8/month", 8),
        (
            "bucket = { size = 3, refill = \"1/1s\" }",
            "2/1s burst 8",
            8,
        ),
        ("bucket = { size = 3, refill = \"1/1s\" }", "8/1m", 8),
        (
            "bucket = { size = 3, refill = \"1/1h\", step = true }",
            "2/1h burst 8",
            8,
        ),
        ("spacing = \"1m\"", "2m", 1),
        (&limit_by("leaky-bucket"), "8/1m", 1),
    ];
    let others = others.map(|(own, other, count)| (own.to_owned(), other, count));
    for (own, other, expected) in by_name.chain(others) {
        let keeper = keeper(&limit(&own, &format!("pro = \"{other}\"")));
        let own_count = if expected == 1 { 1 } else { 3 };
        assert_eq!(passed(&keeper, "", "ada"), own_count, "{own}");
        assert_eq!(passed(&keeper, "pro", "ada"), expected, "{own} {other}");
    }
}

#[test]
fn a_permit_comes_back_under_the_plan_that_it_was_lent_by() {
    let plans = "pro = 2";
    let keeper = keeper(&limit("concurrency = { max = 1, lease = \"60s\" }", plans));
    let facts = Facts {
        attributes: &[("plan", "pro"), ("user", "ada")],
        ..Facts::default()
    };
    let acquire = |id: u8| {
        let lease = LeaseId::from_bytes([id; 16]);
        at_once(keeper.acquire(&facts, Scope::All, lease)).unwrap()
    };
    let first = acquire(1);
    let permits: Vec<Permit> = first.permits().map(|(permit, _)| permit).collect();
    let sent = permits[0].to_string();
    assert!(acquire(2).allowed() && !acquire(3).allowed());
    let returned: Permit = sent.parse().unwrap();
    assert_eq!(
        at_once(keeper.release(&[returned])).unwrap()[0],
        Permits::ONE
    );
    assert!(acquire(4).allowed());
}

#[test]
fn a_key_that_changes_its_plan_starts_there_unused_and_finds_its_old_counter_again() {
    let keeper = keeper(&limit(r#"limit = "3/1m""#, r#"pro = "8/1m""#));
    assert_eq!(passed(&keeper, "free", "ada"), 3);
    assert_eq!(passed(&keeper, "pro", "ada"), 8);
    assert_eq!(passed(&keeper, "free", "ada"), 0);
}

#[test]
fn a_reload_of_a_plans_numbers_keeps_its_usage() {
    let text = |pro: &str| limit(r#"limit = "3/1m""#, &format!("pro = \"{pro}\""));
    let keeper = keeper(&text("8/1m"));
    assert_eq!(passed(&keeper, "pro", "ada"), 8);
    keeper.install(policy(&text("8/1m")));
    assert_eq!(passed(&keeper, "pro", "ada"), 0);
    keeper.install(policy(&text("10/1m")));
    assert!(passed(&keeper, "pro", "ada") <= 2);
}

#[test]
fn plans_come_from_headers_and_from_keys() {
    let numbers = "[[limit]]\nname = \"api\"\nkey = [\"api_key\"]\nmissing_key = \"shared\"\n\
                   limit = \"3/1m\"\nplans = { pro = \"8/1m\" }\n";
    let by_header = format!("[plan]\nfrom = \"header:x-plan\"\ndefault = \"free\"\n{numbers}");
    let by_key = "[plan]\ndefault = \"free\"\nfrom = { api_key = { acme = \"pro\" } }\n";
    for (text, fields, expected) in [
        (&by_header, &[("x-api-key", "k1"), ("x-plan", "pro")][..], 8),
        (&by_header, &[("x-api-key", "k2")][..], 3),
        (
            &by_header,
            &[("x-api-key", "k3"), ("x-plan", "gold")][..],
            3,
        ),
        (
            &format!("{by_key}{numbers}"),
            &[("x-api-key", "acme")][..],
            8,
        ),
        (
            &format!("{by_key}{numbers}"),
            &[("x-api-key", "other")][..],
            3,
        ),
        (
            &format!("{by_key}{numbers}"),
            &[("authorization", "Bearer acme")][..],
            8,
        ),
        (&format!("{by_key}{numbers}"), &[][..], 3),
    ] {
        let keeper = keeper(text);
        let headers: Vec<_> = fields.iter().map(|(n, v)| (*n, v.as_bytes())).collect();
        let facts = Facts {
            headers: &headers,
            ..Facts::default()
        };
        let passed = |_: &usize| keeper.check_now(&facts, Scope::All).allowed();
        assert_eq!((0..99).take_while(passed).count(), expected, "{fields:?}");
    }
}

fn overridden(overrides: &[(&str, &str, &str)]) -> TestKeeper {
    let mut text = limit(r#"limit = "3/1m""#, r#"pro = "8/1m""#);
    for (key, set, more) in overrides {
        text += "[[override]]\nlimit = \"api\"\n";
        writeln!(text, "key = {{ \"attr:user\" = \"{key}\" }}").unwrap();
        writeln!(text, "set = \"{set}\"\n{more}").unwrap();
    }
    keeper(&text)
}

#[test]
fn the_exact_key_wins_then_the_longest_pattern_then_the_plan_then_the_limit() {
    let keeper = overridden(&[
        ("a*", "10/1m", ""),
        ("acme-*", "20/1m", ""),
        ("*-test", "blocked", ""),
        ("acme-1", "30/1m", ""),
        ("acme-2", "unlimited", ""),
        ("acme-3", "blocked", ""),
    ]);
    for (user, plan, expected) in [
        ("acme-1", "pro", 30),
        ("acme-2", "", 99),
        ("acme-3", "pro", 0),
        ("acme-4", "pro", 20),
        ("ada", "pro", 10),
        ("bob-test", "", 0),
        ("bob", "pro", 8),
        ("eve", "", 3),
    ] {
        assert_eq!(passed(&keeper, plan, user), expected, "{user}");
    }
    let unknown = Facts::default();
    let passed = |_: &usize| keeper.check_now(&unknown, Scope::All).allowed();
    assert_eq!(
        (0..99).take_while(passed).count(),
        3,
        "no pattern holds for a missing key"
    );
}

#[test]
fn an_override_ends_by_the_clock_of_the_decision() {
    let until = "until = 1972-01-01T00:00:10Z";
    let keeper = overridden(&[("acme", "20/1m", until), ("ac*", "5/1m", "")]);
    assert_eq!(passed(&keeper, "", "acme"), 20);
    let two_years = Nanos::from_secs(730 * 86_400 + 10); // 1970 itself is no known time
    keeper
        .clock()
        .advance(two_years.saturating_sub(Nanos::from_nanos(1)));
    assert_eq!(passed(&keeper, "", "acme"), 20);
    keeper.clock().advance(Nanos::from_nanos(1));
    assert_eq!(passed(&keeper, "", "acme"), 0, "the pattern holds next");
    keeper.clock().advance(Nanos::from_secs(60));
    assert_eq!(passed(&keeper, "", "acme"), 5);
}

#[test]
fn keys_with_equal_numbers_share_a_limit_and_not_a_counter() {
    let keeper = overridden(&[("a", "20/1m", ""), ("b", "20/1m", ""), ("c", "21/1m", "")]);
    assert_eq!(keeper.policy().rules[0].variants.numbers().len(), 3); // with the plan's
    assert_eq!(
        [passed(&keeper, "", "a"), passed(&keeper, "", "b")],
        [20, 20]
    );
}

#[test]
fn a_key_of_several_parts_may_be_named_in_part() {
    let text = r#"
[[limit]]
name = "api"
key = ["attr:user", "host"]
limit = "3/1m"
[[override]]
limit = "api"
key = { "attr:user" = "acme" }
set = "5/1m"
[[override]]
limit = "api"
key = { "attr:user" = "acme", host = "API.example.com" }
set = "7/1m"
[[override]]
limit = "api"
key = { "attr:user" = "b*", host = "*.example.com" }
set = "9/1m"
"#;
    let keeper = keeper(text);
    for (user, host, expected) in [
        ("acme", "api.example.com", 7),
        ("acme", "www.example.com", 5),
        ("bob", "www.example.com", 9),
        ("bob", "example.org", 3),
    ] {
        let facts = Facts {
            host,
            attributes: &[("user", user)],
            ..Facts::default()
        };
        let passed = |_: &usize| keeper.check_now(&facts, Scope::All).allowed();
        assert_eq!(
            (0..99).take_while(passed).count(),
            expected,
            "{user} {host}"
        );
    }
}

#[test]
fn a_pattern_matches_a_long_value_before_it_is_hashed() {
    for part in ["attr:v", "header:v", "query:v", "host", "path"] {
        let start = if part == "path" { "/x" } else { "x" };
        let keeper = keeper(&format!(
            "[[limit]]\nname = \"api\"\nkey = [\"{part}\"]\nmissing_key = \"shared\"\n\
             limit = \"3/1m\"\n\
             [[override]]\nlimit = \"api\"\nkey = {{ \"{part}\" = \"{start}*\" }}\nset = \"blocked\"\n\
             [[override]]\nlimit = \"api\"\nkey = {{ \"{part}\" = \"s*\" }}\nset = \"unlimited\"\n"
        ));
        for (first, expected) in [("x", 0), ("y", 3)] {
            let value = first.repeat(200);
            let (path, query) = (format!("/{value}"), format!("v={value}"));
            let facts = Facts {
                attributes: &[("v", &value)],
                headers: &[("v", value.as_bytes())],
                query: &query,
                host: &value,
                path: &path,
                ..Facts::default()
            };
            let passed = |_: &usize| keeper.check_now(&facts, Scope::All).allowed();
            let passed = (0..9).take_while(passed).count();
            assert_eq!(passed, expected, "{part} {first}");
        }
    }
}

#[test]
fn an_override_of_a_route_is_that_of_its_pattern() {
    let keeper = keeper(
        "[[limit]]\nname = \"api\"\nkey = [\"route\"]\nlimit = \"3/1m\"\n\
         match = { path = [\"/Admin/**\", \"/users/*\"] }\n\
         [[override]]\nlimit = \"api\"\nkey = { route = \"/Admin/**\" }\nset = \"blocked\"\n",
    );
    for (path, expected) in [("/admin/users", false), ("/users/7", true)] {
        let facts = Facts {
            path,
            ..Facts::default()
        };
        assert_eq!(keeper.check_now(&facts, Scope::All).allowed(), expected);
    }
}

#[test]
fn a_pattern_matches_an_api_key_before_it_is_hashed() {
    let text = "[[limit]]\nname = \"api\"\nkey = [\"api_key\"]\nmissing_key = \"shared\"\n\
                limit = \"3/1m\"\n[[override]]\nlimit = \"api\"\n\
                key = { api_key = \"acme-*\" }\nset = \"6/1m\"\n";
    let keeper = keeper(text);
    for (key, expected) in [("acme-1", 6), ("other", 3)] {
        let facts = Facts {
            headers: &[("x-api-key", key.as_bytes())],
            ..Facts::default()
        };
        let passed = |_: &usize| keeper.check_now(&facts, Scope::All).allowed();
        assert_eq!((0..99).take_while(passed).count(), expected, "{key}");
    }
}

#[test]
fn each_item_of_a_call_is_blocked() {
    let keeper = keeper(&limit(r#"limit = "3/1m""#, r#"ended = "blocked""#));
    let users = ["ada", "ada", "bob"];
    let attributes = users.map(|user| [("plan", "ended"), ("user", user)]);
    let items = attributes.each_ref().map(|attributes| Asked {
        facts: Facts {
            attributes,
            ..Facts::default()
        },
        act: Act::Charge,
    });
    let answers = at_once(keeper.call(&items)).unwrap();
    assert_eq!([0, 1, 2].map(|item| answers.refuses(item)), [true; 3]);
}

#[test]
fn no_request_frees_a_policy() {
    let text = |n: usize| limit(&format!("limit = \"{n}/1m\""), "pro = \"8/1m\"");
    let keeper = keeper(&text(3));
    let in_flight = ask(&keeper, "free", "ada");
    let first = Arc::downgrade(&keeper.policy());
    keeper.install(policy(&text(4)));
    drop(in_flight);
    assert!(first.upgrade().is_some(), "the request was not the last");
    keeper.install(policy(&text(5)));
    assert!(first.upgrade().is_none(), "two policies are kept, no more");
}

/// Overrides of ada, one after the other, in place of the one before; `None` for none.
fn change(keeper: &TestKeeper, quantity: &str, plans: &str, set: Option<&str>) {
    keeper.install(policy(&changed(quantity, plans, set)));
}

fn changed(quantity: &str, plans: &str, set: Option<&str>) -> String {
    let own = limit(quantity, plans);
    let of_ada = |set| {
        format!(
            "{own}[[override]]\nlimit = \"api\"\nkey = {{ \"attr:user\" = \"ada\" }}\nset = \"{set}\"\n"
        )
    };
    set.map_or(own.clone(), of_ada)
}

const BUCKET: &str = r#"limit = "10/10h""#;
const PRO: &str = r#"pro = "30/10h""#;

/// Numbers that are added, changed and removed, at one moment: the usage stays.
#[test]
fn an_override_that_is_added_changed_or_removed_keeps_the_usage() {
    for plan in ["free", "pro"] {
        let keeper = keeper(&changed(BUCKET, PRO, None));
        let own = if plan == "free" { 10 } else { 30 };
        for _ in 0..4 {
            assert!(ask(&keeper, plan, "ada").allowed());
        }
        for (set, total) in [
            (Some("20/10h"), 20),
            (Some("50/10h"), 50),
            (Some("20/10h"), 20),
            (None, own),
            (Some("200/10h"), 200),
        ] {
            change(&keeper, BUCKET, PRO, set);
            let answer = ask(&keeper, plan, "ada");
            assert!(answer.allowed(), "{set:?}");
            let decision = answer.outcomes().next().unwrap().decision;
            let used = total - decision.remaining.get();
            assert!((5..=9).contains(&used), "{plan} {set:?}: {used} used");
        }
        let passed = passed(&keeper, plan, "bob");
        assert_eq!(passed, usize::try_from(own).unwrap(), "another key");
    }
}

#[test]
fn an_override_of_a_soft_limit_keeps_the_usage_of_the_extra() {
    let soft = "limit = \"4/10h\"\nsoft = { extra = 2 }";
    let keeper = keeper(&changed(soft, PRO, None));
    assert_eq!(passed(&keeper, "free", "ada"), 6);
    for (set, more) in [(Some("4/10h"), 0), (Some("5/10h"), 1), (None, 0)] {
        change(&keeper, soft, PRO, set);
        assert_eq!(passed(&keeper, "free", "ada"), more, "{set:?}");
    }
}

/// The first permit comes when the numbers in force say so, as after a change of the limit itself.
#[test]
fn the_usage_is_cut_to_the_new_numbers_and_counted_in_permits() {
    for (own, set, left) in [
        ("100/1h", "1000/1h", 950),
        ("100/1m", "60/1h", 10),
        ("100/1h", "20/1h", 0),
    ] {
        let own = format!("limit = \"{own}\"");
        let keeper = keeper(&changed(&own, PRO, None));
        for _ in 0..50 {
            ask(&keeper, "free", "ada");
        }
        change(&keeper, &own, PRO, Some(set));
        let answer = ask(&keeper, "free", "ada");
        let decision = answer.outcomes().next().unwrap().decision;
        let remaining = decision.remaining.get() + u64::from(decision.verdict.allows());
        assert_eq!(remaining, left, "{own} {set}");
    }
}

#[test]
fn every_algorithm_keeps_the_usage_under_an_override() {
    for algorithm in [
        "token-bucket",
        "fixed-window",
        "sliding-window-counter",
        "sliding-window-log",
        "sub-buckets",
        "quota-reset",
        "hybrid",
        "exponential",
    ] {
        let own = format!("limit = \"10/1h\"\nalgorithm = \"{algorithm}\"");
        for set in ["16/1h", "16/2h"] {
            let keeper = keeper(&changed(&own, PRO, None));
            for _ in 0..6 {
                assert!(ask(&keeper, "free", "ada").allowed());
            }
            change(&keeper, &own, PRO, Some(set));
            assert_eq!(passed(&keeper, "free", "ada"), 10, "{algorithm} {set}");
            change(&keeper, &own, PRO, None);
            assert_eq!(passed(&keeper, "free", "ada"), 0, "{algorithm} {set}");
        }
    }
}

/// An override of a pattern, of a part of the key, and one that ends by itself.
#[test]
fn the_usage_follows_patterns_parts_and_the_end_of_an_override() {
    let own =
        "[[limit]]\nname = \"api\"\nkey = [\"attr:user\", \"attr:plan\"]\nlimit = \"10/365d\"\n";
    let set = |key: &str, set: &str, more: &str| {
        format!("[[override]]\nlimit = \"api\"\nkey = {{ {key} }}\nset = \"{set}\"\n{more}\n")
    };
    let pattern = set(r#""attr:user" = "a*""#, "20/365d", "");
    let part = set(r#""attr:user" = "ada""#, "30/365d", "");
    let whole = set(r#""attr:user" = "ada", "attr:plan" = "p""#, "40/365d", "");
    let ends = set(
        r#""attr:user" = "ada""#,
        "50/365d",
        "until = 1972-01-01T00:00:10Z",
    );
    let keeper = keeper(own);
    keeper.clock().advance(Nanos::from_secs(730 * 86_400 + 9));
    let mut used = 0;
    let mut spend = |overrides: &[&String], expected: usize| {
        let text: String = overrides.iter().map(|text| text.as_str()).collect();
        keeper.install(policy(&format!("{own}{text}")));
        let count = passed(&keeper, "p", "ada");
        assert_eq!(count, expected - used, "{text}");
        used += count;
    };
    spend(&[], 10);
    spend(&[&pattern], 20);
    spend(&[&pattern, &part], 30);
    spend(&[&pattern, &part, &whole], 40);
    spend(&[&ends], 50);
    keeper.clock().advance(Nanos::SECOND);
    assert_eq!(passed(&keeper, "p", "ada"), 0, "the limit's own again");
    keeper.clock().advance(Nanos::from_secs(365 * 86_400));
    assert_eq!(passed(&keeper, "p", "ada"), 10);
}

#[test]
fn a_reset_and_a_permit_find_a_key_whose_numbers_have_changed() {
    let own = "concurrency = { max = 1, lease = \"60s\" }";
    let keeper = keeper(&changed(own, "pro = 2", Some("3")));
    let facts = Facts {
        attributes: &[("user", "ada")],
        ..Facts::default()
    };
    let acquire = |id: u8| {
        let lease = LeaseId::from_bytes([id; 16]);
        at_once(keeper.acquire(&facts, Scope::All, lease)).unwrap()
    };
    let first = acquire(1);
    let permits: Vec<Permit> = first.permits().map(|(permit, _)| permit).collect();
    let sent: Permit = permits[0].to_string().parse().unwrap();
    assert!(acquire(2).allowed());
    change(&keeper, own, "pro = 2", Some("2"));
    assert!(!acquire(3).allowed(), "two of two are on loan");
    change(&keeper, own, "pro = 2", Some("3"));
    assert!(acquire(3).allowed());
    assert_eq!(at_once(keeper.release(&[sent])).unwrap()[0], Permits::ONE);
    assert!(acquire(4).allowed() && !acquire(5).allowed());
}
