//! Overrides: cost of a decision under a limit with 100,000 of them, beside the same limit with
//! none; and the time in which they are loaded.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use ratekeeper::core::Time;
use ratekeeper::policy::{Facts, Policy, config};

use crate::descriptors::{BenchKeeper, decide, keeper_of, limit};
use crate::measure::{Contender, cpu_nanos, measure};
use crate::{Effort, report};

/// Number of overrides, and of keys in turn.
const MANY: usize = 100_000;
/// Number of different numbers that the overrides set.
const NUMBERS: usize = 3;
/// Maximum time of loading a file, in milliseconds.
const LOAD_GOAL: f64 = 1000.0;

/// A form of a file of overrides: its name, and its text.
type FileForm = (&'static str, fn() -> String);

const FILES: [FileForm; 2] = [("overrides.csv", csv), ("overrides.toml", toml)];

fn csv() -> String {
    let lines = (0..MANY).map(|n| format!("l0,{},{},,contract {n}\n", key(n), numbers(n)));
    "limit,key,set,until,reason\n".to_owned() + &lines.collect::<String>()
}

fn toml() -> String {
    let table = |n| {
        let key = format!("key = {{ \"attr:tenant\" = \"{}\" }}", key(n));
        let set = numbers(n);
        format!("[[override]]\nlimit = \"l0\"\n{key}\nset = \"{set}\"\nreason = \"contract {n}\"\n")
    };
    (0..MANY).map(table).collect()
}

fn numbers(n: usize) -> String {
    format!("{}/1h", 2_000_000_000 + n % NUMBERS)
}

/// Returns the key of tenant `n`; from `MANY` on, they have no override.
fn key(n: usize) -> String {
    format!("tenant-{n:06}")
}

/// Loads the policy with a file of overrides, or with none.
fn loaded(file: Option<(&str, &str)>) -> Policy {
    let names = file.map_or_else(String::new, |(name, _)| format!("overrides = \"{name}\"\n"));
    let limit = limit(0, "key = [\"attr:tenant\"]");
    let text = format!("version = 1\n{names}{limit}");
    let content = file.map_or("", |(_, content)| content);
    let files = config::PolicyFiles::read(&text, |_, _| Ok(content.to_owned()));
    let loaded = config::parse_file(&text, &files, config::Context::default(), Time::ZERO);
    loaded.expect("the policy is right").policy
}

fn ask(keeper: &BenchKeeper, tenant: &str) -> bool {
    let attributes = [("tenant", tenant)];
    let facts = Facts {
        attributes: &attributes,
        ..Facts::default()
    };
    decide(keeper, &facts)
}

/// Returns an index below [`MANY`] that nothing foresees.
fn random(number: u64) -> usize {
    // Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) % MANY as u64).expect("below a usize")
}

pub(crate) fn run(effort: Effort) {
    let csv = csv();
    let none = keeper_of(loaded(None));
    let many = keeper_of(loaded(Some(("overrides.csv", &csv))));
    let met: Vec<_> = (0..MANY).map(key).collect();
    let others: Vec<_> = (MANY..2 * MANY).map(key).collect();
    let (one, other) = (&met[MANY / 2], &others[MANY / 2]);
    let mut contenders = [
        Contender::new("no override", |_| ask(&none, one)),
        Contender::new("100,000 overrides, the key has one", |_| ask(&many, one)),
        Contender::new("100,000 overrides, the key has none", |_| ask(&many, other)),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::table("overrides, one key", "no override", &rows);
    let at = |keys: &[String], keeper: &BenchKeeper, n| ask(keeper, &keys[random(n)]);
    let (none, many) = (
        keeper_of(loaded(None)),
        keeper_of(many.policy().as_ref().clone()),
    );
    let rest = keeper_of(many.policy().as_ref().clone());
    let mut contenders = [
        Contender::new("no override", |n| at(&met, &none, n)),
        Contender::new("100,000 overrides, each key has one", |n| {
            at(&met, &many, n)
        }),
        Contender::new("100,000 overrides, no key has one", |n| {
            at(&others, &rest, n)
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::table("overrides, 100,000 keys at random", "no override", &rows);
    load(effort);
}

/// Prints the processor time in which a policy and its file are loaded.
fn load(effort: Effort) {
    report::line("\nloading 100,000 overrides   (ms of processor time, least of the rounds)");
    for (name, text) in FILES {
        let text = text();
        let rounds = (0..effort.http_rounds).map(|_| {
            let start = cpu_nanos();
            std::hint::black_box(loaded(Some((name, &text))));
            (cpu_nanos() - start) as f64 / 1e6
        });
        let least = rounds.fold(f64::INFINITY, f64::min);
        let stands = if least <= LOAD_GOAL { "met" } else { "missed" };
        report::line(&format!(
            "{name:<46} {least:>8.1}  {LOAD_GOAL:.0}: {stands}"
        ));
    }
}
