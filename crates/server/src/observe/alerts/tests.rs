//! The definition in virtual time: each row is a moment and what happens then.

use ratekeeper::{Clock as _, Keeper, ManualClock, Scope};
use ratekeeper_core::{Nanos, Permits};
use ratekeeper_policy::Facts;
use ratekeeper_policy::config::{Context, parse};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use super::*;

/// A keeper whose decisions are noted.
struct Bench {
    keeper: Keeper<MemoryStore, Arc<ManualClock>>,
    clock: Arc<ManualClock>,
    alerts: Alerts,
    /// `start KEY` and `end KEY`, in order.
    seen: Vec<String>,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// The key asks for that many permits.
    Ask(&'static str, u64),
    /// The keys are looked at, and these changes are found.
    Look(&'static [&'static str]),
}

use Act::{Ask, Look};

fn policy(limit: &str) -> Policy {
    let text = format!(
        "version = 1\n[[limit]]\nname = \"l\"\nkey = [\"attr:k\"]\nmissing_key = \"skip\"\n{limit}\n"
    );
    parse(&text, Context::default()).unwrap().policy
}

impl Bench {
    fn new(limit: &str) -> Self {
        let clock = Arc::new(ManualClock::default());
        let store = MemoryStore::new(MemoryConfig::default());
        let keeper = Keeper::new(policy(limit), store, Arc::clone(&clock));
        let settings = AlertSettings {
            reveal_keys: true,
            ..AlertSettings::default()
        };
        let alerts = Alerts::new(&settings, None).unwrap();
        alerts.install(&keeper.policy(), drop);
        Self {
            keeper,
            clock,
            alerts,
            seen: Vec::new(),
        }
    }

    fn ask(&self, key: &str, cost: u64) {
        let facts = Facts {
            attributes: &[("k", key)],
            cost: Some(Permits::new(cost)),
            ..Facts::default()
        };
        self.alerts.note(&self.keeper.check_now(&facts, Scope::All));
    }

    fn look(&mut self) {
        let now = self.keeper.clock().now();
        let seen = &mut self.seen;
        let wall = |time: Time| time.as_nanos();
        self.alerts
            .look(now, wall, |notice| seen.push(words(&notice)));
    }

    fn reload(&mut self, limit: &str) {
        self.keeper.install(policy(limit));
        let seen = &mut self.seen;
        let report = |notice| seen.push(words(&notice));
        self.alerts.install(&self.keeper.policy(), report);
    }

    fn counts(&self) -> AlertCounts {
        self.alerts.counts().pop().unwrap()
    }
}

fn words(notice: &AlertNotice) -> String {
    let change = match notice.change {
        AlertChange::Started => "start",
        AlertChange::Ended(AlertEnd::Fell) => "end",
        AlertChange::Ended(AlertEnd::Removed) => "removed",
        AlertChange::Ended(AlertEnd::Stopped) => "stopped",
    };
    let key = notice.key.as_ref().unwrap().join(",");
    format!("{change} {}", key.trim_start_matches("attr:k="))
}

fn check(limit: &str, acts: &[(u64, Act)]) {
    let mut bench = Bench::new(limit);
    let mut now = 0;
    for (second, act) in acts {
        bench.clock.advance(Nanos::from_secs(second - now));
        now = *second;
        match act {
            Ask(key, cost) => bench.ask(key, *cost),
            Look(expected) => {
                bench.seen.clear();
                bench.look();
                bench.seen.sort();
                assert_eq!(bench.seen, *expected, "{limit} at {second} s");
            }
        }
    }
}

/// A bucket that refills one permit a second.
const BUCKET: &str = "limit = \"10/10s\"\nalert = { above = \"80%\", for = \"3s\" }";

#[test]
fn an_alert_starts_after_for_and_ends_when_the_key_has_fallen() {
    // One request of 2 each second keeps the bucket nearly empty.
    check(
        BUCKET,
        &[
            (0, Ask("a", 10)),
            (1, Ask("a", 1)),
            (2, Look(&[])),
            (2, Ask("a", 1)),
            (3, Look(&["start a"])),
            (3, Ask("a", 1)),
            (4, Look(&[])),
            (5, Look(&["end a"])),
            (6, Look(&[])),
        ],
    );
}

#[test]
fn a_silent_key_falls_as_its_limit_refills() {
    // It has 80 % spent after 2 s, before `for` is over.
    check(
        BUCKET,
        &[
            (0, Ask("a", 10)),
            (1, Look(&[])),
            (2, Look(&[])),
            (3, Look(&[])),
            (9, Look(&[])),
        ],
    );
    // A window keeps its usage to its end.
    check(
        "limit = \"10/1m\"\nalgorithm = \"fixed-window\"\nalert = { above = \"80%\", for = \"3s\" }",
        &[
            (1, Ask("a", 9)),
            (3, Look(&[])),
            (4, Look(&["start a"])),
            (59, Look(&[])),
            (60, Look(&["end a"])),
        ],
    );
}

#[test]
fn a_key_that_has_fallen_since_the_last_look_was_above_for_long_enough() {
    let limit = BUCKET.replace("3s", "2s");
    check(
        &limit,
        &[
            (1, Ask("a", 10)),
            (2, Look(&[])),
            (3, Look(&["end a", "start a"])),
        ],
    );
}

#[test]
fn a_key_that_is_banned_between_two_looks_alerts() {
    // The first refusal bans; the key sends nothing more.
    let ban = "ban = { after = 1, within = \"24h\", for = \"1h\" }";
    check(
        &format!("{BUCKET}\n{ban}"),
        &[
            (0, Ask("a", 10)),
            (0, Ask("a", 1)),
            (2, Look(&[])),
            (3, Look(&["start a"])),
            (62, Look(&[])),
            (63, Look(&["end a"])),
        ],
    );
    let short = ban.replace("1h", "4s");
    check(
        &format!("{BUCKET}\n{short}"),
        &[
            (0, Ask("a", 10)),
            (0, Ask("a", 1)),
            (3, Look(&["start a"])),
            (4, Look(&["end a"])),
        ],
    );
}

#[test]
fn a_key_that_falls_begins_anew() {
    check(
        BUCKET,
        &[
            (0, Ask("a", 9)), // above until 1 s
            (2, Ask("a", 3)), // above again, since 2 s
            (3, Look(&[])),
            (3, Ask("a", 1)),
            (4, Ask("a", 1)),
            (4, Look(&[])),
            (5, Look(&["start a"])),
        ],
    );
}

#[test]
fn denials_count_as_all_of_the_limit() {
    // 70 % is spent, and 5 more are refused.
    check(
        BUCKET,
        &[
            (0, Ask("a", 7)),
            (0, Ask("a", 9)),
            (1, Ask("a", 9)),
            (2, Ask("a", 9)),
            (3, Look(&["start a"])),
            (7, Look(&["end a"])),
        ],
    );
}

#[test]
fn requests_above_the_capacity_show_nothing() {
    check(
        BUCKET,
        &[
            (0, Ask("a", 11)),
            (1, Ask("a", 11)),
            (3, Look(&[])),
            (9, Look(&[])),
        ],
    );
}

#[test]
fn keys_and_modes_are_watched_apart() {
    for mode in ["enforce", "shadow"] {
        let limit = format!("{BUCKET}\nmode = \"{mode}\"");
        check(
            &limit,
            &[
                (0, Ask("a", 10)),
                (1, Ask("b", 10)),
                (1, Ask("a", 1)),
                (2, Ask("b", 1)),
                (2, Ask("a", 1)),
                (3, Ask("b", 1)),
                (3, Look(&["start a"])),
                (4, Look(&["end a", "start b"])),
                (5, Look(&["end b"])),
            ],
        );
    }
}

/// Starts the alert of a key.
fn with_active() -> Bench {
    let mut bench = Bench::new(BUCKET);
    for _ in 0..4 {
        bench.ask("a", 10);
        bench.ask("a", 1);
        bench.clock.advance(Nanos::SECOND);
    }
    bench.ask("a", 1);
    bench.look();
    assert_eq!(bench.seen, ["start a"]);
    bench
}

#[test]
fn a_reload_ends_the_alerts_of_limits_that_change() {
    for (limit, expected) in [
        (BUCKET.to_owned(), None),
        (BUCKET.replace("10/10s", "20/20s"), None),
        (BUCKET.replace("80%", "70%"), Some("removed a")),
        ("limit = \"10/10s\"".to_owned(), Some("removed a")),
        (format!("{BUCKET}\nmode = \"off\""), Some("removed a")),
        (format!("{BUCKET}\nmode = \"shadow\""), Some("removed a")),
    ] {
        let mut bench = with_active();
        bench.reload(&limit);
        assert_eq!(bench.seen.get(1).map(String::as_str), expected, "{limit}");
        let counts = bench.alerts.counts();
        assert!(
            counts.iter().all(|it| it.started == 1),
            "{limit}: {counts:?}"
        );
        let left = usize::from(expected.is_none());
        assert_eq!(bench.alerts.active().len(), left, "{limit}");
        assert_eq!(
            bench.alerts.watched.load(Ordering::Relaxed),
            left,
            "{limit}"
        );
    }
}

#[test]
fn a_stop_ends_all_alerts_once() {
    let bench = with_active();
    let mut seen = Vec::new();
    for _ in 0..2 {
        bench.alerts.close(|notice| seen.push(words(&notice)));
    }
    bench.ask("a", 1);
    assert_eq!(seen, ["stopped a"]);
    assert_eq!(bench.alerts.watched.load(Ordering::Relaxed), 0);
}

#[test]
fn the_id_is_that_of_the_alert() {
    let mut bench = with_active();
    let started = bench.alerts.active().pop().unwrap();
    bench.clock.advance(Nanos::from_secs(60));
    let mut ended = Vec::new();
    let (now, wall) = (bench.keeper.clock().now(), |time: Time| time.as_nanos());
    bench.alerts.look(now, wall, |notice| ended.push(notice));
    assert_eq!((ended.len(), &ended[0].id), (1, &started.id));
    for _ in 0..4 {
        bench.ask("a", 10);
        bench.clock.advance(Nanos::SECOND);
    }
    bench.ask("a", 10);
    bench.look();
    assert_ne!(bench.alerts.active().pop().unwrap().id, started.id);
}

#[test]
fn a_hundred_thousand_keys_stay_within_the_bound() {
    let mut bench = Bench::new(BUCKET);
    for key in 0..100_000 {
        bench.ask(&format!("key-{key}"), 10);
    }
    assert_eq!(bench.alerts.watched.load(Ordering::Relaxed), MAX_WATCHED);
    assert_eq!(bench.counts().unwatched, 99_000);
    for _ in 0..4 {
        bench.clock.advance(Nanos::SECOND);
        for key in 0..MAX_WATCHED {
            bench.ask(&format!("key-{key}"), 10);
        }
    }
    bench.look();
    assert_eq!(
        (bench.seen.len(), bench.counts().active),
        (MAX_WATCHED, 1_000)
    );
    // Their places are free again when they have fallen.
    bench.clock.advance(Nanos::from_secs(60));
    bench.look();
    assert_eq!(
        (bench.seen.len(), bench.counts().active),
        (2 * MAX_WATCHED, 0)
    );
    assert_eq!(bench.alerts.watched.load(Ordering::Relaxed), 0);
}

#[test]
fn concurrent_decisions_start_and_end_an_alert_once() {
    let mut bench = Bench::new(BUCKET);
    for _ in 0..5 {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| bench.ask("a", 1)));
            }
        });
        bench.look();
        bench.clock.advance(Nanos::SECOND);
    }
    bench.clock.advance(Nanos::from_secs(60));
    bench.look();
    bench.look();
    assert_eq!(bench.seen, ["start a", "end a"]);
}
