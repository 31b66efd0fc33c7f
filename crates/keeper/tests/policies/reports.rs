//! Results of requests reported afterwards, through the whole pipeline in virtual time: counted,
//! given back, reset, settled to the actual cost, and once only.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::Cell;

use ratekeeper::core::{LeaseId, Nanos, Origin, Time};
use ratekeeper::policy::{Facts, Policy, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{
    Act, Answer, Asked, DecisionId, Keeper, ManualClock, Report, Reported, Scope, at_once,
};

pub(super) type TestKeeper = Keeper<MemoryStore, ManualClock>;

pub(super) const LOGINS: &str = r#"
[[limit]]
name     = "login-failures"
key      = ["attr:user"]
bucket   = { size = 3, refill = "1/1h", step = true }
count    = { status = [401, 403], outcome = "bad-password" }
reset_on = { status = [200] }
"#;

pub(super) const TOKENS: &str = r#"
[[limit]]
name   = "tokens"
key    = ["attr:user"]
bucket = { size = 1000, refill = "10/1s" }
cost   = { reserve = "attr:max_tokens" }
report_within = "10s"
"#;

pub(super) fn policy(text: &str) -> Policy {
    let context = config::Context::from(Origin::UNIX);
    match config::parse(&format!("version = 1\n{text}"), context) {
        Ok(loaded) => loaded.policy,
        Err(findings) => panic!("{findings:#?}"),
    }
}

pub(super) fn keeper(text: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(text), store, ManualClock::at(Origin::UNIX))
}

fn nonce() -> LeaseId {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut bytes = [7; 16];
    bytes[..4].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    LeaseId::from_bytes(bytes)
}

pub(super) fn check(keeper: &TestKeeper, attributes: &[(&str, &str)]) -> Answer {
    let facts = Facts {
        attributes,
        ..Facts::default()
    };
    *at_once(keeper.check_for_report(&facts, Scope::All, || Some(nonce()))).unwrap()
}

pub(super) fn login(keeper: &TestKeeper, user: &str) -> Answer {
    check(keeper, &[("user", user)])
}

/// Returns the remaining permits of each limit.
pub(super) fn left(keeper: &TestKeeper, user: &str) -> Vec<u64> {
    let facts = Facts {
        attributes: &[("user", user)],
        ..Facts::default()
    };
    let answer = at_once(keeper.peek(&facts, Scope::All)).unwrap();
    answer
        .outcomes()
        .map(|outcome| outcome.decision.remaining.get())
        .collect()
}

pub(super) fn report(keeper: &TestKeeper, answer: &Answer, report: &Report) -> Reported {
    let id: DecisionId = answer.decision().unwrap().to_string().parse().unwrap();
    at_once(keeper.report(&id, report)).unwrap()
}

pub(super) fn status(status: u16) -> Report {
    Report::default().status(status)
}

#[test]
fn only_results_that_count_keep_their_charge() {
    for (result, expected) in [
        (status(401), 2),
        (status(403), 2),
        (status(404), 3),
        (status(500), 3),
        (Report::default().outcome("bad-password"), 2),
        (Report::default().outcome("locked"), 3),
    ] {
        let keeper = keeper(LOGINS);
        let answer = login(&keeper, "ann");
        assert_eq!(left(&keeper, "ann"), [2], "charged when it is judged");
        assert_eq!(report(&keeper, &answer, &result), Reported::Corrected);
        assert_eq!(left(&keeper, "ann"), [expected], "{result:?}");
    }
}

#[test]
fn a_good_login_empties_the_record_of_its_own_key() {
    let keeper = keeper(LOGINS);
    for user in ["ann", "ann", "bob"] {
        let answer = login(&keeper, user);
        assert_eq!(report(&keeper, &answer, &status(401)), Reported::Corrected);
    }
    let good = login(&keeper, "ann");
    assert_eq!(left(&keeper, "ann"), [0]);
    assert_eq!(report(&keeper, &good, &status(200)), Reported::Corrected);
    assert_eq!(
        (left(&keeper, "ann"), left(&keeper, "bob")),
        (vec![3], vec![2])
    );
}

/// A client that names itself and another, of which the application reads the first, must not empty
/// the record of the other.
#[test]
fn a_good_login_of_a_request_with_several_keys_empties_no_record() {
    for text in [LOGINS.into(), LOGINS.replace("count ", "# count ")] {
        let keeper = keeper(&text.replace("attr:user", "query:user"));
        let ask = |query| {
            let facts = Facts {
                query,
                ..Facts::default()
            };
            *at_once(keeper.check_for_report(&facts, Scope::All, || Some(nonce()))).unwrap()
        };
        let remaining = |query| {
            let answer = ask(query);
            let remaining = answer.outcomes().next().unwrap().decision.remaining.get();
            report(&keeper, &answer, &Report::default());
            remaining
        };
        assert_eq!(remaining("user=victim"), 2);
        let good = ask("user=me&user=victim");
        assert_eq!(report(&keeper, &good, &status(200)), Reported::Corrected);
        assert_eq!(remaining("user=victim"), 1, "{text}");
        assert_eq!(remaining("user=me"), 2);
    }
}

/// However many come before the first result is known.
#[test]
fn no_more_requests_are_judged_together_than_the_limit_holds() {
    let keeper = keeper(LOGINS);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asks: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| login(&keeper, "ann")))
            .collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    let admitted: Vec<_> = answers.iter().filter(|answer| answer.allowed()).collect();
    assert_eq!(admitted.len(), 3);
    let refused = answers.iter().filter(|answer| !answer.allowed());
    assert!(
        refused
            .into_iter()
            .all(|answer| answer.decision().is_none())
    );
    // All of them were good: every charge comes back.
    for answer in admitted {
        assert_eq!(report(&keeper, answer, &status(204)), Reported::Corrected);
    }
    assert_eq!(left(&keeper, "ann"), [3]);
}

#[test]
fn a_second_report_changes_nothing() {
    let keeper = keeper(LOGINS);
    let (first, second) = (login(&keeper, "ann"), login(&keeper, "ann"));
    assert_eq!(report(&keeper, &first, &status(404)), Reported::Corrected);
    for result in [status(404), status(200), status(401)] {
        assert_eq!(report(&keeper, &first, &result), Reported::Repeated);
        assert_eq!(left(&keeper, "ann"), [2]);
    }
    assert_eq!(report(&keeper, &second, &status(404)), Reported::Corrected);
    assert_eq!(left(&keeper, "ann"), [3]);
}

#[test]
fn of_many_reports_at_once_one_corrects() {
    let keeper = keeper(LOGINS);
    let (answer, _others) = (login(&keeper, "ann"), login(&keeper, "ann"));
    let effects: Vec<_> = std::thread::scope(|scope| {
        let reports: Vec<_> = (0..32)
            .map(|_| scope.spawn(|| report(&keeper, &answer, &status(404))))
            .collect();
        reports.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let corrected = effects.iter().filter(|it| **it == Reported::Corrected);
    assert_eq!(corrected.count(), 1);
    assert_eq!(left(&keeper, "ann"), [2]);
}

#[test]
fn a_report_after_its_time_is_refused_and_the_charge_stays() {
    for (after, reports, expected, remaining) in [
        (9_999, 1, Reported::Corrected, 1000),
        (10_000, 1, Reported::NotOpen, 700),
        (10_000, 2, Reported::NotOpen, 700),
        (9_000_000, 1, Reported::NotOpen, 1000), // refilled
    ] {
        let keeper = keeper(TOKENS);
        let answer = check(&keeper, &[("user", "ann"), ("max_tokens", "400")]);
        keeper.clock().advance(Nanos::from_millis(after));
        for _ in 0..reports {
            let effect = report(&keeper, &answer, &Report::default().cost(0));
            assert_eq!(effect, expected, "{after}");
        }
        assert_eq!(left(&keeper, "ann"), [remaining], "{after}");
    }
}

#[test]
fn an_estimate_becomes_the_actual_cost_even_beyond_the_limit() {
    for (result, expected) in [
        (Report::default().cost(100), Some(900)),
        (Report::default().cost(0), Some(1000)),
        (Report::default().cost_of("tokens", 400), Some(600)),
        (Report::default().cost_of("tokens", 900), Some(100)),
        (status(200), Some(600)), // no cost: the estimate stays
        (Report::default().cost(1_500), None),
    ] {
        let keeper = keeper(TOKENS);
        let answer = check(&keeper, &[("user", "ann"), ("max_tokens", "400")]);
        assert_eq!(left(&keeper, "ann"), [600]);
        assert_eq!(report(&keeper, &answer, &result), Reported::Corrected);
        assert_eq!(left(&keeper, "ann"), [expected.unwrap_or(0)], "{result:?}");
        if expected.is_none() {
            // 500 are owed, at 10 a second.
            keeper.clock().advance(Nanos::from_secs(50));
            assert_eq!(left(&keeper, "ann"), [0]);
            keeper.clock().advance(Nanos::from_secs(1));
            assert_eq!(left(&keeper, "ann"), [10]);
        }
    }
}

/// Every change of one character is no id, or one without a record.
#[test]
fn ids_that_no_decision_made_correct_nothing() {
    let keeper = keeper(LOGINS);
    let answer = login(&keeper, "ann");
    let id = answer.decision().unwrap().to_string();
    let mut parsed = 0;
    for (at, was) in id.bytes().enumerate() {
        let mut forged = id.clone().into_bytes();
        forged[at] = if was == b'A' { b'B' } else { b'A' };
        let forged = String::from_utf8(forged).unwrap();
        let Ok(forged) = forged.parse::<DecisionId>() else {
            continue;
        };
        parsed += 1;
        for _ in 0..3 {
            let effect = at_once(keeper.report(&forged, &status(200))).unwrap();
            assert_eq!(effect, Reported::NotOpen, "{forged:?}");
        }
    }
    assert!(parsed > 20, "{parsed}");
    assert_eq!(left(&keeper, "ann"), [2]);
    assert_eq!(report(&keeper, &answer, &status(404)), Reported::Corrected);
}

/// A full store has forgotten keys; a key that it does not know reads as nearly used up, so that no
/// limit is passed. A record that it does not know must not read as an open one.
#[test]
fn a_full_store_makes_no_decision_open() {
    let budget_bytes = 256 << 10;
    let store = MemoryStore::new(MemoryConfig { budget_bytes });
    let full = Keeper::new(policy(LOGINS), store, ManualClock::at(Origin::UNIX));
    for user in 0..20_000 {
        let answer = login(&full, &format!("user-{user}"));
        if answer.decision().is_some() {
            let reported = report(&full, &answer, &status(401));
            assert_eq!(reported, Reported::Corrected, "a genuine report, {user}");
        }
    }
    let elsewhere = keeper(LOGINS);
    for user in 0..100 {
        let foreign = login(&elsewhere, &format!("user-{user}"));
        let reported = report(&full, &foreign, &status(200));
        assert_eq!(reported, Reported::NotOpen, "{user}");
    }
}

#[test]
fn a_report_lifts_no_ban() {
    let keeper = keeper(
        r#"
[[limit]]
name     = "logins"
key      = ["attr:user"]
limit    = "2/1h"
count    = { status = [401] }
reset_on = { status = [200] }
ban      = { after = 1, within = "24h", for = "2h" }
"#,
    );
    let held_back = login(&keeper, "ann");
    assert!(login(&keeper, "ann").allowed());
    let refused = login(&keeper, "ann");
    assert!(refused.refused_by().unwrap().decision.verdict.is_ban());
    assert_eq!(
        report(&keeper, &held_back, &status(200)),
        Reported::Corrected
    );
    let still = login(&keeper, "ann");
    assert!(still.refused_by().unwrap().decision.verdict.is_ban());
    keeper.clock().advance(Nanos::from_secs(7_200));
    assert!(login(&keeper, "ann").allowed());
}

#[test]
fn a_request_that_is_refused_or_needs_no_report_has_no_id() {
    let both = format!(
        "{LOGINS}{}",
        "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"2/1m\"\n"
    );
    let keeper = keeper(&both);
    assert!(login(&keeper, "ann").decision().is_some());
    assert!(login(&keeper, "bob").decision().is_some());
    assert!(
        login(&keeper, "cat").decision().is_none(),
        "refused by `all`"
    );
    assert_eq!(left(&keeper, "cat"), [3, 0]);
    let plain = self::keeper("[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"2/1m\"\n");
    assert!(login(&plain, "ann").decision().is_none());
}

/// A limit on trial is charged, and corrected, as if it were enforced.
#[test]
fn a_charge_that_a_limit_in_shadow_mode_denied_is_not_given_back() {
    let keeper = keeper(&LOGINS.replace("key  ", "mode = \"shadow\"\nkey  "));
    let answers: Vec<_> = (0..5).map(|_| login(&keeper, "ann")).collect();
    assert!(answers.iter().all(Answer::allowed));
    assert_eq!(left(&keeper, "ann"), [0]);
    for (answer, expected) in answers.iter().zip([1, 2, 3, 3, 3]) {
        assert_eq!(report(&keeper, answer, &status(404)), Reported::Corrected);
        assert_eq!(left(&keeper, "ann"), [expected]);
    }
}

#[test]
fn an_id_cannot_have_a_charge_given_back_that_was_not_made() {
    let keeper = keeper(&LOGINS.replace("key  ", "mode = \"shadow\"\nkey  "));
    let answers: Vec<_> = (0..4).map(|_| login(&keeper, "ann")).collect();
    let denied = answers[3].decision().unwrap();
    // The flags of the charge are the byte behind the version and the time.
    let mut changed = denied.to_string();
    assert_eq!(&changed[7..8], "A");
    changed.replace_range(7..8, "B");
    let changed: DecisionId = changed.parse().unwrap();
    let report = |id| at_once(keeper.report(id, &status(404))).unwrap();
    assert_eq!(report(&changed), Reported::NotOpen);
    assert_eq!(left(&keeper, "ann"), [0]);
    assert_eq!(report(denied), Reported::Corrected);
    assert_eq!(left(&keeper, "ann"), [0]);
}

#[test]
fn a_reload_keeps_open_decisions_and_follows_the_new_rules() {
    let keeper = keeper(LOGINS);
    let [first, second, third] = ["ann", "bob", "cat"].map(|user| login(&keeper, user));
    keeper.install(policy(
        &LOGINS
            .replace("403]", "404]")
            .replace("size = 3", "size = 6"),
    ));
    assert_eq!(report(&keeper, &first, &status(403)), Reported::Corrected);
    assert_eq!(report(&keeper, &first, &status(403)), Reported::Repeated);
    let ann = left(&keeper, "ann");
    assert_eq!(report(&keeper, &second, &status(404)), Reported::Corrected);
    assert!(left(&keeper, "bob") < ann, "404 counts now");
    // A limit that went, or that no report corrects any more, keeps its charge.
    keeper.install(policy(&LOGINS.replace("login-failures", "others")));
    assert_eq!(report(&keeper, &third, &status(404)), Reported::Corrected);
    keeper.install(policy(
        "[[limit]]\nname = \"a\"\nkey = [\"all\"]\nlimit = \"2/1m\"\n",
    ));
    assert_eq!(report(&keeper, &third, &status(404)), Reported::NotOpen);
}

#[test]
fn plans_are_corrected_under_their_own_numbers() {
    let text = format!(
        "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n{TOKENS}plans = {{ pro = \"5000/10s burst \
         5000\" }}\n"
    );
    let keeper = keeper(&text);
    let pro = [("user", "ann"), ("plan", "pro"), ("max_tokens", "400")];
    let remaining = |answer: &Answer| answer.outcomes().next().unwrap().decision.remaining.get();
    let answer = check(&keeper, &pro);
    assert_eq!(remaining(&answer), 4_600);
    let settled = report(&keeper, &answer, &Report::default().cost(4_400));
    assert_eq!(settled, Reported::Corrected);
    assert_eq!(remaining(&check(&keeper, &pro)), 200);
    assert_eq!(
        left(&keeper, "ann"),
        [1000],
        "the free plan is not concerned"
    );
}

/// Limits beyond the length of an id keep their charges.
#[test]
fn ids_of_long_keys_and_many_limits_fit_a_header() {
    let text: String = (0..40)
        .map(|index| LOGINS.replace("login-failures", &format!("limit-{index}")))
        .collect();
    let keeper = keeper(&text);
    // A value of 1 MiB is hashed, and shorter than one of 120 bytes.
    for (length, expected) in [(1 << 20, 40..41), (120, 18..30)] {
        let user = "x".repeat(length);
        let answer = login(&keeper, &user);
        let id = answer.decision().unwrap().to_string();
        assert!(id.len() <= 4_096, "{}", id.len());
        assert_eq!(report(&keeper, &answer, &status(404)), Reported::Corrected);
        let given_back = left(&keeper, &user);
        let given_back = given_back.iter().filter(|left| **left == 3).count();
        assert!(expected.contains(&given_back), "{given_back}");
    }
}

/// A clock that is set back finds the record open, and closed once.
#[test]
fn a_clock_set_back_reopens_no_decision() {
    let keeper = keeper(TOKENS);
    keeper.clock().advance(Nanos::from_secs(1_000));
    let answer = check(&keeper, &[("user", "ann"), ("max_tokens", "400")]);
    assert_eq!(
        report(&keeper, &answer, &Report::default().cost(100)),
        Reported::Corrected
    );
    keeper.clock().set(Time::from_nanos(0));
    let again = report(&keeper, &answer, &Report::default().cost(0));
    assert_eq!(again, Reported::Repeated);
}

#[test]
fn an_answer_that_is_held_settles_without_an_id() {
    let keeper = keeper(TOKENS);
    let facts = Facts {
        attributes: &[("user", "ann"), ("max_tokens", "400")],
        ..Facts::default()
    };
    let answer = keeper.check_now(&facts, Scope::All);
    assert!(answer.decision().is_none());
    at_once(keeper.settle(&answer, &Report::default().cost(1))).unwrap();
    assert_eq!(left(&keeper, "ann"), [999]);
}

/// A random number costs a call of the system, which requests without such a limit do not pay.
#[test]
fn a_nonce_is_drawn_only_if_a_charge_can_be_reported() {
    let open = "[[limit]]\nname = \"pages\"\nkey = [\"all\"]\nlimit = \"9/1h\"\n";
    let logins = LOGINS.replace("key ", "match = { path = \"/login\" }\nkey ");
    let keeper = keeper(&format!("{open}{logins}"));
    let drawn = Cell::new(0);
    let check = |path, has_nonce: bool| {
        let facts = Facts {
            path,
            attributes: &[("user", "ann")],
            ..Facts::default()
        };
        drawn.set(0);
        let nonce = || {
            drawn.set(drawn.get() + 1);
            has_nonce.then(self::nonce)
        };
        let answer = at_once(keeper.check_for_report(&facts, Scope::All, nonce)).unwrap();
        (drawn.get(), answer.decision().is_some(), answer.allowed())
    };
    assert_eq!(check("/", true), (0, false, true));
    // Without a number the charges are made, and stay.
    assert_eq!(check("/login", false), (1, false, true));
    assert_eq!(check("/login", true), (1, true, true));
    assert_eq!(check("/login", true), (1, true, true));
    // Refused: the charge of the check without a number stayed.
    assert_eq!(check("/login", true), (0, false, false));
}

/// Of a call with several items, one id corrects all limits.
#[test]
fn a_call_of_several_items_is_reported_once() {
    let keeper = keeper(LOGINS);
    let [ada, eve] = [[("user", "ada")], [("user", "eve")]];
    let [ada, eve] = [&ada, &eve].map(|attributes| Asked {
        facts: Facts {
            attributes,
            ..Facts::default()
        },
        act: Act::Charge,
    });
    let ask = |asked: &[Asked<'_>]| {
        let answers = at_once(keeper.call_for_report(asked, || Some(nonce()))).unwrap();
        (answers.allowed(), answers.whole().decision().cloned())
    };
    let (_, both) = ask(&[ada, eve, ada]);
    let both = both.expect("a report corrects the limit");
    let other = Report::default().status(500);
    assert_eq!(
        at_once(keeper.report(&both, &other)),
        Ok(Reported::Corrected)
    );
    assert_eq!(
        at_once(keeper.report(&both, &other)),
        Ok(Reported::Repeated)
    );
    let [(true, Some(id)), (false, None), (true, Some(_))] =
        [ask(&[ada, ada, ada]), ask(&[ada]), ask(&[eve, eve, eve])]
    else {
        panic!("three are free again for each");
    };
    let failed = Report::default().status(401);
    assert_eq!(
        at_once(keeper.report(&id, &failed)),
        Ok(Reported::Corrected)
    );
    assert!(!ask(&[ada]).0, "it counts");
    let back = Asked {
        act: Act::GiveBack,
        ..ada
    };
    assert_eq!(ask(&[back]), (true, None));
    assert_eq!(
        ask(&[ada, back]),
        (true, None),
        "a call that gives back has no id"
    );
    assert!(at_once(keeper.call(&[eve])).is_ok_and(|answers| !answers.allowed()));
}
