//! Many keys: the memory store and governor's keyed limiter, uniform and Zipf, time and bytes.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use foldhash::fast::RandomState as Foldhash;
use governor::clock::FakeRelativeClock;
use governor::{DefaultKeyedRateLimiter, RateLimiter};
use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{AnyAlgorithm, Charge, Key, Limit, LimitId, Mode, Outage, Permits, Time};
use ratekeeper_store::{MemoryConfig, MemoryStore};

use crate::direct::{ALLOWS, at, gcra, governor_allows};
use crate::measure::{Contender, Measured, measure};
use crate::{Effort, compare, report};

/// Length of the strings, as the store receives them: a part of 23 bytes and its length.
pub(crate) const STRING: usize = 24;
/// Bytes of a number as the store receives it: eight and their length.
const NUMBER: usize = 9;
/// Length of a prepared sequence of keys.
const SEQUENCE: usize = 1 << 20;

pub(crate) fn run(effort: Effort) {
    for (spread, sequence) in [
        ("uniform", uniform(effort.keys)),
        ("Zipf(1.0)", zipf(effort.keys)),
    ] {
        numbers(effort, spread, &sequence);
        strings(effort, spread, &sequence);
    }
}

/// Returns the index of the key of decision `number`.
pub(crate) fn pick(sequence: &[u32], number: u64) -> usize {
    let at = usize::try_from(number).unwrap_or(0) % SEQUENCE;
    sequence[at] as usize
}

fn limit() -> Limit {
    limit_by(gcra(ALLOWS))
}

/// Returns a limit by this algorithm.
pub(crate) fn limit_by(algorithm: impl Into<AnyAlgorithm>) -> Limit {
    Limit {
        name: "bench".into(),
        id: LimitId::new(0),
        version: 1,
        outage: Outage::Local,
        scope: ratekeeper_core::LimitScope::Cluster,
        keys: ratekeeper_core::LimitKeys::All,
        algorithm: algorithm.into(),
    }
}

pub(crate) fn decide(store: &MemoryStore, limit: &Limit, key: &[u8], now: Time) -> bool {
    let charge = Charge {
        limit,
        key: Key::from_bytes(key),
        cost: Permits::ONE,
        mode: Mode::Enforce,
    };
    store.decide_one(&charge, now).verdict.allows()
}

/// Returns a number as a key part: its length, then its bytes.
pub(crate) fn part(number: u64) -> [u8; NUMBER] {
    let mut key = [8; NUMBER];
    key[1..].copy_from_slice(&number.to_le_bytes());
    key
}

/// Creates a store in which every key has been charged once.
pub(crate) fn filled(keys: usize, key: impl Fn(usize, &mut dyn FnMut(&[u8]))) -> MemoryStore {
    let limit = limit();
    let store = MemoryStore::new(MemoryConfig {
        budget_bytes: 1 << 30,
    });
    // At one instant, so that no key expires before the last is in.
    for number in 0..keys {
        key(number, &mut |key| {
            decide(&store, &limit, key, Time::ZERO);
        });
    }
    store
}

/// Returns the key of a number.
pub(crate) fn number(index: usize) -> u64 {
    (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Returns the key of a name.
pub(crate) fn name(index: usize) -> String {
    let mut name = Name::new();
    name.set(index).clone()
}

/// Buffer for a key, written just before each request, so that it is in the cache.
pub(crate) struct Name(String);

impl Name {
    const PREFIX: &str = "\u{17}user---";

    pub(crate) fn new() -> Self {
        Self(Self::PREFIX.to_owned())
    }

    pub(crate) fn set(&mut self, index: usize) -> &String {
        self.0.truncate(Self::PREFIX.len());
        let number = number(index);
        for digit in 0..STRING - Self::PREFIX.len() {
            let nibble = u8::try_from(number >> (4 * digit) & 15).unwrap_or(0);
            self.0.push(char::from(b'a' + nibble));
        }
        &self.0
    }
}

fn numbers(effort: Effort, spread: &str, sequence: &[u32]) {
    let count = effort.keys as usize;
    let limit = limit();
    let store = filled(count, |index, show| show(&part(number(index))));

    let clock = FakeRelativeClock::default();
    let plain = RateLimiter::dashmap_with_clock(governor_allows(), clock.clone());
    for index in 0..count {
        let _ = plain.check_key(&number(index));
    }
    let folded =
        RateLimiter::dashmap_with_clock_and_hasher(governor_allows(), clock, Foldhash::default());
    let timed: DefaultKeyedRateLimiter<u64> = RateLimiter::keyed(governor_allows());
    for index in 0..count {
        let _ = folded.check_key(&number(index));
        let _ = timed.check_key(&number(index));
    }
    let clock = SystemClock::new();
    let key = |n| number(pick(sequence, n));
    let mut contenders = [
        Contender::new("ratekeeper", |n| {
            decide(&store, &limit, &part(key(n)), at(n))
        }),
        Contender::new("governor", |n| plain.check_key(&key(n))),
        Contender::new("governor, foldhash", |n| folded.check_key(&key(n))),
        Contender::new("ratekeeper, its own clock", |n| {
            decide(&store, &limit, &part(key(n)), clock.now())
        }),
        Contender::new("governor, its own clock", |n| timed.check_key(&key(n))),
        Contender::pair("2 threads: ratekeeper", |n| {
            decide(&store, &limit, &part(key(n)), at(n))
        }),
        Contender::pair("2 threads: governor", |n| plain.check_key(&key(n))),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    let title = format!("{count} numbers, {spread}");
    report::table(&title, "governor", &rows);
    note(&title, &rows);
    let title = format!("the store, {title}, 2 threads, ns");
    compare::rows(
        &title,
        &rows,
        "2 threads: ratekeeper",
        "2 threads: governor",
    );
}

fn strings(effort: Effort, spread: &str, sequence: &[u32]) {
    let count = effort.keys as usize;
    let limit = limit();
    let store = filled(count, |index, show| show(name(index).as_bytes()));

    let clock = FakeRelativeClock::default();
    let plain = RateLimiter::dashmap_with_clock(governor_allows(), clock.clone());
    let folded =
        RateLimiter::dashmap_with_clock_and_hasher(governor_allows(), clock, Foldhash::default());
    let timed: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(governor_allows());
    for index in 0..count {
        let _ = plain.check_key(&name(index));
        let _ = folded.check_key(&name(index));
        let _ = timed.check_key(&name(index));
    }
    let [
        mut bare,
        mut ours,
        mut theirs,
        mut hashed,
        mut clocked,
        mut own,
    ] = [(); 6].map(|()| Name::new());
    let clock = SystemClock::new();
    let key = |n| pick(sequence, n);
    let mut contenders = [
        Contender::new("writing the key", |n| bare.set(key(n)).len()),
        Contender::new("ratekeeper", |n| {
            decide(&store, &limit, ours.set(key(n)).as_bytes(), at(n))
        }),
        Contender::new("governor", |n| plain.check_key(theirs.set(key(n)))),
        Contender::new("governor, foldhash", |n| {
            folded.check_key(hashed.set(key(n)))
        }),
        Contender::new("ratekeeper, its own clock", |n| {
            decide(&store, &limit, own.set(key(n)).as_bytes(), clock.now())
        }),
        Contender::new("governor, its own clock", |n| {
            timed.check_key(clocked.set(key(n)))
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    let title = format!("{count} strings, {spread}, the key written just before");
    report::table(&title, "governor", &rows);
    note(&title, &rows);
}

/// Notes both ways of measuring for the comparison.
fn note(title: &str, rows: &[Measured]) {
    let what = format!("the store, {title}, ns");
    compare::rows(&what, rows, "ratekeeper", "governor, foldhash");
    let (ours, theirs) = ("ratekeeper, its own clock", "governor, its own clock");
    compare::rows(&what, rows, ours, theirs);
}

/// Returns a fixed sequence of numbers that look random (xorshift).
fn random(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

pub(crate) fn uniform(keys: u32) -> Vec<u32> {
    let mut random = random(0x5EED);
    let pick = |_| u32::try_from(random() % u64::from(keys)).unwrap_or(0);
    (0..SEQUENCE).map(pick).collect()
}

/// Draws keys in proportion to `1 / r` for rank `r`; ranks are scattered over the keys.
pub(crate) fn zipf(keys: u32) -> Vec<u32> {
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / f64::from(rank);
            sum
        })
        .collect();
    let mut random = random(0xCAFE);
    let pick = |_| {
        let at = (random() >> 11) as f64 / (1_u64 << 53) as f64 * sum;
        let rank = cumulative.partition_point(|&below| below < at) as u64;
        u32::try_from(rank.wrapping_mul(2_654_435_761) % u64::from(keys)).unwrap_or(0)
    };
    (0..SEQUENCE).map(pick).collect()
}
