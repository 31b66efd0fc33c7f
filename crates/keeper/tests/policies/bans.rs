//! Bans, end to end in virtual time: strikes, answers, plans, shadow mode, reloads, eviction.

use std::net::{IpAddr, Ipv4Addr};
use std::thread;

use ratekeeper::core::{Charge, Decision, Key, KeyBuilder, Mode, Nanos, Permits, Verdict};
use ratekeeper::policy::{Facts, Policy, config};
use ratekeeper::store::{Ban, MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Clock, Keeper, ManualClock, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

const HOUR: Nanos = Nanos::from_secs(3_600);

/// Two requests an hour; the third refusal bans for an hour, then two, then four.
const LOGIN: &str = r#"
[[limit]]
name  = "login"
key   = ["ip"]
limit = "2/2h"
ban   = { after = 3, within = "24h", for = "1h", grow = 2.0, max = "4h" }
"#;

fn policy(limits: &str) -> Policy {
    let loaded = config::parse(
        &format!("version = 1\n{limits}"),
        config::Context::default(),
    );
    loaded
        .unwrap_or_else(|findings| panic!("{findings:?}"))
        .policy
}

fn keeper(limits: &str) -> TestKeeper {
    with_memory(limits, MemoryConfig::default())
}

fn with_memory(limits: &str, memory: MemoryConfig) -> TestKeeper {
    Keeper::new(
        policy(limits),
        MemoryStore::new(memory),
        ManualClock::default(),
    )
}

fn from(last: u32) -> Facts<'static> {
    Facts {
        ip: Some(IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + last))),
        ..Facts::default()
    }
}

fn ask(keeper: &TestKeeper) -> Answer {
    keeper.check_now(&from(1), Scope::All)
}

fn wait(keeper: &TestKeeper, span: Nanos) {
    keeper.clock().set(keeper.clock().now() + span);
}

/// Sends requests until one begins a ban; returns how many were sent.
fn until_banned(keeper: &TestKeeper) -> usize {
    let begins = |answer: &Answer| {
        let mut outcomes = answer.outcomes();
        outcomes.any(|one| matches!(one.decision.verdict, Verdict::Ban { .. }))
    };
    let asked = (1..1_000).find(|_| begins(&ask(keeper)));
    asked.expect("a ban begins")
}

#[test]
fn the_third_refusal_bans_and_each_further_ban_is_longer() {
    let keeper = keeper(LOGIN);
    assert_eq!(until_banned(&keeper), 5, "two pass, and three are refused");
    for (hours, passed) in [(1, 1), (2, 2), (4, 2), (4, 2)] {
        let refused = ask(&keeper);
        assert_eq!(refused.retry_after(), Some(Nanos::from_secs(hours * 3_600)));
        assert!(keeper.check_now(&from(2), Scope::All).outcomes().count() == 1);
        wait(&keeper, Nanos::from_secs(hours * 3_600));
        assert_eq!(until_banned(&keeper), passed + 3, "after {hours} hours");
    }
}

/// Two refusals are forgotten a day after them; a ban is forgotten a day after its end.
#[test]
fn refusals_count_within_their_span() {
    let keeper = keeper(LOGIN);
    let day = Nanos::from_secs(24 * 3_600);
    for _ in 0..4 {
        ask(&keeper);
    }
    wait(&keeper, day);
    assert_eq!(until_banned(&keeper), 5, "two pass, and three new refusals");
    wait(&keeper, HOUR + day);
    assert_eq!(until_banned(&keeper), 5);
    assert_eq!(ask(&keeper).retry_after(), Some(HOUR), "it is the first");
}

#[test]
fn a_refusal_names_the_ban() {
    let keeper = keeper(LOGIN);
    for _ in 0..4 {
        ask(&keeper);
    }
    let body = |answer: &Answer| answer.body().expect("a body").content;
    let peeked = at_once(keeper.peek(&from(1), Scope::All)).expect("the memory store answers");
    assert!(
        body(&peeked).contains("abnormal-usage-detected"),
        "the next begins the ban"
    );
    for _ in 0..2 {
        let refused = ask(&keeper);
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.retry_after(), Some(HOUR), "a look is no strike");
        let body = body(&refused);
        let expected = r#"{"type":"https://iana.org/assignments/http-problem-types#abnormal-usage-detected","title":"Banned for abnormal usage","status":429,"detail":"Limit login bans this client. Try again in 3600 s.","violated-policies":["login"],"retry_after":3600}"#;
        assert_eq!(body, expected);
    }
}

#[test]
fn other_limits_are_not_charged_while_banned_and_their_refusals_are_no_strikes() {
    let other = "[[limit]]\nname = \"all\"\nkey = [\"all\"]\nlimit = \"4/24h\"\n";
    let keeper = keeper(&format!("{LOGIN}{other}"));
    let left = |answer: &Answer| answer.outcomes().last().map(|one| one.decision.remaining);
    until_banned(&keeper);
    for _ in 0..50 {
        assert_eq!(left(&ask(&keeper)), Some(Permits::new(2)));
    }
    for _ in 0..2 {
        assert!(keeper.check_now(&from(2), Scope::All).allowed());
    }
    // Nothing is left of the other limit: its refusals of a third client begin no ban.
    for _ in 0..10 {
        let refused = keeper.check_now(&from(3), Scope::All);
        let login = refused.outcomes().next().expect("two limits");
        assert!(login.decision.verdict.allows());
    }
}

#[test]
fn a_ban_in_shadow_mode_shows_what_it_would_do() {
    let keeper = keeper(&format!("{LOGIN}mode = \"shadow\"\n"));
    assert_eq!(until_banned(&keeper), 5);
    let answer = ask(&keeper);
    assert!(answer.allowed());
    let denial = answer.shadow_denials().next().expect("a shadow denial");
    assert_eq!(
        denial.decision.verdict,
        Verdict::Banned { retry_after: HOUR }
    );
}

#[test]
fn a_reload_keeps_bans_and_dropping_the_word_ends_them() {
    let keeper = keeper(LOGIN);
    until_banned(&keeper);
    for quantity in ["\"7/2h\"", "\"7/1h\"\nalgorithm = \"fixed-window\""] {
        keeper.install(policy(&LOGIN.replace("\"2/2h\"", quantity)));
        assert_eq!(ask(&keeper).retry_after(), Some(HOUR), "{quantity}");
    }
    keeper.install(policy(&LOGIN.replace("ban ", "# ")));
    let answer = ask(&keeper);
    assert!(!answer.outcomes().any(|one| one.decision.verdict.is_ban()));
}

#[test]
fn each_plan_has_bans_of_its_own() {
    let plans = "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n";
    let keeper = keeper(&format!("{plans}{LOGIN}plans = {{ pro = \"4/2h\" }}\n"));
    until_banned(&keeper);
    let pro = Facts {
        attributes: &[("plan", "pro")],
        ..from(1)
    };
    let passed = (0..10).filter(|_| keeper.check_now(&pro, Scope::All).allowed());
    assert_eq!(passed.count(), 4);
    assert_eq!(keeper.check_now(&pro, Scope::All).retry_after(), Some(HOUR));
}

/// Bans the key of `from(1)` for `span`; lifts its ban if that is zero.
fn ban(keeper: &TestKeeper, span: Nanos) -> Decision {
    let policy = keeper.policy();
    let mut bytes = Vec::new();
    KeyBuilder::new(&mut bytes).part(b"10.0.0.1");
    let charge = Charge {
        limit: &policy.rules[0].limit,
        key: Key::from_bytes(&bytes),
        cost: Permits::ZERO,
        mode: Mode::Enforce,
    };
    keeper
        .store()
        .settle_now(Ban(span), &[charge], keeper.clock().now())[0]
}

#[test]
fn bans_by_hand_stand_and_are_lifted_with_the_strikes() {
    let keeper = keeper(LOGIN);
    assert!(ban(&keeper, HOUR).verdict.is_ban(), "a key never seen");
    assert_eq!(ask(&keeper).retry_after(), Some(HOUR));
    assert!(ban(&keeper, Nanos::ZERO).verdict.allows());
    for _ in 0..4 {
        ask(&keeper);
    }
    assert!(ban(&keeper, Nanos::ZERO).verdict.allows());
    for _ in 0..2 {
        let refused = ask(&keeper)
            .refused_by()
            .expect("the quota is used")
            .decision;
        assert!(
            !refused.verdict.is_ban(),
            "strikes were forgotten, usage was not"
        );
    }
    assert_eq!(until_banned(&keeper), 1);
}

/// Each refusal is one strike: of many at once, exactly one begins the ban.
#[test]
fn strikes_of_threads_are_exact() {
    let limit = LOGIN.replace("after = 3", "after = 100");
    let keeper = keeper(&limit);
    let verdicts: Vec<Verdict> = thread::scope(|scope| {
        let ask = || -> Vec<_> {
            let decided = (0..50).map(|_| ask(&keeper));
            let verdict = |answer: Answer| answer.outcomes().next().map(|one| one.decision.verdict);
            decided.filter_map(verdict).collect()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        let each = threads.into_iter().map(thread::ScopedJoinHandle::join);
        each.flat_map(|each| each.expect("no thread panics"))
            .collect()
    });
    let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|verdict| is(verdict)).count();
    let denied = count(|verdict| matches!(verdict, Verdict::Deny { .. }));
    let begun = count(|verdict| matches!(verdict, Verdict::Ban { .. }));
    let banned = count(|verdict| matches!(verdict, Verdict::Banned { .. }));
    assert_eq!((denied, begun, banned), (99, 1, 400 - 2 - 100));
}

#[test]
fn bans_of_many_keys_stay_within_memory_and_shut_out_no_newcomer() {
    let budget_bytes = 4 << 20;
    let limit = LOGIN.replace("after = 3", "after = 1");
    let keeper = with_memory(&limit, MemoryConfig { budget_bytes });
    for client in 0..100_000 {
        for _ in 0..3 {
            keeper.check_now(&from(client), Scope::All);
        }
    }
    assert!(keeper.store().usage().bytes <= budget_bytes);
    let policy = keeper.policy();
    let (limit, now) = (&policy.rules[0].limit, keeper.clock().now());
    let bans = keeper.store().bans(limit, 1_000, now);
    assert_eq!(bans.len(), 1_000);
    assert!(bans.iter().all(|ban| ban.decision.verdict.is_ban()));
    let newcomer = keeper.check_now(&from(200_000), Scope::All);
    let verdict = newcomer.outcomes().next().map(|one| one.decision.verdict);
    assert_eq!(verdict, Some(Verdict::Allow));
}
