//! Keys that an operator bans or allows by hand, in virtual time: their place, their end, reloads.

use ratekeeper::core::{Key, KeyBuilder, Nanos, Origin, Permits, Verdict};
use ratekeeper::policy::{
    Descriptor, Facts, HandAct, HandEntry, HandTable, MAX_BY_HAND, Numbers, Policy, config,
};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Act, Asked, Clock, Keeper, ManualClock, Scope, at_once};

type TestKeeper = Keeper<MemoryStore, ManualClock>;

const ORIGIN: Origin = Origin::from_unix_nanos(1_795_377_600_000_000_000);

const API: &str = r#"
[plan]
from = "attr:plan"
default = "free"
[[limit]]
name  = "api"
match = { path = "/api/**" }
key   = ["ip"]
limit = "2/2h"
plans = { free = "2/2h", pro = "unlimited", ended = "blocked" }
[[limit]]
name  = "spare"
key   = ["ip"]
limit = "100/1h"
[[exempt]]
limits = ["api"]
match  = { path = "/api/health" }
"#;

fn policy(limits: &str) -> Policy {
    let context = config::Context::from(ORIGIN);
    let loaded = config::parse(
        &format!("version = 1\ntimezone = \"UTC\"\n{limits}"),
        context,
    );
    loaded
        .unwrap_or_else(|findings| panic!("{findings:?}"))
        .policy
}

fn keeper(limits: &str) -> TestKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy(limits), store, ManualClock::at(ORIGIN))
}

/// Changes the table; returns what `change` does.
fn update(keeper: &TestKeeper, change: impl FnOnce(&mut HandTable) -> bool) -> bool {
    let by_hand = &keeper.policy().by_hand;
    let before = by_hand.table();
    let mut next = (*before).clone();
    let done = change(&mut next);
    // As other processes read it.
    assert!(by_hand.replace(&before, HandTable::from_bytes(&next.to_bytes())));
    assert!(!by_hand.replace(&before, next), "another is in force");
    done
}

/// Sets what happens to a key of one part under a limit.
fn set_key(keeper: &TestKeeper, limit: &str, part: &[u8], act: HandAct, seconds: u64) {
    let mut key = Vec::new();
    KeyBuilder::new(&mut key).part(part);
    let entry = HandEntry {
        act,
        until_unix_millis: unix_millis(keeper) + seconds * 1_000,
    };
    let set = |table: &mut HandTable| table.set(limit, Key::from_bytes(&key), entry);
    assert!(update(keeper, set));
}

fn set(keeper: &TestKeeper, limit: &str, act: HandAct, seconds: u64) {
    set_key(keeper, limit, b"192.0.2.1", act, seconds);
}

fn unix_millis(keeper: &TestKeeper) -> u64 {
    ORIGIN.unix_nanos(keeper.clock().now()) / 1_000_000
}

/// Returns the status of a request, its wait in seconds, and whether it is banned.
fn ask(keeper: &TestKeeper, path: &str, plan: &str) -> (u16, u64, bool) {
    let facts = Facts {
        path,
        ip: Some([192, 0, 2, 1].into()),
        attributes: &[("plan", plan)],
        routes: &["spare".into()],
        ..Facts::default()
    };
    let answer = keeper.check_now(&facts, Scope::All);
    let peeked = at_once(keeper.peek(&facts, Scope::All)).expect("memory answers");
    let refused = answer.refused_by();
    let is_banned = refused.is_some_and(|it| matches!(it.decision.verdict, Verdict::Banned { .. }));
    assert!(!is_banned || !peeked.allowed(), "a look sees the ban");
    let remaining = refused.map(|it| it.decision.remaining.get());
    assert!(!is_banned || remaining == Some(0), "{remaining:?} remain");
    let wait = answer.retry_after().unwrap_or_default();
    (answer.status(), wait.as_nanos() / 1_000_000_000, is_banned)
}

#[test]
fn a_ban_by_hand_precedes_plans_and_follows_exemptions_and_ends_by_itself() {
    let keeper = keeper(API);
    set(&keeper, "api", HandAct::Ban, 3_600);
    for plan in ["free", "pro", "ended"] {
        assert_eq!(ask(&keeper, "/api/x", plan), (429, 3_600, true), "{plan}");
    }
    assert_eq!(ask(&keeper, "/api/health", "free").0, 200, "exempt");
    assert_eq!(ask(&keeper, "/", "free").0, 200, "another limit");
    keeper.install(policy(&API.replace("2/2h", "1/2h")));
    assert_eq!(
        ask(&keeper, "/api/x", "free"),
        (429, 3_600, true),
        "a reload keeps it"
    );
    keeper.clock().advance(Nanos::from_secs(3_599));
    assert_eq!(ask(&keeper, "/api/x", "free"), (429, 1, true));
    keeper.clock().advance(Nanos::from_secs(1));
    assert_eq!(ask(&keeper, "/api/x", "free").0, 200, "it charged nothing");
    assert_eq!(
        ask(&keeper, "/api/x", "free").0,
        429,
        "the limit counts again"
    );
}

/// Each row of the table of the guide decides for a key that all rows from it on are for.
#[test]
fn the_first_row_of_the_guide_decides() {
    let guide = include_str!("../../../../docs/guide/bans.md");
    let table = guide.split_once("| first | effect |\n|---|---|\n");
    let (rows, _) = table.unwrap().1.split_once("\n\n").unwrap();
    let rows: Vec<_> = rows
        .lines()
        .map(|row| row.split('|').nth(1).unwrap().trim())
        .collect();
    assert_eq!(rows.len(), 5);
    for (at, expected) in rows.iter().enumerate() {
        let has = |row| rows[at..].contains(&row);
        let part = |row, text| if has(row) { text } else { "" };
        let keeper = keeper(
            &[
                part("plan", "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n"),
                "[[limit]]\nname = \"api\"\nkey = [\"ip\"]\nlimit = \"2/2h\"\n",
                part("plan", "plans = { free = \"2/2h\", pro = \"7/2h\" }\n"),
                part(
                    "override",
                    "[[override]]\nlimit = \"api\"\nkey = { ip = \"192.0.2.1\" }\nset = \"9/2h\"\n",
                ),
                part(
                    "exemption",
                    "[[exempt]]\nlimits = [\"api\"]\nmatch = { path = \"/x\" }\n",
                ),
            ]
            .concat(),
        );
        if has("by hand") {
            set(&keeper, "api", HandAct::Ban, 60);
        }
        let facts = Facts {
            path: "/x",
            ip: Some("192.0.2.1".parse().unwrap()),
            attributes: &[("plan", "pro")],
            ..Facts::default()
        };
        let answer = keeper.check_now(&facts, Scope::All);
        let decision = answer.outcomes().next().map(|outcome| outcome.decision);
        let found = match decision {
            None => "exemption",
            Some(decision) if decision.verdict.is_ban() => "by hand",
            Some(decision) => match decision.remaining.get() {
                8 => "override",
                6 => "plan",
                _ => "limit",
            },
        };
        assert_eq!(found, *expected);
    }
}

#[test]
fn a_key_that_is_allowed_by_hand_passes_its_limit_and_the_bans_of_the_policy() {
    let banning = API.replace(
        "plans = { free = \"2/2h\", pro = \"unlimited\", ended = \"blocked\" }",
        "ban = { after = 1, within = \"24h\", for = \"2h\" }",
    );
    let banning = banning.replace("[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n", "");
    let keeper = keeper(&banning);
    for expected in [200, 200, 429, 429] {
        assert_eq!(ask(&keeper, "/api/x", "").0, expected);
    }
    set(&keeper, "api", HandAct::Allow, 60);
    for _ in 0..10 {
        assert_eq!(ask(&keeper, "/api/x", "").0, 200);
    }
    keeper.clock().advance(Nanos::from_secs(60));
    assert_eq!(
        ask(&keeper, "/api/x", ""),
        (429, 7_140, true),
        "the ban goes on"
    );
}

#[test]
fn every_kind_of_limit_refuses_a_key_that_is_banned_by_hand() {
    for limit in [
        "limit = \"5/1m\"\nmode = \"enforce\"",
        "limit = \"5/day\"",
        "bucket = { size = 5, refill = \"1/1s\" }\nqueue = { max = 3 }",
        "concurrency = 3",
        "spacing = \"1s\"",
        "limit = \"5/1m\"\ncount_denied = true\nalgorithm = \"fixed-window\"",
        "limit = \"5/1m\"\nsoft = { extra = 5 }",
        "limit = \"5/1m\"\notherwise = [\"spare\"]",
        "limit = \"5/1m\"\nalgorithm = \"fixed-window\"\ndistinct = \"header:x-account\"\nmissing_key = \"shared\"",
        "limit = \"5/1m\"\npriority = { last = \"20%\", match = { path = \"/health\" } }",
        "limit = \"5/1m\"\ncandidate = \"3/1m\"",
        "limit = \"5/1m\"\nban = { after = 3, within = \"1h\", for = \"1s\" }",
        "limit = \"5/1m\"\ncost = [{ path = \"/x\", is = 5 }]",
        "balance = { start = 9, max = 10 }",
        "limit = \"5/1m\"\non_limit = \"route:spare\"",
    ] {
        let text = format!(
            "[listen.proxy]\nupstream = \"http://127.0.0.1:1\"\n\
             [[listen.proxy.route]]\nname = \"spare\"\nupstream = \"http://127.0.0.1:1\"\n\
             [[limit]]\nname = \"l\"\nkey = [\"ip\"]\n{limit}\n\
             [[limit]]\nname = \"spare\"\nkey = [\"ip\"]\nlimit = \"90/1m\"\n"
        );
        let keeper = keeper(&text);
        set(&keeper, "l", HandAct::Ban, 90);
        for _ in 0..3 {
            let (status, wait, is_banned) = ask(&keeper, "/x", "");
            assert_eq!((status, is_banned), (429, true), "{limit}");
            assert!(wait >= 90, "{limit}: {wait}");
        }
        update(&keeper, |table| {
            table.prune(u64::MAX);
            true
        });
        assert_eq!(ask(&keeper, "/x", "").0, 200, "{limit} was charged nothing");
    }
    let shadow =
        keeper("[[limit]]\nname = \"l\"\nkey = [\"ip\"]\nlimit = \"5/1m\"\nmode = \"shadow\"");
    set(&shadow, "l", HandAct::Ban, 90);
    assert_eq!(ask(&shadow, "/x", "").0, 200, "shadow mode refuses nothing");
}

#[test]
fn a_descriptor_is_banned_whatever_numbers_its_caller_states_and_gives_back() {
    let keeper = keeper(
        "[[limit]]\nname = \"l\"\nmatch = { domain = \"edge\" }\nkey = [\"descriptor:user\"]\nlimit = \"5/1m\"",
    );
    set_key(&keeper, "l", b"ada", HandAct::Ban, 60);
    let own = Numbers::new(Permits::new(100), Nanos::from_secs(60)).unwrap();
    for instead in [None, Some(own)] {
        let facts = Facts {
            descriptor: Some(Descriptor {
                domain: "edge",
                entries: &[("user", "ada")],
                instead,
            }),
            ..Facts::default()
        };
        let asked = |act| [Asked { facts, act }];
        assert!(!at_once(keeper.call(&asked(Act::Charge))).unwrap().allowed());
        assert!(
            at_once(keeper.call(&asked(Act::GiveBack)))
                .unwrap()
                .allowed()
        );
    }
}

#[test]
fn the_table_is_bounded() {
    let keeper = keeper(API);
    let entry = HandEntry {
        act: HandAct::Ban,
        until_unix_millis: u64::MAX,
    };
    let fill = |table: &mut HandTable| {
        (0..MAX_BY_HAND).all(|n| table.set("api", Key::from_bytes(&n.to_le_bytes()), entry))
    };
    assert!(update(&keeper, fill));
    let further = || {
        update(&keeper, |table| {
            table.set("spare", Key::from_bytes(b"more"), entry)
        })
    };
    assert!(!further());
    let known = |table: &mut HandTable| table.set("api", Key::from_bytes(&[0; 8]), entry);
    assert!(update(&keeper, known), "a key that is set is set again");
    let lift = |table: &mut HandTable| table.lift("api", Key::from_bytes(&[0; 8]));
    assert!(update(&keeper, lift));
    assert!(further());
}
