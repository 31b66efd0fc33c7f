//! Reports that come late, and ids that are not genuine: no permit comes back twice.

use ratekeeper::core::{Key, KeyBuilder, Nanos};
use ratekeeper::policy::Policy;
use ratekeeper::{Answer, Clock as _, DecisionId, Report, Reported, at_once};

use super::reports::{LOGINS, TOKENS, check, keeper, left, login, policy, report, status};

/// The excess of `libraries.md`: charges of several windows were added up.
#[test]
fn late_reports_give_back_no_permit_twice() {
    let policy = "
        [[limit]]
        name  = \"login-failures\"
        key   = [\"attr:user\"]
        limit = \"1/1s\"
        count = { status = [401] }
        report_within = \"30s\"
    ";
    for algorithm in [
        "token-bucket",
        "fixed-window",
        "sliding-window-log",
        "quota-reset",
    ] {
        let keeper = keeper(&format!("{policy}\nalgorithm = \"{algorithm}\""));
        let answers: Vec<_> = (0..5)
            .map(|_| {
                let answer = login(&keeper, "ann");
                assert!(answer.allowed(), "{algorithm}");
                keeper.clock().advance(Nanos::from_millis(1_100));
                answer
            })
            .collect();
        let mut passes = 0;
        for answer in &answers {
            passes += u32::from(login(&keeper, "ann").allowed());
            assert_eq!(report(&keeper, answer, &status(200)), Reported::Corrected);
        }
        passes += u32::from(login(&keeper, "ann").allowed());
        assert_eq!(passes, 1, "{algorithm}");
    }
}

/// The moment and the time of payment of a charge are as much a part of its record as its cost.
#[test]
fn no_holder_of_an_id_prolongs_the_time_in_which_a_charge_is_paid() {
    let policy = LOGINS.replace(
        "{ size = 3, refill = \"1/1h\", step = true }",
        "{ size = 10, refill = \"10/60s\" }",
    );
    let keeper = keeper(&policy);
    let answer = login(&keeper, "ann");
    let id = answer.decision().unwrap().to_string().into_bytes();
    let (paid, made) = (9..18, id.len() - 31..id.len() - 23);
    keeper.clock().advance(Nanos::from_secs(7));
    for _ in 0..10 {
        assert!(login(&keeper, "ann").allowed());
    }
    for changed in [paid, made] {
        let mut id = id.clone();
        id[changed].fill(b'_');
        let forged: DecisionId = String::from_utf8(id).unwrap().parse().unwrap();
        assert_ne!(Some(&forged), answer.decision());
        let reported = at_once(keeper.report(&forged, &status(404)));
        assert_eq!(reported, Ok(Reported::NotOpen));
    }
    assert_eq!(report(&keeper, &answer, &status(404)), Reported::Corrected);
    assert_eq!(left(&keeper, "ann"), [0], "paid after 6 s");
}

#[test]
fn an_id_that_is_made_up_is_not_late() {
    let keeper = keeper(TOKENS);
    let answer = check(&keeper, &[("user", "ann"), ("max_tokens", "400")]);
    let limit = keeper.policy().rules[0].limit.id;
    let late = || {
        let counts = keeper.reservations().counts(limit, keeper.clock().now());
        counts.unwrap().late
    };
    let id = answer.decision().unwrap();
    let mut forged = id.to_string().into_bytes();
    let nonce = forged.len() - 20..forged.len() - 10;
    forged[nonce].fill(b'_');
    let forged: DecisionId = String::from_utf8(forged).unwrap().parse().unwrap();
    let costs = Report::default().cost(9);
    assert_eq!(
        at_once(keeper.report(&forged, &costs)),
        Ok(Reported::NotOpen)
    );
    assert_eq!(late(), 0, "its time is not over");
    keeper.clock().advance(Nanos::from_secs(10));
    assert_eq!(at_once(keeper.report(id, &costs)), Ok(Reported::NotOpen));
    assert_eq!(late(), 1);
}

/// Calls are open while the numbers of their key change: its override is set, changed and removed.
#[test]
fn a_report_finds_its_charge_under_other_numbers_of_the_key() {
    let numbers = |set: Option<(&str, u64)>| {
        set.map_or_else(String::new, |(user, most)| {
            format!(
                "[[override]]\nlimit = \"tokens\"\nkey = {{ \"attr:user\" = \"{user}\" }}\n\
                 set = \"{most}/2000h\"\n"
            )
        })
    };
    let limit = "[[limit]]\nname = \"tokens\"\nkey = [\"attr:user\"]\nlimit = \"10/2000h\"\n\
        cost = { reserve = \"attr:max_tokens\" }\nreset_on = { status = [299] }\n";
    for (before, after) in [
        (None, Some(("ann", 30))),
        (Some(("ann", 20)), Some(("ann", 30))),
        (Some(("ann", 20)), None),
        (Some(("a*", 20)), Some(("a*", 30))),
        (Some(("a*", 20)), None),
    ] {
        let all = after.map_or(10, |(_, most)| most);
        for algorithm in ["token-bucket", "fixed-window", "sliding-window-log"] {
            for asks_between in [false, true] {
                let limit = format!("{limit}algorithm = \"{algorithm}\"\n");
                for (result, left_of) in [
                    (Report::default().cost(1), all - 1),
                    (Report::default().cost(9), all - 9),
                    (status(299), all),
                ] {
                    let keeper = keeper(&format!("{limit}{}", numbers(before)));
                    let answer = check(&keeper, &[("user", "ann"), ("max_tokens", "5")]);
                    keeper.install(policy(&format!("{limit}{}", numbers(after))));
                    if asks_between {
                        assert_eq!(left(&keeper, "ann"), [all - 5]);
                    }
                    assert_eq!(report(&keeper, &answer, &result), Reported::Corrected);
                    let case = format!("{before:?} -> {after:?}, {algorithm}, {asks_between}");
                    assert_eq!(left(&keeper, "ann"), [left_of], "{case}");
                }
            }
        }
    }
}

/// Time has paid next to nothing: a part of a permit counts as paid.
#[test]
fn a_raised_override_gives_back_as_a_raised_limit_does() {
    let limit = |number: u64| {
        format!(
            "[[limit]]\nname = \"tokens\"\nkey = [\"attr:user\"]\nlimit = \"{number}/2000h\"\n\
             cost = {{ reserve = \"attr:max_tokens\" }}\n"
        )
    };
    let one = |number: u64| {
        let key = "key = { \"attr:user\" = \"ann\" }";
        let set = format!("[[override]]\nlimit = \"tokens\"\n{key}\nset = \"{number}/2000h\"\n");
        limit(7) + &set
    };
    for (before, after) in [(limit(20), limit(100)), (one(20), one(100))] {
        let keeper = keeper(&before);
        let answer = check(&keeper, &[("user", "ann"), ("max_tokens", "5")]);
        keeper.clock().advance(Nanos::from_millis(1));
        keeper.install(policy(&after));
        let costs = Report::default().cost(1);
        assert_eq!(report(&keeper, &answer, &costs), Reported::Corrected);
        assert_eq!(left(&keeper, "ann"), [98], "{after}");
    }
}

/// A faster number pays a charge sooner than its own would have. Of limits that are no bucket no permit
/// comes back twice.
#[test]
fn after_another_number_a_bucket_gives_back_only_what_is_unpaid_by_both() {
    let with = |algorithm: &str, quota: &str| {
        format!(
            "[[limit]]\nname = \"a\"\nkey = [\"attr:user\"]\nlimit = \"{quota}\"\n\
             algorithm = \"{algorithm}\"\ncount = {{ status = [401] }}\nreport_within = \"1h\"\n"
        )
    };
    for (algorithm, before, after, secs, spent, all_back) in [
        ("token-bucket", "10/1h", "10/10s", 10, 10, 0),
        ("token-bucket", "10/1h", "10/10s", 4, 4, 5), // of 6, rounded down
        ("token-bucket", "10/1h", "10/1h", 720, 2, 8),
        ("token-bucket", "10/10s", "10/1h", 4, 0, 0), // 6 s are no permit any more
        ("leaky-bucket", "10/1h", "10/10s", 10, 1, 0),
        ("quota-reset", "10/1h", "10/10s", 10, 10, 0),
        ("exponential", "10/1h", "10/10s", 10, 6, 3),
    ] {
        let case = format!("{algorithm}, {before} -> {after}, {secs} s");
        let keeper = keeper(&with(algorithm, before));
        let passed = || {
            (0..20)
                .map(|_| login(&keeper, "ann"))
                .filter(Answer::allowed)
        };
        let made: Vec<_> = passed().collect();
        keeper.install(policy(&with(algorithm, after)));
        keeper.clock().advance(Nanos::from_secs(secs));
        assert_eq!(passed().count(), spent, "{case}");
        for answer in made.iter().chain(&made) {
            report(&keeper, answer, &status(200));
        }
        assert_eq!(passed().count(), all_back, "{case}");
    }
}

/// In a shared store the numbers of each day have keys of their own.
#[test]
fn an_open_charge_is_found_by_the_override_and_the_day_of_its_key() {
    let limits = |dated: &str| {
        policy(&format!(
            "timezone = \"UTC\"\n[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n\
             [[limit]]\nname = \"l\"\nkey = [\"attr:user\"]\nlimit = \"10/month\"\n{dated}\n\
             plans = {{ pro = \"12/month\" }}\n[[override]]\nlimit = \"l\"\n\
             key = {{ \"attr:user\" = \"vip\" }}\nset = \"20/month\"\n[[override]]\n\
             limit = \"l\"\nkey = {{ \"attr:user\" = \"p-*\" }}\nset = \"30/month\"\n"
        ))
    };
    let (plain, dated) = (limits(""), limits("anchor = \"attr:day\""));
    for (user, charged, counted) in [
        ("vip", "l", "l=20/month"),
        ("vip", "l=25/month", "l=20/month"),
        ("vip", "l=pro", "l=20/month"),
        ("p-1", "l=20/month", "l=30/month"),
        ("p-1", "l=pro", "l=30/month"),
        ("ann", "l=pro", "l=pro"),
        ("ann", "l=25/month", "l"),
    ] {
        let mut bytes = Vec::new();
        KeyBuilder::new(&mut bytes).part(user.as_bytes());
        let found = |policy: &Policy, name: &str| {
            let limit = policy.limit_of(name, Key::from_bytes(&bytes), 0);
            limit.map(|limit| limit.name.to_string())
        };
        let on_day = |name: &str| match name {
            "l" => String::from("l=@15"),
            name => format!("{name}@15"),
        };
        let case = format!("{user} {charged}");
        assert_eq!(found(&plain, charged).as_deref(), Some(counted), "{case}");
        assert_eq!(found(&dated, charged).as_deref(), Some(counted), "{case}");
        let (charged, counted) = (on_day(charged), on_day(counted));
        assert_eq!(found(&dated, &charged), Some(counted), "{case}");
        assert_eq!(found(&dated, "l=gone@15").is_some(), user != "ann");
        assert!(found(&plain, "l=60h").is_some(), "a spacing");
    }
}
