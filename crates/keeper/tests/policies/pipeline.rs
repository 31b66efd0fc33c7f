//! The way of a request, end to end in virtual time: policy text in, answer out.

use ratekeeper::core::{Nanos, Origin};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Clock, Keeper, ManualClock, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

/// 2026-11-21 00:00 UTC: a whole minute, hour and day.
const ORIGIN: Origin = Origin::from_unix_nanos(1_795_219_200_000_000_000);

fn policy(text: &str) -> ratekeeper::policy::Policy {
    match config::parse(text, config::Context::from(ORIGIN)) {
        Ok(loaded) => loaded.policy,
        Err(findings) => {
            panic!(
                "{}",
                config::render("test", text, &findings, config::Colour::Never)
            )
        }
    }
}

fn keeper(text: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(text), store, ManualClock::at(ORIGIN))
}

fn user(name: &str) -> [(&str, &str); 1] {
    [("user", name)]
}

fn check(keeper: &TestKeeper, attributes: &[(&str, &str)]) -> Answer {
    keeper.check_now(
        &Facts {
            attributes,
            ..Facts::default()
        },
        Scope::All,
    )
}

fn header(answer: &Answer, name: &str) -> Option<String> {
    let fields = answer.header_fields();
    fields
        .into_iter()
        .find(|(field, _)| *field == name)
        .map(|(_, value)| value)
}

const BUCKET: &str = r#"
version = 1
[[limit]]
name = "per-user"
key = ["attr:user"]
bucket = { size = 10, refill = "1/1s" }
"#;

#[test]
fn headers_count_down_and_then_return_the_wait() {
    let keeper = keeper(BUCKET);
    let first = check(&keeper, &user("ann"));
    assert_eq!(
        header(&first, "ratelimit-policy").unwrap(),
        r#""per-user";q=10;w=10"#
    );
    assert_eq!(
        header(&first, "ratelimit").unwrap(),
        r#""per-user";r=9;t=9"#
    );
    assert_eq!(header(&first, "retry-after"), None);
    for _ in 0..9 {
        assert!(check(&keeper, &user("ann")).allowed());
    }
    let refused = check(&keeper, &user("ann"));
    assert_eq!(refused.status(), 429);
    assert_eq!(
        header(&refused, "ratelimit").unwrap(),
        r#""per-user";r=0;t=1"#
    );
    assert_eq!(header(&refused, "retry-after").unwrap(), "1");
    assert!(
        check(&keeper, &user("bob")).allowed(),
        "each user has a limit of its own"
    );

    keeper.clock().advance(Nanos::from_secs(1));
    assert!(
        check(&keeper, &user("ann")).allowed(),
        "a request passes after Retry-After"
    );
}

#[test]
fn the_body_names_the_limit_and_the_wait() {
    let keeper = keeper(BUCKET);
    for _ in 0..10 {
        assert!(check(&keeper, &user("ann")).allowed());
    }
    let refused = check(&keeper, &user("ann"));
    let body = refused.body().unwrap();
    assert_eq!(body.content_type, "application/problem+json");
    let json: serde_json::Value = serde_json::from_str(&body.content).unwrap();
    assert_eq!(json["status"], 429);
    assert_eq!(json["violated-policies"], serde_json::json!(["per-user"]));
    assert_eq!(json["retry_after"], 1);
    assert!(
        json["detail"].as_str().unwrap().contains("per-user"),
        "{json}"
    );
}

const TWO: &str = r#"
version = 1
timezone = "UTC"
[[limit]]
name = "per-day"
key = ["attr:user"]
limit = "3/day"
[[limit]]
name = "per-minute"
key = ["attr:user"]
limit = "2/1m"
algorithm = "fixed-window"
"#;

#[test]
fn a_refusal_by_one_limit_charges_none() {
    let keeper = keeper(TWO);
    assert!(check(&keeper, &user("ann")).allowed());
    assert!(check(&keeper, &user("ann")).allowed());
    for _ in 0..5 {
        let refused = check(&keeper, &user("ann"));
        assert_eq!(
            &*refused.refused_by().unwrap().rule.limit.name,
            "per-minute"
        );
        let per_day = refused.outcomes().next().unwrap();
        assert_eq!(
            per_day.decision.remaining.get(),
            1,
            "the day is not charged"
        );
    }
    keeper.clock().advance(Nanos::from_secs(60));
    assert!(check(&keeper, &user("ann")).allowed());
    let refused = check(&keeper, &user("ann"));
    assert_eq!(&*refused.refused_by().unwrap().rule.limit.name, "per-day");
    assert_eq!(
        refused.retry_after(),
        Some(Nanos::from_secs(86_400 - 60)),
        "the wait ends at midnight"
    );
    assert_eq!(
        header(&refused, "ratelimit").unwrap(),
        r#""per-day";r=0;t=86340, "per-minute";r=1;t=60"#,
        "the tightest limit comes first",
    );
}

#[test]
fn the_longest_wait_is_reported() {
    let keeper = keeper(TWO);
    check(&keeper, &user("ann")).allowed();
    check(&keeper, &user("ann")).allowed();
    keeper.clock().advance(Nanos::from_secs(60));
    check(&keeper, &user("ann")).allowed();
    let facts = user("ann");
    let facts = Facts {
        attributes: &facts,
        cost: Some(ratekeeper::core::Permits::new(2)),
        ..Facts::default()
    };
    let refused = keeper.check_now(&facts, Scope::All);
    assert_eq!(
        refused
            .outcomes()
            .filter(ratekeeper::Outcome::refuses)
            .count(),
        2
    );
    assert_eq!(&*refused.refused_by().unwrap().rule.limit.name, "per-day");
}

#[test]
fn limits_in_shadow_mode_set_no_fields_and_refuse_no_request() {
    let text = BUCKET
        .replace("name =", "mode = \"shadow\"\nname =")
        .replace("10", "1");
    let keeper = keeper(&text);
    assert!(check(&keeper, &user("ann")).allowed());
    let second = check(&keeper, &user("ann"));
    assert!(second.allowed());
    assert_eq!(second.shadow_denials().count(), 1);
    assert!(
        second.header_fields().is_empty(),
        "a limit in shadow mode sets no fields"
    );
}

#[test]
fn a_missing_key_that_denies_charges_no_limit() {
    let text = format!("{TWO}missing_key = \"deny\"\n");
    let keeper = keeper(&text);
    let answer = check(&keeper, &[]);
    assert!(!answer.allowed());
    assert_eq!(
        answer.retry_after(),
        None,
        "there is no wait after which the request passes"
    );
    let refused_by = answer.refused_by().unwrap();
    assert!(refused_by.key_missing);
    assert_eq!(&*refused_by.rule.limit.name, "per-minute");
    let shared = answer.outcomes().next().unwrap();
    assert_eq!(
        shared.decision.remaining.get(),
        3,
        "the other limit is not charged"
    );
}

#[test]
fn a_missing_key_denies_in_shadow_mode_without_refusing_the_request() {
    let text = format!("{TWO}missing_key = \"deny\"\nmode = \"shadow\"\n");
    let keeper = keeper(&text);
    let answer = check(&keeper, &[]);
    assert!(answer.allowed());
    let denial = answer.shadow_denials().next().unwrap();
    assert_eq!(&*denial.rule.limit.name, "per-minute");
    let charged = answer.outcomes().next().unwrap();
    assert_eq!(
        charged.decision.remaining.get(),
        2,
        "the other limit is charged"
    );
}

#[test]
fn scope_narrows_peek_looks_refund_returns_permits_and_reset_erases() {
    let keeper = keeper(TWO);
    let attributes = user("ann");
    let facts = Facts {
        attributes: &attributes,
        ..Facts::default()
    };
    let only = Scope::Only(&["per-day"]);
    assert_eq!(keeper.check_now(&facts, only).outcomes().count(), 1);
    let remaining = || -> Vec<u64> {
        let free = Facts {
            cost: Some(ratekeeper::core::Permits::ZERO),
            ..facts
        };
        let answer = at_once(keeper.peek(&free, Scope::All)).unwrap();
        answer
            .outcomes()
            .map(|outcome| outcome.decision.remaining.get())
            .collect()
    };
    assert_eq!(remaining(), [2, 2]);
    at_once(keeper.peek(&facts, Scope::All)).unwrap().allowed();
    assert_eq!(remaining(), [2, 2], "a peek charges nothing");
    at_once(keeper.refund(&facts, only)).unwrap();
    assert_eq!(remaining(), [3, 2]);
    keeper.check_now(&facts, Scope::All).allowed();
    at_once(keeper.reset(&facts, Scope::All)).unwrap();
    assert_eq!(remaining(), [3, 2]);
}

#[test]
fn a_reload_keeps_balances_and_applies_new_parameters_at_once() {
    let keeper = keeper(BUCKET);
    for _ in 0..10 {
        assert!(check(&keeper, &user("ann")).allowed());
    }
    assert!(!check(&keeper, &user("ann")).allowed());
    let version = keeper.install(policy(&BUCKET.replace("size = 10", "size = 15")));
    assert_eq!(version, 2);
    for _ in 0..5 {
        assert!(
            check(&keeper, &user("ann")).allowed(),
            "the new size allows five more"
        );
    }
    assert!(
        !check(&keeper, &user("ann")).allowed(),
        "the bucket is not refilled"
    );

    keeper.install(policy(&BUCKET.replace(
        "bucket =",
        "limit = \"20/1h\"\nalgorithm = \"fixed-window\" #",
    )));
    for _ in 0..5 {
        assert!(
            check(&keeper, &user("ann")).allowed(),
            "15 of 20 used permits are carried over"
        );
    }
    assert!(!check(&keeper, &user("ann")).allowed());
    assert_eq!(keeper.policy().version, 3);
}

#[test]
fn legacy_headers_describe_the_tightest_limit() {
    let keeper = keeper(&TWO.replace("version = 1", "version = 1\nheaders = \"both\""));
    let answer = check(&keeper, &user("ann"));
    assert_eq!(header(&answer, "x-ratelimit-limit").unwrap(), "2");
    assert_eq!(header(&answer, "x-ratelimit-remaining").unwrap(), "1");
    assert_eq!(header(&answer, "x-ratelimit-used").unwrap(), "1");
    assert_eq!(header(&answer, "x-ratelimit-reset").unwrap(), "60");
    assert!(header(&answer, "ratelimit").is_some());
}

/// A millionth of the permits used is no number of 64 bits.
#[test]
fn limits_of_any_size_are_put_in_order() {
    let keeper = keeper(&format!(
        "{BUCKET}\n[[limit]]\nname = \"bytes\"\nkey = [\"all\"]\nlimit = \"50000000000000/1d\"\ncost = 40000000000000\n"
    ));
    let fields = header(&check(&keeper, &user("ann")), "ratelimit").unwrap();
    assert!(
        fields.starts_with("\"bytes\";r=10000000000000;"),
        "{fields}"
    );
}

#[test]
fn windows_under_a_second_are_reported_as_one_second() {
    let text = BUCKET.replace(
        "bucket = { size = 10, refill = \"1/1s\" }",
        "spacing = \"200ms\"",
    );
    let keeper = keeper(&text);
    let answer = check(&keeper, &user("ann"));
    assert_eq!(
        header(&answer, "ratelimit-policy").unwrap(),
        r#""per-user";q=5;w=1"#
    );
    let refused = check(&keeper, &user("ann"));
    assert_eq!(refused.retry_after(), Some(Nanos::from_millis(200)));
    assert_eq!(
        header(&refused, "retry-after").unwrap(),
        "1",
        "Retry-After is never 0"
    );
}

#[test]
fn the_clock_is_read_once_per_request() {
    struct Counting(std::sync::atomic::AtomicU32);
    impl Clock for Counting {
        fn now(&self) -> ratekeeper::core::Time {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            ratekeeper::core::Time::ZERO
        }
        fn origin(&self) -> Origin {
            ORIGIN
        }
    }
    let clock = std::sync::Arc::new(Counting(0.into()));
    let store = MemoryStore::new(MemoryConfig::default());
    let keeper = Keeper::new(policy(TWO), store, std::sync::Arc::clone(&clock));
    let attributes = user("ann");
    keeper
        .check_now(
            &Facts {
                attributes: &attributes,
                ..Facts::default()
            },
            Scope::All,
        )
        .allowed();
    assert_eq!(clock.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}

/// Which clock the policy was parsed for does not matter: that of the keeper holds.
#[test]
fn calendars_follow_the_clock_of_the_keeper() {
    let text = "version = 1\ntimezone = \"UTC\"\n[[limit]]\nname = \"daily\"\nkey = [\"all\"]\n\
                limit = \"1/day\"\n";
    // 2026-03-18, 13:11:58 UTC.
    let now = Origin::from_unix_nanos(1_773_839_518_000_000_000);
    for parsed_for in [Origin::UNIX, now] {
        let context = config::Context::from(parsed_for);
        let policy = config::parse(text, context).unwrap().policy;
        let store = MemoryStore::new(MemoryConfig::default());
        let keeper = Keeper::new(policy.clone(), store, ManualClock::at(now));
        for installed in [false, true] {
            if installed {
                keeper.install(policy.clone());
                at_once(keeper.reset(&Facts::default(), Scope::All)).unwrap();
            }
            assert!(keeper.check_now(&Facts::default(), Scope::All).allowed());
            let refused = keeper.check_now(&Facts::default(), Scope::All);
            let midnight = Nanos::from_secs(38_882);
            assert_eq!(refused.retry_after(), Some(midnight), "{parsed_for:?}");
        }
    }
}

/// A client with one bearer token makes up another credential for each request.
#[test]
fn a_made_up_credential_does_not_replace_the_real_one() {
    let keeper = keeper(
        r#"
        version = 1
        [[limit]]
        name = "per-key"
        key = ["api_key"]
        missing_key = "deny"
        bucket = { size = 2, refill = "2/1h" }
        "#,
    );
    let ask = |made_up: &[u8]| {
        let headers = [
            ("authorization", &b"Bearer real"[..]),
            ("x-api-key", made_up),
        ];
        let facts = Facts {
            headers: &headers,
            ..Facts::default()
        };
        keeper.check_now(&facts, Scope::All)
    };
    assert!(ask(b"a").allowed());
    let second = ask(b"b");
    assert!(second.allowed());
    let field = header(&second, "ratelimit").unwrap();
    assert_eq!(field.matches("per-key").count(), 1, "{field}");
    assert!(field.starts_with("\"per-key\";r=0"), "{field}");
    assert!(!ask(b"c").allowed());
    assert!(!ask(b"").allowed());
}
