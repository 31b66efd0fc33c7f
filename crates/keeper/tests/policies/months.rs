//! Billing months, end to end in virtual time: policy text in, answers out.

use std::fmt::Write as _;

use ratekeeper::core::{KeyBuilder, Nanos, Origin};
use ratekeeper::policy::{Facts, Policy, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Keeper, ManualClock, Scope};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

const DAY: u64 = 86_400;
/// 2026-01-01T00:00:00Z
const START: u64 = 1_767_225_600;

const BILLING: &str = "[[limit]]\nname = \"billing\"\nkey = [\"attr:user\"]\nlimit = \"3/month\"\n\
                       anchor = \"attr:day\"\n";

fn origin() -> Origin {
    Origin::from_unix_nanos(START * 1_000_000_000)
}

fn policy(text: &str) -> Policy {
    let context = config::Context::from(origin());
    match config::parse(&format!("version = 1\ntimezone = \"UTC\"\n{text}"), context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn keeper(text: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(text), store, ManualClock::at(origin()))
}

fn ask(keeper: &TestKeeper, attributes: &[(&str, &str)]) -> Answer {
    let facts = Facts {
        attributes,
        ..Facts::default()
    };
    keeper.check_now(&facts, Scope::All)
}

/// Returns the number of requests at once that pass, at most 99.
fn passed(keeper: &TestKeeper, attributes: &[(&str, &str)]) -> usize {
    let passed = |_: &usize| ask(keeper, attributes).allowed();
    (0..99).take_while(passed).count()
}

/// Returns the days of 2026 on which a key with this day may spend again, from 1 January.
fn resets(day: &str) -> Vec<u64> {
    let keeper = keeper(BILLING);
    let mut days = Vec::new();
    for of_year in 0..365 {
        match passed(&keeper, &[("user", "ada"), ("day", day)]) {
            0 => {}
            3 => days.push(of_year),
            other => panic!("{other} on day {of_year}"),
        }
        keeper.clock().advance(Nanos::from_secs(DAY));
    }
    days
}

#[test]
fn each_key_has_its_own_day_and_short_months_their_last() {
    let firsts = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let lengths = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    for day in 1..=31_u64 {
        let in_months = firsts.iter().zip(lengths);
        let own = in_months.map(|(first, length)| first + day.min(length) - 1);
        let mut expected: Vec<_> = own.collect();
        if expected[0] > 0 {
            expected.insert(0, 0); // of the month that began in December
        }
        assert_eq!(resets(&day.to_string()), expected, "{day}");
        assert_eq!(resets(&format!("{day:02}")), expected, "{day}");
    }
}

#[test]
fn a_key_without_a_day_has_calendar_months() {
    let first = resets("1");
    let long = "1".repeat(1 << 20);
    for day in [
        "", "0", "32", "-1", "+1", "1.0", " 1", "256", "ten", "\u{661}", &long,
    ] {
        assert_eq!(resets(day), first, "{day:.9}");
    }
    let keeper = keeper(BILLING);
    assert_eq!(passed(&keeper, &[("user", "ada")]), 3);
    assert_eq!(
        passed(&keeper, &[("user", "ada"), ("day", "32")]),
        0,
        "the same counter"
    );
}

#[test]
fn plans_and_overrides_have_the_day_of_the_key() {
    let keeper = keeper(&format!(
        "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n{BILLING}\
         plans = {{ pro = \"8/month\", internal = \"unlimited\", ended = \"blocked\" }}\n\
         [[override]]\nlimit = \"billing\"\nkey = {{ \"attr:user\" = \"acme\" }}\nset = \"5/month\"\n"
    ));
    let each = [
        ("ada", "free", 3),
        ("bob", "pro", 8),
        ("acme", "pro", 5),
        ("eve", "ended", 0),
    ];
    let spent = |user, plan, day| passed(&keeper, &[("user", user), ("plan", plan), ("day", day)]);
    for (user, plan, expected) in each {
        assert_eq!(spent(user, plan, "15"), expected, "{user}");
        assert_eq!(spent(user, plan, "15"), 0, "{user}");
    }
    assert_eq!(spent("root", "internal", "15"), 99);
    keeper.clock().advance(Nanos::from_secs(13 * DAY + DAY - 1)); // the last second before the 15th
    for (user, plan, _) in each {
        assert_eq!(spent(user, plan, "15"), 0, "{user}");
    }
    keeper.clock().advance(Nanos::from_secs(1));
    for (user, plan, expected) in each {
        assert_eq!(spent(user, plan, "15"), expected, "{user}");
    }
    let answer = ask(&keeper, &[("user", "bob"), ("plan", "pro"), ("day", "15")]);
    let outcome = answer.outcomes().next().unwrap();
    assert_eq!(outcome.text(), "8/month from day 15");
    assert_eq!(outcome.report().name, "billing");
    assert_eq!(
        answer.retry_after().map(Nanos::as_secs_ceil),
        Some(31 * DAY)
    );
}

#[test]
fn a_key_finds_its_counter_after_a_reload_with_another_number() {
    let keeper = keeper(BILLING);
    let ada = [("user", "ada"), ("day", "15")];
    assert_eq!(passed(&keeper, &ada), 3);
    keeper.install(policy(&BILLING.replace("3/month", "5/month")));
    assert_eq!(passed(&keeper, &ada), 2);
    // Another day for all keys is another window, so they begin unused.
    keeper.install(policy(&BILLING.replace("\"attr:day\"", "15")));
    assert_eq!(passed(&keeper, &ada), 3);
}

#[test]
fn a_clock_that_is_set_back_over_the_day_gives_nothing() {
    let keeper = keeper(BILLING);
    let ada = [("user", "ada"), ("day", "15")];
    keeper.clock().advance(Nanos::from_secs(14 * DAY));
    assert_eq!(passed(&keeper, &ada), 3);
    keeper.set_wall_origin(Origin::from_unix_nanos((START - 3 * DAY) * 1_000_000_000));
    assert_eq!(passed(&keeper, &ada), 0);
}

#[test]
fn all_counters_of_a_key_are_found_whatever_its_day() {
    let keeper = keeper(BILLING);
    let limits = keeper.policy();
    let mut key = Vec::new();
    KeyBuilder::new(&mut key).part(b"ada");
    let key = ratekeeper::core::Key::from_bytes(&key);
    let names = limits.rules[0]
        .variants
        .of_key(key)
        .map(|found| found.limit.name.to_string());
    let mut expected = String::new();
    for day in 2..=31 {
        write!(expected, "billing=@{day} ").unwrap();
    }
    assert_eq!(names.collect::<Vec<_>>().join(" "), expected.trim_end());
}

#[test]
fn many_days_are_refused_before_they_fill_the_store() {
    let limit = |n| BILLING.replace("billing", &format!("billing-{n}"));
    let text: String = (0..340).map(limit).collect();
    let text = format!("version = 1\ntimezone = \"UTC\"\n{text}");
    let refused = config::parse(&text, config::Context::default()).unwrap_err();
    assert!(
        refused.iter().all(|found| found.code == "RK0107"),
        "{refused:?}"
    );
    assert!(
        refused[0].message.contains("more than 10000"),
        "{}",
        refused[0].message
    );
}

#[test]
fn the_policy_of_the_guide_is_right() {
    let guide = include_str!("../../../../docs/guide/algorithms.md");
    let section = guide.split("### Billing months").nth(1).unwrap();
    let text = section.split("```toml\n").nth(1).unwrap();
    let text = text.split("```").next().unwrap();
    let head = "version = 1\ntimezone = \"UTC\"\n[[limit]]\nname = \"a\"\nkey = [\"ip\"]\n";
    let text = format!("{head}{text}");
    let loaded = config::parse(&text, config::Context::default()).unwrap();
    let days = loaded.policy.rules[0].variants.day_attribute();
    assert_eq!(days, Some("billing_day"));
}
