//! Soft and elastic limits, and limits that ask others, end to end in virtual time.

use ratekeeper::core::{Nanos, Origin, Permits};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Act, Answer, Asked, Keeper, ManualClock, Report, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

/// A time after 1970: before, the wall clock is taken for unknown.
const START: Origin = Origin::from_unix_nanos(1_800_000_000 * 1_000_000_000);

fn policy(limits: &str) -> ratekeeper::policy::Policy {
    let text = format!("version = 1\ntimezone = \"UTC\"\n{limits}");
    match config::parse(&text, config::Context::from(START)) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

fn keeper(limits: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(limits), store, ManualClock::at(START))
}

fn facts<'a>(attributes: &'a [(&'a str, &'a str)]) -> Facts<'a> {
    Facts {
        path: "/",
        attributes,
        ..Facts::default()
    }
}

fn ask(keeper: &TestKeeper, user: &str) -> Answer {
    keeper.check_now(&facts(&[("user", user), ("team", "red")]), Scope::All)
}

/// Returns the number of requests at once that pass, at most 999.
fn passed(keeper: &TestKeeper, user: &str) -> usize {
    (0..999).take_while(|_| ask(keeper, user).allowed()).count()
}

/// Returns name, remaining, and the words of each outcome.
fn told(answer: &Answer) -> Vec<String> {
    let words = answer.outcomes().map(|outcome| {
        let name = &outcome.rule.limit.name;
        let remaining = outcome.decision.remaining;
        let covered = outcome.covered_by;
        let covered = covered.map(|rule| format!(" by {}", rule.limit.name));
        let word = match (outcome.is_asked, outcome.decision.verdict.allows()) {
            (false, _) => "not asked",
            (true, true) => "allows",
            (true, false) => "denies",
        };
        format!("{name} {remaining} {word}{}", covered.unwrap_or_default())
    });
    words.collect()
}

const USER: &str = "key = [\"attr:user\"]\nmissing_key = \"shared\"\n";

fn limit(name: &str, lines: &str) -> String {
    format!("[[limit]]\nname = \"{name}\"\n{USER}{lines}\n")
}

const ELASTIC: &str = "limit = \"4/1m\"\nelastic = { up_to = \"10/1m\", while = { signal = \"queue\", below = \"70%\" } }";

#[test]
fn a_soft_limit_lets_its_extra_pass_with_a_warning() {
    let keeper = keeper(&limit(
        "mails",
        "limit = \"20/1m\"\nsoft = { extra = \"10%\" }",
    ));
    for _ in 0..20 {
        assert_eq!(ask(&keeper, "ada").soft_denials().count(), 0);
    }
    let over = ask(&keeper, "ada");
    assert!(over.allowed());
    assert_eq!(
        told(&over),
        ["mails 0 denies by mails+soft", "mails+soft 1 allows"]
    );
    let fields = over.header_fields();
    let field = |name: &str| {
        let found = fields.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    };
    assert_eq!(field("x-ratekeeper-soft"), Some("mails"));
    assert_eq!(
        field("ratelimit-policy"),
        Some("\"mails\";q=20;w=60, \"mails+soft\";q=2;w=60")
    );
    assert_eq!(
        field("ratelimit"),
        Some("\"mails\";r=0;t=3, \"mails+soft\";r=1;t=30")
    );
    assert_eq!(field("retry-after"), None);
    assert!(ask(&keeper, "ada").allowed());
    let refused = ask(&keeper, "ada");
    assert!(!refused.allowed());
    assert_eq!(refused.soft_denials().count(), 0);
    assert_eq!(&*refused.refused_by().unwrap().rule.limit.name, "mails");
    // The limit has room again in 3 s, the extra in 30 s.
    assert_eq!(refused.retry_after(), Some(Nanos::from_secs(3)));
    assert_eq!(passed(&keeper, "bob"), 22, "another key");
}

#[test]
fn an_extra_is_of_the_numbers_that_hold_for_the_key() {
    let plan = "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n";
    let lines =
        "limit = \"20/1m\"\nplans = { pro = \"200/1m\", off = \"blocked\", all = \"unlimited\" }";
    let over =
        "[[override]]\nlimit = \"mails\"\nkey = { \"attr:user\" = \"eve\" }\nset = \"50/1m\"\n";
    let with = |extra: &str| {
        keeper(&format!(
            "{plan}{}{over}",
            limit("mails", &format!("{lines}\n{extra}"))
        ))
    };
    for (extra, expected) in [
        ("soft = { extra = \"10%\" }", [22, 220, 0, 999, 55]),
        ("soft = { extra = 5 }", [25, 205, 0, 999, 55]),
    ] {
        let keeper = with(extra);
        let asks = [
            ("ada", "free"),
            ("bob", "pro"),
            ("cid", "off"),
            ("dan", "all"),
            ("eve", "free"),
        ];
        for ((user, plan), expected) in asks.into_iter().zip(expected) {
            let attributes = [("user", user), ("plan", plan)];
            let facts = facts(&attributes);
            let passes = |_: &usize| keeper.check_now(&facts, Scope::All).allowed();
            assert_eq!(
                (0..999).take_while(passes).count(),
                expected,
                "{extra} {user}"
            );
        }
    }
}

#[test]
fn an_elastic_limit_follows_its_signal() {
    let keeper = keeper(&limit("mails", ELASTIC));
    let pass = |millis| keeper.clock().advance(Nanos::from_millis(millis));
    assert_eq!(passed(&keeper, "ada"), 4, "no level was set");
    assert!(keeper.set_signal("queue", 400_000, Nanos::from_secs(60)));
    assert_eq!(passed(&keeper, "ada"), 6, "the rest, at once");
    assert_eq!(passed(&keeper, "bob"), 10);
    assert!(keeper.set_signal("queue", 700_000, Nanos::from_secs(60)));
    assert_eq!(passed(&keeper, "cid"), 4, "not below 70 %");
    assert!(keeper.set_signal("queue", 699_999, Nanos::from_secs(60)));
    pass(59_000);
    assert_eq!(passed(&keeper, "dan"), 10);
    pass(1_000);
    assert_eq!(passed(&keeper, "eve"), 4, "the level has ended");
    assert!(
        !keeper.set_signal("load", 0, Nanos::from_secs(60)),
        "no limit names it"
    );
}

#[test]
fn no_signal_lets_more_pass_than_up_to() {
    let proxy = "[listen]\nhttp = \"127.0.0.1:8081\"\n\
                 [listen.proxy]\nupstream = \"http://127.0.0.1:3000\"\n";
    let levels = [
        ("queue", "70%"),
        ("upstream.errors", "70%"),
        ("upstream.latency", "700ms"),
    ];
    for (signal, below) in levels {
        let elastic = ELASTIC.replace("queue", signal).replace("70%", below);
        let keeper = keeper(&format!("{proxy}{}", limit("mails", &elastic)));
        most_passes(&keeper, signal);
    }
}

fn most_passes(keeper: &TestKeeper, signal: &str) {
    let mut passes = Vec::new();
    // A signal that changes all the time, for ten minutes.
    for second in 0..600_u32 {
        let level = if second % 7 < 4 { 100_000 } else { 900_000 };
        assert!(keeper.set_signal(signal, level, Nanos::from_secs(3)));
        passes.push(passed(keeper, "ada"));
        keeper.clock().advance(Nanos::from_secs(1));
    }
    let most = passes
        .windows(60)
        .map(|minute| minute.iter().sum::<usize>())
        .max();
    // As a bucket of 10 that is refilled with 10 in a minute.
    assert!(most <= Some(20), "{most:?}");
    assert!(passes.iter().sum::<usize>() <= 10 + 100);
}

#[test]
fn levels_survive_a_reload_and_end_when_the_clock_is_set_back() {
    let keeper = keeper(&limit("mails", ELASTIC));
    keeper.set_signal("queue", 0, Nanos::from_secs(60));
    assert_eq!(passed(&keeper, "ada"), 10);
    keeper.install(policy(&limit("mails", ELASTIC)));
    assert_eq!(passed(&keeper, "bob"), 10, "the same signal");
    assert_eq!(passed(&keeper, "ada"), 0, "the same counters");
    let hour = 3_600 * 1_000_000_000;
    keeper.set_wall_origin(Origin::from_unix_nanos(START.as_unix_nanos() - hour));
    assert_eq!(passed(&keeper, "cid"), 4);
    keeper.set_signal("queue", 0, Nanos::from_secs(60));
    assert_eq!(passed(&keeper, "dan"), 10);
    keeper.install(policy(&limit("mails", "limit = \"4/1m\"")));
    assert_eq!(passed(&keeper, "eve"), 4, "no longer elastic");
}

fn waterfall() -> TestKeeper {
    let team = "[[limit]]\nname = \"credits\"\nkey = [\"attr:team\"]\nmissing_key = \"skip\"\n\
                limit = \"5/30d\"\n";
    let api = limit(
        "api",
        "limit = \"3/day\"\notherwise = [\"promo\", \"credits\"]",
    );
    let promo = limit(
        "promo",
        "match = { attr.promo = \"yes\" }\nlimit = \"2/1d\"",
    );
    keeper(&format!("{api}{promo}{team}"))
}

/// Two limits may name one alternative; a call that names it asks it once.
#[test]
fn an_alternative_of_two_limits_is_named_once() {
    let limit = |name: &str, more: &str| {
        format!("[[limit]]\nname = \"{name}\"\nlimit = \"2/24h\"\n{USER}{more}\n")
    };
    let asks = "otherwise = [\"promo\"]";
    let text = limit("a", asks) + &limit("b", asks) + &limit("promo", "");
    let keeper = keeper(&text);
    let facts = Facts {
        attributes: &[("user", "ann")],
        ..Facts::default()
    };
    let promo = Scope::Only(&["promo"]);
    let left = || {
        let answer = at_once(keeper.peek(&facts, promo)).unwrap();
        let left = answer.outcomes().map(|it| it.decision.remaining.get());
        left.collect::<Vec<_>>()
    };
    assert!(at_once(keeper.check(&facts, promo)).unwrap().allowed());
    assert_eq!(left(), [1]);
    assert!(at_once(keeper.check(&facts, promo)).unwrap().allowed());
    assert_eq!(left(), [0]);
    at_once(keeper.refund(&facts, promo)).unwrap();
    assert_eq!(left(), [1], "one permit, though two limits name it");
}

#[test]
fn limits_are_asked_in_order_and_each_key_is_its_own() {
    let keeper = waterfall();
    let with = |user: &str, promo: &str| {
        let attributes = [("user", user), ("team", "red"), ("promo", promo)];
        keeper.check_now(&facts(&attributes), Scope::All)
    };
    let passed =
        |user: &str, promo: &str| (0..99).take_while(|_| with(user, promo).allowed()).count();
    assert_eq!(
        told(&with("ada", "yes")),
        ["api 2 allows", "promo 2 not asked", "credits 5 not asked"]
    );
    assert_eq!(
        told(&with("ada", "no")),
        ["api 1 allows", "credits 5 not asked"],
        "promo does not match"
    );
    assert_eq!(passed("ada", "yes"), 1 + 2 + 5);
    assert_eq!(
        told(&with("ada", "yes")),
        ["api 0 denies", "promo 0 denies", "credits 0 denies"]
    );
    assert_eq!(passed("bob", "no"), 3, "the team has spent its credits");
    assert_eq!(passed("bob", "yes"), 2);
    // Without a team, credits are not asked.
    let attributes = [("user", "eve")];
    let alone = |_: &usize| keeper.check_now(&facts(&attributes), Scope::All).allowed();
    assert_eq!((0..99).take_while(alone).count(), 3);
}

#[test]
fn nothing_is_charged_if_another_limit_refuses() {
    let other = limit("strict", "limit = \"1/1m\"");
    let soft = limit("mails", "limit = \"1/1m\"\nsoft = { extra = 1 }");
    let keeper = keeper(&format!("{soft}{other}"));
    assert!(ask(&keeper, "ada").allowed());
    for _ in 0..3 {
        let refused = ask(&keeper, "ada");
        assert!(!refused.allowed());
        assert_eq!(
            told(&refused),
            [
                "mails 0 denies by mails+soft",
                "mails+soft 1 allows",
                "strict 0 denies"
            ]
        );
        assert_eq!(&*refused.refused_by().unwrap().rule.limit.name, "strict");
        assert_eq!(refused.soft_denials().count(), 0);
    }
}

#[test]
fn a_refund_goes_to_the_limit_or_to_the_alternative_that_is_named() {
    let keeper = keeper(&limit("mails", "limit = \"2/1d\"\nsoft = { extra = 2 }"));
    assert_eq!(passed(&keeper, "ada"), 4);
    let attributes = [("user", "ada")];
    let refund = |scope: Scope<'_>| {
        let answer = at_once(keeper.refund(&facts(&attributes), scope)).unwrap();
        told(&answer)
    };
    let both = |base: u32, extra: u32| {
        vec![
            format!("mails {base} allows"),
            format!("mails+soft {extra} not asked"),
        ]
    };
    assert_eq!(refund(Scope::All), both(1, 0));
    assert_eq!(refund(Scope::Only(&["mails"])), both(2, 0));
    assert_eq!(
        refund(Scope::Only(&["mails+soft"])),
        ["mails+soft 1 allows"]
    );
    assert_eq!(passed(&keeper, "ada"), 3);
    // A call of several descriptors gives back to the limit alone, too.
    let asked = Asked {
        facts: facts(&attributes),
        act: Act::GiveBack,
    };
    let _ = at_once(keeper.call(&[asked])).unwrap();
    assert_eq!(passed(&keeper, "ada"), 1);
    // A reset forgets both.
    at_once(keeper.reset(&facts(&attributes), Scope::All)).unwrap();
    assert_eq!(passed(&keeper, "ada"), 4);
}

#[test]
fn modes_are_those_of_the_limit_that_asks() {
    let soft = "limit = \"1/1m\"\nsoft = { extra = 1 }";
    let shadow = keeper(&limit("mails", &format!("{soft}\nmode = \"shadow\"")));
    assert_eq!(passed(&shadow, "ada"), 999);
    let over = ask(&shadow, "ada");
    assert_eq!(over.shadow_denials().count(), 1);
    assert_eq!(over.reports().len(), 0, "shadow limits promise nothing");
    let off = limit("api", "limit = \"2/1m\"\notherwise = \"spare\"");
    let off = keeper(&format!(
        "{off}{}",
        limit("spare", "limit = \"3/1m\"\nmode = \"off\"")
    ));
    assert_eq!(passed(&off, "ada"), 2);
}

#[test]
fn large_costs_many_keys_and_long_values_are_bounded_as_ever() {
    let keeper = keeper(&limit("mails", "limit = \"10/1m\"\nsoft = { extra = 5 }"));
    let cost = |user: &str, cost: u64| {
        let attributes = [("user", user)];
        let facts = Facts {
            cost: Some(Permits::new(cost)),
            ..facts(&attributes)
        };
        let answer = keeper.check_now(&facts, Scope::All);
        (answer.allowed(), answer.retry_after())
    };
    // A charge is made to one limit: 15 permits are never together.
    assert_eq!(cost("ada", 15), (false, None));
    assert_eq!(cost("ada", u64::MAX), (false, None));
    assert_eq!(cost("ada", 10), (true, None));
    assert_eq!(cost("ada", 5), (true, None));
    assert_eq!(cost("ada", 0), (true, None));
    let long = "x".repeat(1 << 20);
    assert_eq!(passed(&keeper, &long), 15);
    assert_eq!(passed(&keeper, &long[1..]), 15, "another long value");
    for number in 0..10_000 {
        assert_eq!(passed(&keeper, &number.to_string()), 15);
    }
}

#[test]
fn a_report_corrects_the_limit_that_was_charged() {
    let limits = format!(
        "[[limit]]\nname = \"tokens\"\n{USER}limit = \"1000/day\"\non_store_error = \"deny\"\n\
         cost = {{ reserve = \"attr:max\" }}\notherwise = [\"credits\"]\n\
         [[limit]]\nname = \"credits\"\n{USER}balance = {{ start = 5000, max = 10000 }}\n\
         cost = {{ reserve = \"attr:max\" }}\n"
    );
    let keeper = keeper(&limits);
    let ask = || keeper.check_now(&facts(&[("user", "ada"), ("max", "600")]), Scope::All);
    let looks = || told(&keeper.check_now(&facts(&[("user", "ada"), ("max", "0")]), Scope::All));
    let settle = |answer: &Answer, cost: u64| {
        let report = Report::default().cost(cost);
        at_once(keeper.settle(answer, &report)).unwrap();
    };
    let (first, second) = (ask(), ask());
    assert_eq!(
        told(&second),
        ["tokens 400 denies by credits", "credits 4400 allows"]
    );
    settle(&second, 100);
    assert_eq!(looks(), ["tokens 400 allows", "credits 4900 not asked"]);
    settle(&first, 50);
    assert_eq!(looks(), ["tokens 950 allows", "credits 4900 not asked"]);
    let third = ask();
    settle(&third, 700);
    assert_eq!(looks(), ["tokens 250 allows", "credits 4900 not asked"]);
}
