//! Counts of keys in virtual time, of decisions of a keeper, and against exact counts.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;
use ratekeeper::{Clock as _, Keeper, ManualClock, Scope};
use ratekeeper_core::{Nanos, Permits};
use ratekeeper_policy::Facts;
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use super::*;

const HASHER: FixedState = FixedState::with_seed(1);
const MINUTE: Nanos = Nanos::from_secs(60);

/// A keeper whose decisions are noted.
struct Bench {
    keeper: Keeper<MemoryStore, Arc<ManualClock>>,
    clock: Arc<ManualClock>,
    top_keys: TopKeys,
}

fn policy(limits: &str) -> Policy {
    let text = format!("version = 1\n{limits}\n");
    parse(&text, Context::default()).unwrap().policy
}

fn limit(rest: &str) -> String {
    format!("[[limit]]\nname = \"l\"\nkey = [\"attr:k\"]\n{rest}\n")
}

impl Bench {
    fn new(limits: &str, top_keys: TopKeys) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(MemoryConfig::default());
        let keeper = Keeper::new(policy(limits), store, Arc::clone(&clock));
        top_keys.install(&keeper.policy());
        Self {
            keeper,
            clock,
            top_keys,
        }
    }

    fn of(rest: &str) -> Self {
        Self::new(&limit(rest), TopKeys::default())
    }

    fn ask(&self, key: &str) {
        let facts = Facts {
            attributes: &[("k", key)][usize::from(key.is_empty())..],
            cost: Some(Permits::new(1)),
            ..Facts::default()
        };
        self.note(&self.keeper.check_now(&facts, Scope::All));
    }

    fn note(&self, answer: &Answer) {
        for outcome in answer.outcomes() {
            let hash = HASHER.hash_one(outcome.key.as_bytes());
            self.top_keys.note(answer, &outcome, hash, |_, _| ());
        }
    }

    fn top(&self, by: TopOrder, window: TopWindow) -> TopKeysFound {
        let policy = self.keeper.policy();
        let id = policy.rules.iter().next().unwrap().limit.id;
        let now = self.keeper.clock().now();
        self.top_keys.top(id, by, window, 20, now)
    }

    /// Returns `key requests denied` of the keys of the last minute.
    fn minute(&self, by: TopOrder) -> Vec<String> {
        words(&self.top(by, TopWindow::Minute))
    }
}

fn words(found: &TopKeysFound) -> Vec<String> {
    let line = |key: &found::TopKey| {
        let name = String::from_utf8_lossy(&key.key[1..]).into_owned();
        assert_eq!((key.requests.error, key.denied.error), (0, 0));
        format!("{name} {} {}", key.requests.count, key.denied.count)
    };
    found.keys.iter().map(line).collect()
}

#[test]
fn an_abuser_and_a_number_that_is_too_low_are_told_apart() {
    let one = Bench::of("limit = \"2/1m\"\nalgorithm = \"fixed-window\"");
    (0..100).for_each(|_| one.ask("mallory"));
    one.ask("ada");
    let found = one.top(TopOrder::Denied, TopWindow::Minute);
    assert_eq!(
        (found.requests, found.denied, found.distinct_denied),
        (101, 98, 1)
    );
    assert_eq!(words(&found), ["mallory 100 98"]);

    let many = Bench::of("limit = \"2/1m\"\nalgorithm = \"fixed-window\"");
    for user in 0..500 {
        (0..3).for_each(|_| many.ask(&format!("user-{user}")));
    }
    let found = many.top(TopOrder::Denied, TopWindow::Minute);
    assert_eq!((found.requests, found.denied), (1_500, 500));
    assert!(
        found.distinct_denied.abs_diff(500) <= 65,
        "{}",
        found.distinct_denied
    );
    assert!(found.unlisted_at_most >= 1);
}

#[test]
fn requests_and_refusals_have_orders_of_their_own() {
    let bench = Bench::of("limit = \"5/1m\"\nalgorithm = \"fixed-window\"");
    for (key, times) in [("b", 5), ("a", 4), ("c", 7)] {
        (0..times).for_each(|_| bench.ask(key));
    }
    assert_eq!(
        bench.minute(TopOrder::Requests),
        ["c 7 2", "b 5 0", "a 4 0"]
    );
    assert_eq!(bench.minute(TopOrder::Denied), ["c 7 2"]);
    let found = bench.top(TopOrder::Denied, TopWindow::Minute);
    let now = bench.clock.now();
    assert_eq!(found.keys[0].denied_since, Some(now));
    assert_eq!(found.keys[0].free_at, Some(now + MINUTE));
}

#[test]
fn refusals_run_until_a_period_without_one() {
    let bench = Bench::of("limit = \"1/24h\"\nalgorithm = \"fixed-window\"");
    bench.ask("k");
    bench.clock.advance(Nanos::from_secs(30));
    let since = |window| bench.top(TopOrder::Denied, window).keys[0].denied_since;
    let first = bench.clock.now();
    for _ in 0..41 {
        bench.ask("k");
        assert_eq!(since(TopWindow::Minute), Some(first));
        bench.clock.advance(MINUTE);
    }
    assert_eq!(since(TopWindow::Minute), Some(first), "of the last minute");
    bench.clock.advance(MINUTE);
    bench.ask("k");
    assert_eq!(since(TopWindow::Minute), Some(bench.clock.now()));
    assert_eq!(since(TopWindow::Hour), Some(first));
}

#[test]
fn keys_refused_before_are_not_refused_for_the_first_time() {
    let bench = Bench::of("limit = \"1/24h\"\nalgorithm = \"fixed-window\"");
    let refuse = |keys: std::ops::Range<u32>| {
        keys.for_each(|key| (0..2).for_each(|_| bench.ask(&key.to_string())));
        let found = bench.top(TopOrder::Denied, TopWindow::Minute);
        (found.distinct_denied, found.first_denied)
    };
    assert_eq!(refuse(0..3), (3, 3));
    bench.clock.advance(MINUTE);
    assert_eq!(refuse(0..3), (3, 0));
    assert_eq!(refuse(3..5), (5, 2));
    bench.clock.advance(MINUTE);
    bench.clock.advance(MINUTE);
    assert_eq!(refuse(0..1), (1, 1));
}

#[test]
fn counts_leave_a_window_after_one_to_two_of_it() {
    let bench = Bench::of("limit = \"1/1h\"");
    (0..3).for_each(|_| bench.ask("k"));
    let start = bench.clock.now();
    for (later, minute, hour) in [
        (Nanos::from_secs(59), 2, 2),
        (Nanos::from_secs(60), 2, 2),
        (Nanos::from_secs(119), 2, 2),
        (Nanos::from_secs(120), 0, 2),
        (Nanos::from_secs(7_199), 0, 2),
        (Nanos::from_secs(7_200), 0, 0),
    ] {
        bench
            .clock
            .advance((start + later).since(bench.clock.now()));
        let denied = |window| bench.top(TopOrder::Denied, window);
        assert_eq!(denied(TopWindow::Minute).denied, minute, "{later}");
        let found = denied(TopWindow::Hour);
        assert_eq!(found.denied, hour, "{later}");
        let covered = bench.clock.now().since(found.since);
        assert!(covered < Nanos::from_secs(7_200), "{later}");
    }
}

#[test]
fn an_answer_that_was_held_back_is_counted_in_the_current_period() {
    let bench = Bench::of("limit = \"9/1m\"");
    let facts = Facts {
        attributes: &[("k", "held")],
        cost: Some(Permits::new(1)),
        ..Facts::default()
    };
    let held = bench.keeper.check_now(&facts, Scope::All);
    bench.clock.advance(MINUTE);
    bench.ask("now");
    bench.note(&held);
    assert_eq!(bench.minute(TopOrder::Requests), ["now 1 0", "held 1 0"]);
}

#[test]
fn shadow_denials_count_and_requests_without_a_key_for_their_limit_alone() {
    let shadow = Bench::of("limit = \"1/1m\"\nmode = \"shadow\"\nmissing_key = \"deny\"");
    (0..3).for_each(|_| shadow.ask("k"));
    shadow.ask("");
    assert_eq!(shadow.minute(TopOrder::Denied), ["k 3 2"]);
    let found = shadow.top(TopOrder::Denied, TopWindow::Minute);
    assert_eq!((found.requests, found.denied, found.no_key), (4, 3, [1, 0]));
    let soft = Bench::of("limit = \"1/1m\"\nsoft = { extra = \"100%\" }");
    (0..2).for_each(|_| soft.ask("k"));
    assert_eq!(soft.minute(TopOrder::Denied), [""; 0]);
    assert_eq!(soft.minute(TopOrder::Requests), ["k 2 0"]);
}

#[test]
fn a_request_that_goes_to_a_route_is_logged() {
    let limits = "[listen]\nhttp = \"127.0.0.1:0\"\n\
                  [listen.proxy]\nupstream = \"http://127.0.0.1:1\"\n\
                  [[listen.proxy.route]]\nname = \"spare\"\nupstream = \"http://127.0.0.1:2\"\n";
    let limits = limits.to_owned() + &limit("limit = \"1/1h\"\non_limit = \"route:spare\"");
    let bench = Bench::new(&limits, TopKeys::default());
    let facts = Facts {
        attributes: &[("k", "a")],
        routes: &["spare".into()],
        ..Facts::default()
    };
    let logged = Cell::new(None);
    for expected in [None, Some(1), Some(2)] {
        let answer = bench.keeper.check_now(&facts, Scope::All);
        let outcome = answer.outcomes().next().unwrap();
        let log = |denial: LoggedDenial<'_>, _: &LimitLog| logged.set(denial.count);
        bench.top_keys.note(&answer, &outcome, 0, log);
        assert_eq!(logged.get(), expected);
    }
}

#[test]
fn a_reload_keeps_the_counts_of_a_limit_with_the_same_key() {
    let bench = Bench::of("limit = \"1/1m\"");
    (0..3).for_each(|_| bench.ask("k"));
    for (limits, expected) in [
        (limit("limit = \"2/1m\"\nmode = \"shadow\""), 2),
        (limit("limit = \"2/1m\"").replace("attr:k", "attr:j"), 0),
    ] {
        bench.keeper.install(policy(&limits));
        bench.top_keys.install(&bench.keeper.policy());
        let found = bench.top(TopOrder::Denied, TopWindow::Hour);
        assert_eq!(found.denied, expected, "{limits}");
    }
}

#[test]
fn memory_is_bounded_and_given_back() {
    let bytes = 40_000;
    let bench = Bench::new(
        &limit("limit = \"1/1d\"\nalgorithm = \"fixed-window\""),
        TopKeys::with_bytes(bytes, bytes),
    );
    let policy = bench.keeper.policy();
    let id = policy.rules.iter().next().unwrap().limit.id;
    for user in 0..1_000 {
        bench.ask(&format!("user-{user}-{}", "x".repeat(100)));
    }
    assert!(
        bench.top_keys.uncounted(id) > 0,
        "the room for requests ends"
    );
    (0..50).for_each(|_| bench.ask("mallory"));
    let found = bench.top(TopOrder::Denied, TopWindow::Minute);
    assert_eq!(found.denied, 49, "refusals have room of their own");
    bench.clock.advance(Nanos::from_secs(7_200));
    bench.top_keys.sweep(bench.clock.now());
    assert_eq!(bench.top_keys.budgets.denied.bytes(), 0);
    let fixed = bench.top_keys.budgets.requests.bytes();
    assert_eq!(fixed, size_of::<LimitTopKeys>());
}

#[test]
fn a_limit_with_many_keys_takes_what_the_guide_states() {
    let bench = Bench::of("limit = \"1/1d\"\nalgorithm = \"fixed-window\"");
    for later in [0, 3_540, 60] {
        bench.clock.advance(Nanos::from_secs(later));
        for user in 0..2_000 {
            (0..2).for_each(|_| bench.ask(&format!("user-{user:018}"))); // 24 bytes as a key
        }
    }
    let kib = bench.top_keys.bytes() >> 10;
    assert!((155..=165).contains(&kib), "{kib}");
}

/// With a million keys, each printed count is within its printed error of the exact one, and no key
/// above the printed bound is missing.
#[test]
fn a_zipf_load_of_a_million_keys_is_within_the_printed_bounds() {
    let policy = policy(&limit("limit = \"1/1m\""));
    let rule = policy.rules.iter().next().unwrap();
    let top_keys = TopKeys::default();
    let keys = LimitTopKeys::new(rule, Time::ZERO, &top_keys.budgets.requests).unwrap();
    let mut exact: HashMap<u64, u64> = HashMap::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..100_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let part = f64::from(u32::try_from(state >> 32).unwrap()) / 2_f64.powi(32);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1..=10^6"
        )]
        let key = 1_000_000_f64.powf(part) as u64; // the k-th is as frequent as 1/k
        *exact.entry(key).or_default() += 1;
        let bytes = key.to_le_bytes();
        let key = HashedKey {
            hash: HASHER.hash_one(bytes.as_slice()),
            bytes: &bytes,
        };
        let note = Note {
            key,
            at: Time::ZERO,
            denied_until: Some(Time::MAX),
            is_banned: false,
        };
        assert!(keys.note(note, &top_keys.budgets).is_counted);
    }
    let found = keys.top(TopOrder::Denied, TopWindow::Hour, 20, Time::ZERO);
    assert_eq!(found.denied, 100_000);
    let distinct = exact.len() as u64;
    assert!(found.distinct_denied.abs_diff(distinct) <= distinct * 13 / 100);
    for key in &found.keys {
        let number = u64::from_le_bytes(key.key.as_slice().try_into().unwrap());
        let count = exact.remove(&number).unwrap();
        let sketch::Estimate { count: most, error } = key.denied;
        assert!(most >= count && most - error <= count, "{number}: {count}");
        assert_eq!(key.requests, key.denied);
    }
    let unlisted = exact.values().max().unwrap();
    assert!(*unlisted <= found.unlisted_at_most);
    assert!(
        found.unlisted_at_most < 100_000 / 50,
        "{}",
        found.unlisted_at_most
    );
}
