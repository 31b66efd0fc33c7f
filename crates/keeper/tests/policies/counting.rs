//! Limits that count different values, and limits that keep a part for some requests, end to end in
//! virtual time.

use std::collections::{HashMap, HashSet};

use ratekeeper::core::{Nanos, Origin, Permits};
use ratekeeper::policy::{Facts, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Answer, Keeper, ManualClock, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

/// A time after 1970, 4 hours before a day of UTC ends.
const START: Origin = Origin::from_unix_nanos((20_000 * 86_400 + 20 * 3_600) * 1_000_000_000);

/// Random numbers of a seed: a linear congruential generator (Knuth, MMIX).
struct Random(u64);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

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

fn facts<'a>(path: &'a str, attributes: &'a [(&'a str, &'a str)]) -> Facts<'a> {
    Facts {
        path,
        attributes,
        ..Facts::default()
    }
}

const ACCOUNTS: &str = r#"
[[limit]]
name = "accounts"
key = ["attr:device"]
missing_key = "shared"
limit = "3/day"
distinct = "attr:account"
"#;

fn sign_in(keeper: &TestKeeper, device: &str, account: &str) -> Answer {
    let attributes = [("device", device), ("account", account)];
    keeper.check_now(&facts("/", &attributes), Scope::All)
}

fn remaining(answer: &Answer) -> Vec<u64> {
    let outcomes = answer.outcomes();
    outcomes.map(|it| it.remaining().get()).collect()
}

#[test]
fn a_limit_counts_values_and_not_requests() {
    let keeper = keeper(ACCOUNTS);
    for (account, passes, left) in [
        ("ada", true, 2),
        ("ada", true, 2),
        ("bob", true, 1),
        ("cid", true, 0),
        ("dan", false, 0),
        ("ada", true, 0),
        ("dan", false, 0),
        ("cid", true, 0),
    ] {
        let answer = sign_in(&keeper, "phone", account);
        assert_eq!(answer.allowed(), passes, "{account}");
        assert_eq!(
            remaining(&answer),
            [left],
            "clients see one limit: {account}"
        );
    }
    let refused = sign_in(&keeper, "phone", "dan");
    assert_eq!(refused.retry_after(), Some(Nanos::from_secs(4 * 3_600)));
    assert_eq!(&*refused.refused_by().unwrap().rule.limit.name, "accounts");
    assert!(sign_in(&keeper, "tablet", "dan").allowed(), "another key");
    keeper.clock().advance(Nanos::from_secs(4 * 3_600));
    assert!(sign_in(&keeper, "phone", "dan").allowed(), "another day");
    assert_eq!(remaining(&sign_in(&keeper, "phone", "ada")), [1]);
}

/// Compares with a set of values for each key and window, beside another limit that refuses some
/// requests, with plans, and with one counter for all requests.
#[test]
fn values_that_were_counted_pass_free_under_an_override() {
    let keeper = keeper(ACCOUNTS);
    let pass = |accounts: &str| {
        let each = accounts.split(' ');
        each.for_each(|one| assert!(sign_in(&keeper, "phone", one).allowed(), "{one}"));
    };
    pass("a b");
    for set in ["5/day", "3/day"] {
        let number = format!("key = {{ \"attr:device\" = \"phone\" }}\nset = \"{set}\"");
        let text = format!("{ACCOUNTS}[[override]]\nlimit = \"accounts\"\n{number}\n");
        keeper.install(policy(&text));
        pass("a b c");
    }
    keeper.install(policy(ACCOUNTS));
    pass("a b c");
    assert!(!sign_in(&keeper, "phone", "d").allowed());
}

#[test]
fn at_most_so_many_values_pass_in_a_window() {
    let beside = "[[limit]]\nname = \"beside\"\nkey = [\"all\"]\nlimit = \"2/3s\"\n\
                  match = { path = \"/both\" }\nalgorithm = \"fixed-window\"\n";
    let plans = "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n";
    let fixed = ACCOUNTS.replace("3/day", "3/30s\"\nalgorithm = \"fixed-window");
    let with_plans = format!("{fixed}plans = {{ pro = \"5/30s\" }}\n{plans}");
    let for_all = fixed.replace("attr:device", "all");
    for (text, window, most) in [
        (ACCOUNTS.to_owned(), 86_400, 3),
        (fixed, 30, 3),
        (with_plans, 30, 5),
        (for_all, 30, 3),
    ] {
        let is_shared = text.contains("\"all\"");
        let keeper = keeper(&format!("{text}{beside}"));
        let mut random = Random::new(7);
        let mut seconds: u64 = 20_000 * 86_400 + 20 * 3_600;
        let mut met: HashMap<(u64, u64), HashSet<u64>> = HashMap::new();
        let mut beside: HashMap<u64, u64> = HashMap::new();
        let mut refused = [0, 0];
        for _ in 0..20_000 {
            if random.below(4) == 0 {
                let step = random.below(window / 10 + 1);
                keeper.clock().advance(Nanos::from_secs(step));
                seconds += step;
            }
            let (device, account) = (random.below(3), random.below(8));
            let path = if random.below(3) == 0 { "/both" } else { "/" };
            let (device_text, account_text) = (device.to_string(), account.to_string());
            let attributes = [
                ("device", &*device_text),
                ("account", &*account_text),
                ("plan", "pro"),
            ];
            let answer = keeper.check_now(&facts(path, &attributes), Scope::All);
            let key = if is_shared { 0 } else { device };
            let values = met.entry((key, seconds / window)).or_default();
            let room = values.contains(&account) || values.len() < most;
            let other = beside.entry(seconds / 3).or_default();
            let other_room = path == "/" || *other < 2;
            assert_eq!(answer.allowed(), room && other_room, "{values:?} {account}");
            if answer.allowed() {
                values.insert(account);
                *other += u64::from(path == "/both");
            }
            let left = most - values.len();
            assert_eq!(remaining(&answer)[0], left as u64, "{values:?}");
            refused[0] += u64::from(!room);
            refused[1] += u64::from(room && !other_room);
        }
        assert!(refused.iter().all(|count| *count > 100), "{refused:?}");
    }
}

/// Many values of one key are as exact as few.
#[test]
fn a_hundred_thousand_values_of_one_key_are_counted_exactly() {
    for most in [5_000, 100_000] {
        let keeper = keeper(&ACCOUNTS.replace("3/day", &format!("{most}/day")));
        let account = |number: u64| format!("account-{number:06}");
        for number in 0..most {
            let answer = sign_in(&keeper, "phone", &account(number));
            assert!(answer.allowed(), "{number}");
            assert_eq!(remaining(&answer), [most - 1 - number]);
            let again = sign_in(&keeper, "phone", &account(number / 2));
            assert!(again.allowed(), "{number}");
            assert_eq!(remaining(&again), [most - 1 - number]);
        }
        for number in most..most + 5_000 {
            assert!(!sign_in(&keeper, "phone", &account(number)).allowed());
        }
        for number in 0..most {
            assert!(sign_in(&keeper, "phone", &account(number)).allowed());
        }
        let usage = keeper.store().usage();
        let seen = usage.limits.iter().max_by_key(|limit| limit.keys).unwrap();
        assert_eq!(seen.keys as u64, most, "refused values take no memory");
        let each = seen.bytes / seen.keys;
        println!("{most} values: {each} bytes a value");
        assert!(
            (60..=MAX_BYTES_A_VALUE).contains(&each),
            "{each} bytes a value"
        );
    }
}

/// Bytes that a counted value takes in the memory store, at most; the guide has those measured.
const MAX_BYTES_A_VALUE: usize = 128;

/// A full store forgets values that were counted. They are then counted again, so fewer pass.
#[test]
fn a_full_store_lets_no_further_value_pass() {
    let store = MemoryStore::new(MemoryConfig {
        budget_bytes: 256 << 10,
    });
    let text = ACCOUNTS.replace("3/day", "5000/day");
    let keeper = Keeper::new(policy(&text), store, ManualClock::at(START));
    let mut passed = HashSet::new();
    let mut random = Random::new(3);
    for _ in 0..60_000 {
        let account = random.below(9_000);
        if sign_in(&keeper, "phone", &account.to_string()).allowed() {
            passed.insert(account);
        }
    }
    let usage = keeper.store().usage();
    assert!(usage.limits.iter().any(|limit| limit.evicted.budget > 0));
    assert!((500..=5_000).contains(&passed.len()), "{}", passed.len());
}

#[test]
fn a_missing_value_follows_missing_key() {
    for (missing, expected) in [
        ("\"shared\"", [true, true, true, true, true]),
        ("\"skip\"", [true, true, true, true, true]),
        ("\"deny\"", [false, false, false, false, false]),
    ] {
        let text = ACCOUNTS.replace("\"shared\"", missing);
        let keeper = keeper(&text);
        let device = [("device", "phone")];
        let passes = expected.map(|_| {
            let answer = keeper.check_now(&facts("/", &device), Scope::All);
            answer.allowed()
        });
        assert_eq!(passes, expected, "{missing}");
        // Without a value, all requests together are one value, or none.
        let counted = u64::from(missing == "\"shared\"");
        assert_eq!(remaining(&sign_in(&keeper, "phone", "ada")), [2 - counted]);
    }
}

#[test]
fn looks_refunds_and_scopes_leave_the_values() {
    let keeper = keeper(ACCOUNTS);
    for account in ["ada", "bob", "cid"] {
        assert!(sign_in(&keeper, "phone", account).allowed());
    }
    let attributes = [("device", "phone"), ("account", "ada")];
    let ada = facts("/", &attributes);
    let peeked = at_once(keeper.peek(&ada, Scope::All)).unwrap();
    assert!(peeked.allowed());
    let refunded = at_once(keeper.refund(&ada, Scope::All)).unwrap();
    assert_eq!(remaining(&refunded), [0], "the value stays counted");
    assert!(!sign_in(&keeper, "phone", "dan").allowed());
    let scoped = keeper.check_now(&ada, Scope::Only(&["accounts"]));
    assert!(scoped.allowed(), "the limit and its condition are one");
    let other = keeper.check_now(&ada, Scope::Only(&["accounts+seen"]));
    assert_eq!(
        other.outcomes().count(),
        0,
        "the condition alone is no limit"
    );
    let reset = at_once(keeper.reset(&ada, Scope::All)).unwrap();
    assert_eq!(remaining(&reset), [3]);
    assert_eq!(remaining(&sign_in(&keeper, "phone", "dan")), [2]);
}

#[test]
fn a_shadow_limit_counts_values_and_refuses_none() {
    let keeper = keeper(&format!("{ACCOUNTS}mode = \"shadow\"\n"));
    for (account, denies) in [
        ("ada", 0),
        ("bob", 0),
        ("cid", 0),
        ("dan", 1),
        ("dan", 1),
        ("ada", 0),
    ] {
        let answer = sign_in(&keeper, "phone", account);
        assert!(answer.allowed());
        assert_eq!(answer.shadow_denials().count(), denies, "{account}");
    }
}

fn api(lines: &str) -> TestKeeper {
    keeper(&format!(
        "[[limit]]\nname = \"api\"\nkey = [\"all\"]\n{lines}\n\
         priority = {{ last = \"20%\", match = {{ path = \"/health\" }} }}\n"
    ))
}

fn ask(keeper: &TestKeeper, path: &str) -> Answer {
    keeper.check_now(&facts(path, &[]), Scope::All)
}

#[test]
fn the_last_part_is_for_requests_with_priority() {
    let keeper = api("limit = \"10/10s\"");
    for left in (0..8).rev() {
        let answer = ask(&keeper, "/");
        assert!(answer.allowed());
        assert_eq!(remaining(&answer), [left], "without the part of the others");
    }
    let shed = ask(&keeper, "/");
    assert!(!shed.allowed());
    assert_eq!(remaining(&shed), [0]);
    assert_eq!(shed.retry_after(), Some(Nanos::from_secs(1)));
    for left in [1, 0] {
        let answer = ask(&keeper, "/health");
        assert!(answer.allowed());
        assert_eq!(remaining(&answer), [left]);
    }
    assert!(
        !ask(&keeper, "/health").allowed(),
        "the limit is a bound for all"
    );
    // The wait is the time until 3 are free: one for the request, two that it leaves.
    assert_eq!(ask(&keeper, "/").retry_after(), Some(Nanos::from_secs(3)));
    keeper.clock().advance(Nanos::from_secs(3));
    assert!(ask(&keeper, "/").allowed());
    assert!(!ask(&keeper, "/").allowed());
    // In doubt about a path, a request has no priority.
    assert!(!ask(&keeper, "/x/..;/health").allowed());
    assert!(ask(&keeper, "/health").allowed());
}

/// After each request without priority that passes, the whole kept part is free; one with priority
/// passes exactly when the same limit without `priority` would allow it.
#[test]
fn requests_without_priority_never_take_the_last_part() {
    for lines in [
        "limit = \"50/10s\"",
        "bucket = { size = 30, refill = \"5/1s\" }",
        "bucket = { size = 30, refill = \"5/1s\", step = true }",
        "limit = \"50/10s\"\nalgorithm = \"fixed-window\"",
        "limit = \"50/10s\"\nalgorithm = \"sliding-window-counter\"",
        "limit = \"50/10s\"\nalgorithm = \"sliding-window-log\"",
        "limit = \"50/10s\"\nalgorithm = \"quota-reset\"",
    ] {
        let keeper = api(lines);
        let capacity = keeper.policy().rules[0].quota.get();
        let kept = Permits::new(capacity.div_ceil(5));
        let mut random = Random::new(11);
        let (mut shed, mut preferred) = (0, 0);
        for _ in 0..5_000 {
            let step = random.below(500);
            keeper.clock().advance(Nanos::from_millis(step));
            let cost = Permits::new(1 + random.below(4));
            let with = |path, cost| Facts {
                cost: Some(cost),
                ..facts(path, &[])
            };
            // A request with priority sees the limit itself.
            let plain = at_once(keeper.peek(&with("/health", cost), Scope::All)).unwrap();
            let path = if random.below(4) == 0 { "/health" } else { "/" };
            let room = at_once(keeper.peek(&with("/health", cost + kept), Scope::All)).unwrap();
            let answer = keeper.check_now(&with(path, cost), Scope::All);
            if path == "/health" {
                assert_eq!(answer.allowed(), plain.allowed(), "{lines}");
                preferred += u64::from(answer.allowed());
                continue;
            }
            assert_eq!(answer.allowed(), room.allowed(), "{lines}");
            if answer.allowed() {
                let part = at_once(keeper.peek(&with("/health", kept), Scope::All)).unwrap();
                assert!(part.allowed(), "the kept part is free: {lines}");
            } else {
                assert_eq!(answer.retry_after(), room.retry_after(), "{lines}");
            }
            shed += u64::from(!answer.allowed() && plain.allowed());
        }
        assert!(shed > 50 && preferred > 50, "{lines}: {shed} {preferred}");
    }
}

#[test]
fn a_part_of_permits_on_loan_is_kept() {
    let keeper = api("concurrency = { max = 5, lease = \"60s\" }");
    let lease = |number| ratekeeper::core::LeaseId::from_bytes([number; 16]);
    let acquire = |path, number| {
        let facts = facts(path, &[]);
        at_once(keeper.acquire(&facts, Scope::All, lease(number))).unwrap()
    };
    for number in 0..4 {
        assert!(acquire("/", number).allowed());
    }
    assert!(!acquire("/", 4).allowed());
    let last = acquire("/health", 5);
    assert!(last.allowed());
    assert_eq!(last.permits().count(), 1);
    assert!(!acquire("/health", 6).allowed());
}

#[test]
fn numbers_of_a_plan_keep_their_own_part() {
    let plans = "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n";
    let keeper = keeper(&format!(
        "[[limit]]\nname = \"api\"\nkey = [\"attr:user\"]\nmissing_key = \"shared\"\n\
         limit = \"10/1h\"\nplans = {{ pro = \"100/1h\" }}\n\
         priority = {{ last = \"20%\", match = {{ path = \"/health\" }} }}\n{plans}"
    ));
    for (plan, low, all) in [("free", 8, 10), ("pro", 80, 100)] {
        let attributes = [("user", plan), ("plan", plan)];
        let passed = |path| {
            let asks = |_: &usize| {
                keeper
                    .check_now(&facts(path, &attributes), Scope::All)
                    .allowed()
            };
            (0..999).take_while(asks).count()
        };
        assert_eq!(passed("/"), low, "{plan}");
        assert_eq!(passed("/health"), all - low, "{plan}");
    }
}
