//! Overrides: cost of a decision under a limit with 100,000 of them, and with plans, beside the
//! same limit with none; the time in which they are loaded; and the longest decision while that
//! happens.
//!
//! All contenders have as many keys, and counters of as many keys, each its own. A key is written
//! anew for each decision, as a request brings it. Keys at random are measured twice: in use, when
//! the batches before have filled the caches, and after the caches were filled with other things.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![expect(clippy::disallowed_methods, reason = "benches read the clock")]

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use ratekeeper::Scope;
use ratekeeper::core::Time;
use ratekeeper::policy::{Facts, Policy, config};

use crate::descriptors::{BenchKeeper, decide, keeper_of};
use crate::measure::{Contender, cpu_nanos, measure};
use crate::{Effort, report};

/// Number of overrides, and of keys.
const MANY: usize = 100_000;
/// Number of different numbers that the overrides set, and of plans.
const NUMBERS: usize = 3;
/// One decision of so many has an override, in the row that mixes both.
const SELDOM: u64 = 100;
/// Maximum time of loading a file, in milliseconds.
const LOAD_GOAL: f64 = 1000.0;
/// Number of words that push all else out of the caches: 64 MB.
const SWEPT: usize = 8 << 20;

/// A form of a file of overrides: its name, and its text.
type FileForm = (&'static str, fn() -> String);

const FILES: [FileForm; 2] = [("overrides.csv", csv), ("overrides.toml", toml)];

fn csv() -> String {
    let line = |n| with_key(n, |key| format!("l0,{key},{},,contract {n}\n", numbers(n)));
    "limit,key,set,until,reason\n".to_owned() + &(0..MANY).map(line).collect::<String>()
}

fn toml() -> String {
    let table = |n| {
        let key = with_key(n, |key| format!("key = {{ \"attr:tenant\" = \"{key}\" }}"));
        let set = numbers(n);
        format!("[[override]]\nlimit = \"l0\"\n{key}\nset = \"{set}\"\nreason = \"contract {n}\"\n")
    };
    (0..MANY).map(table).collect()
}

/// Returns the numbers of tenant `n`: those of the limit, for longer and longer periods, because
/// others might be counted in other units.
fn numbers(n: usize) -> String {
    format!("1000000000/{}h", 2 << (n % NUMBERS))
}

/// Calls `act` with the key of tenant `n`; from `MANY` on, they have no override.
fn with_key<T>(n: usize, act: impl FnOnce(&str) -> T) -> T {
    let mut key = *b"tenant-000000";
    let mut rest = n;
    for digit in key[7..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit");
        rest /= 10;
    }
    act(std::str::from_utf8(&key).expect("ASCII"))
}

/// Loads a policy of one limit, with plans or a file of overrides.
fn loaded(plans: Option<&str>, file: Option<(&str, &str)>) -> Policy {
    let names = file.map_or_else(String::new, |(name, _)| format!("overrides = \"{name}\"\n"));
    let (plan, plans) = match plans {
        Some(plans) => (
            "[plan]\nfrom = \"attr:plan\"\ndefault = \"free\"\n",
            format!("plans = {{ {plans} }}\n"),
        ),
        None => ("", String::new()),
    };
    let limit = "[[limit]]\nname = \"l0\"\nkey = [\"attr:tenant\"]\nlimit = \"1000000000/1h\"\n";
    let text = format!("version = 1\n{names}{plan}{limit}{plans}");
    let content = file.map_or("", |(_, content)| content);
    let files = config::PolicyFiles::read(&text, |_, _| Ok(content.to_owned()));
    let loaded = config::parse_file(&text, &files, config::Context::default(), Time::ZERO);
    loaded.expect("the policy is right").policy
}

/// Names of the plans.
const PLANS: [&str; NUMBERS] = ["p0", "p1", "p2"];

/// Calls `act` with a request of tenant `n`.
fn with_facts<T>(n: usize, act: impl FnOnce(&Facts<'_>) -> T) -> T {
    with_key(n, |key| {
        let attributes = [("tenant", key), ("plan", PLANS[n % NUMBERS])];
        act(&Facts {
            attributes: &attributes,
            ..Facts::default()
        })
    })
}

fn ask(keeper: &BenchKeeper, n: usize) -> bool {
    with_facts(n, |facts| decide(keeper, facts))
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
    let plans = (0..NUMBERS).map(|n| format!("p{n} = \"{}\"", numbers(n)));
    let plans = plans.collect::<Vec<_>>().join(", ");
    let none = || keeper_of(loaded(None, None));
    let many = loaded(None, Some(("overrides.csv", &csv)));
    let many = || keeper_of(many.clone());
    let (none, plans) = (none(), keeper_of(loaded(Some(&plans), None)));
    let (met, others, mixed) = (many(), many(), many());
    let has_one = MANY / 2;
    let mut contenders = [
        Contender::new("no override", |_| ask(&none, has_one)),
        Contender::new("3 plans", |_| ask(&plans, has_one)),
        Contender::new("100,000 overrides, the key has one", |_| ask(&met, has_one)),
        Contender::new("100,000 overrides, the key has none", |_| {
            ask(&others, MANY + has_one)
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::table("overrides, one key", "no override", &rows);
    let swept = vec![Cell::new(0); SWEPT];
    let contenders = || {
        [
            Contender::new("no override", |n| ask(&none, random(n))),
            Contender::new("3 plans", |n| ask(&plans, random(n))),
            Contender::new("100,000 overrides, each key has one", |n| {
                ask(&met, random(n))
            }),
            Contender::new("100,000 overrides, no key has one", |n| {
                ask(&others, MANY + random(n))
            }),
            Contender::new("100,000 overrides, 1 key of 100 has one", |n| {
                let key = random(n);
                ask(&mixed, if n % SELDOM == 0 { key } else { MANY + key })
            }),
        ]
    };
    let rows = measure(effort.rounds, &mut contenders().map(Contender::in_use));
    report::table("100,000 keys at random, in use", "no override", &rows);
    let cold = |contender| Contender::cold(contender, &swept);
    let rows = measure(effort.rounds, &mut contenders().map(cold));
    let title = "100,000 keys at random, not in the caches";
    report::table(title, "no override", &rows);
    load(effort);
    reload(&csv, effort);
}

/// Prints the processor time in which a policy and its file are loaded.
fn load(effort: Effort) {
    report::line("\nloading 100,000 overrides   (ms of processor time, least of the rounds)");
    for (name, text) in FILES {
        let text = text();
        let rounds = (0..effort.http_rounds).map(|_| {
            let start = cpu_nanos();
            std::hint::black_box(loaded(None, Some((name, &text))));
            (cpu_nanos() - start) as f64 / 1e6
        });
        let least = rounds.fold(f64::INFINITY, f64::min);
        let stands = if least <= LOAD_GOAL { "met" } else { "missed" };
        report::line(&format!(
            "{name:<46} {least:>8.1}  {LOAD_GOAL:.0}: {stands}"
        ));
    }
}

/// Prints the time of decisions of a thread while another one reads the policy again and again, and
/// then while it installs it too. All keys have counters before, so that none grows; a request
/// holds its answer until the next one has its own. Wall time has the pauses of the machine, too.
fn reload(csv: &str, effort: Effort) {
    report::line("\ndecisions while 100,000 overrides are read again   (us)");
    let [usual, seldom, wall, cpu] = ["99.9 %", "99.99 %", "longest", "cpu"];
    report::line(&format!(
        "{:<46} {usual:>8} {seldom:>8} {wall:>8} {cpu:>8}",
        ""
    ));
    for (name, installs) in [("read", false), ("read and installed", true)] {
        let keeper = keeper_of(loaded(None, Some(("overrides.csv", csv))));
        (0..MANY).for_each(|n| assert!(ask(&keeper, n)));
        let done = AtomicBool::new(false);
        let read = || {
            for _ in 0..effort.rounds {
                let policy = loaded(None, Some(("overrides.csv", csv)));
                if installs {
                    keeper.install(policy);
                }
            }
            done.store(true, Ordering::Relaxed);
        };
        let (walls, cpu) = thread::scope(|scope| {
            scope.spawn(read);
            decisions_until(&done, &keeper)
        });
        let of_all = |part: usize| micros(walls[walls.len() - 1 - walls.len() / part]);
        let [usual, seldom, wall] = [of_all(1_000), of_all(10_000), of_all(usize::MAX)];
        let cpu = micros(cpu);
        report::line(&format!(
            "{name:<46} {usual:>8.1} {seldom:>8.1} {wall:>8.0} {cpu:>8.0}"
        ));
    }
}

/// Decides until `done`; returns the wall times of all decisions, the shortest first, and the
/// longest processor time, in nanoseconds.
fn decisions_until(done: &AtomicBool, keeper: &BenchKeeper) -> (Vec<u128>, u128) {
    let (mut walls, mut cpu) = (Vec::new(), 0);
    let mut held = None;
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let (started, start) = (Instant::now(), cpu_nanos());
        let check = |facts: &Facts<'_>| keeper.check_now(facts, Scope::All);
        let answer = with_facts(random(number), check);
        drop(held.replace(answer));
        cpu = cpu.max((cpu_nanos() - start).unsigned_abs().into());
        walls.push(started.elapsed().as_nanos());
    }
    walls.sort_unstable();
    (walls, cpu)
}

fn micros(nanos: u128) -> f64 {
    nanos as f64 / 1e3
}
