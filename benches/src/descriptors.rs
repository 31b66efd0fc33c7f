//! Descriptors: cost of a decision with one limit in the policy, and with a thousand.

use ratekeeper::core::{Origin, Permits};
use ratekeeper::policy::{Descriptor, Facts, Policy, config};
use ratekeeper::store::{MemoryConfig, MemoryStore};
use ratekeeper::{Act, Asked, Keeper, ManualClock, at_once};

use crate::measure::{Contender, measure};
use crate::{Effort, report};

/// Number of limits of the large policy.
const MANY: usize = 1_000;

/// A kind of limit: limit number `n`, one limit for all with a counter each, and entries that match
/// `n`.
struct Kind {
    title: &'static str,
    any: &'static str,
    limit: fn(usize) -> String,
    entries: fn(usize) -> Vec<(&'static str, String)>,
}

const KINDS: [Kind; 4] = [
    Kind {
        title: "one exact entry",
        any: "key = [\"descriptor:route\"]",
        limit: |n| format!("match = {{ domain = \"edge\", descriptor.route = \"r{n}\" }}"),
        entries: |n| vec![("route", format!("r{n}"))],
    },
    Kind {
        title: "one pattern",
        any: "key = [\"descriptor:path\"]",
        limit: |n| format!("match = {{ domain = \"edge\", descriptor.path = \"/p{n}/*\" }}"),
        entries: |n| vec![("path", format!("/p{n}/x"))],
    },
    Kind {
        title: "nested: exact, then any value",
        any: "key = [\"descriptor:tenant\", \"descriptor:user\"]",
        limit: |n| {
            format!(
                "match = {{ domain = \"edge\", descriptor.tenant = \"t{n}\", descriptor.user = \"*\" }}"
            )
        },
        entries: |n| vec![("tenant", format!("t{n}")), ("user", "ada".to_owned())],
    },
    Kind {
        title: "nested: exact, then a pattern",
        any: "key = [\"descriptor:tenant\", \"descriptor:path\"]",
        limit: |n| {
            let (tenant, path) = (n / 32, n % 32);
            format!(
                "match = {{ domain = \"edge\", descriptor.tenant = \"t{tenant}\", descriptor.path = \"/p{path}/*\" }}"
            )
        },
        entries: |n| {
            vec![
                ("tenant", format!("t{}", n / 32)),
                ("path", format!("/p{}/x", n % 32)),
            ]
        },
    },
];

pub(crate) type BenchKeeper = Keeper<MemoryStore, ManualClock>;

/// Returns the text of limit `n`, with its match and key in `lines`.
pub(crate) fn limit(n: usize, lines: &str) -> String {
    let name = format!("[[limit]]\nname = \"l{n}\"\n");
    format!("{name}{lines}\nlimit = \"1000000000/1h\"\nalgorithm = \"fixed-window\"\n")
}

pub(crate) fn keeper(limits: &str) -> BenchKeeper {
    let policy = config::parse(
        &format!("version = 1\n{limits}"),
        config::Context::default(),
    );
    keeper_of(policy.expect("the policy is right").policy)
}

pub(crate) fn keeper_of(policy: Policy) -> BenchKeeper {
    let store = MemoryStore::new(MemoryConfig::default());
    Keeper::new(policy, store, ManualClock::at(Origin::UNIX))
}

/// Decides one descriptor.
fn decide_entries(keeper: &BenchKeeper, entries: &[(&str, &str)]) -> bool {
    let descriptor = Descriptor {
        domain: "edge",
        entries,
        instead: None,
    };
    let facts = Facts {
        cost: Some(Permits::ONE),
        descriptor: Some(descriptor),
        ..Facts::default()
    };
    decide(keeper, &facts)
}

/// Decides one request that one limit applies to.
pub(crate) fn decide(keeper: &BenchKeeper, facts: &Facts<'_>) -> bool {
    let asked = Asked {
        facts: *facts,
        act: Act::Charge,
    };
    let answers = at_once(keeper.call(&[asked])).expect("nothing is given back");
    assert_eq!(answers.outcomes(0).count(), 1, "one limit applies");
    answers.allowed()
}

pub(crate) fn run(effort: Effort) {
    for kind in &KINDS {
        let own = |n| limit(n, &format!("{}\nkey = [\"all\"]", (kind.limit)(n)));
        let one = keeper(&own(MANY / 2));
        let any = keeper(&limit(0, kind.any));
        let many = keeper(&(0..MANY).map(own).collect::<String>());
        let entries = |n| (kind.entries)(n);
        let owned: Vec<_> = (0..MANY).map(entries).collect();
        let all: Vec<Vec<(&str, &str)>> = owned
            .iter()
            .map(|entries| {
                entries
                    .iter()
                    .map(|(key, value)| (*key, &**value))
                    .collect()
            })
            .collect();
        let same = &all[MANY / 2];
        let turn = |n: u64| &all[usize::try_from(n).unwrap_or(0) % MANY];
        let mut contenders = [
            Contender::new("1 limit", |_| decide_entries(&one, same)),
            Contender::new("1 limit, 1,000 keys in turn", |n| {
                decide_entries(&any, turn(n))
            }),
            Contender::new("1,000 limits, one of them met", |_| {
                decide_entries(&many, same)
            }),
            Contender::new("1,000 limits, each met in turn", |n| {
                decide_entries(&many, turn(n))
            }),
        ];
        let rows = measure(effort.rounds, &mut contenders);
        let title = format!("a descriptor asked of the keeper: {}", kind.title);
        report::table(&title, "1 limit", &rows);
    }
}
