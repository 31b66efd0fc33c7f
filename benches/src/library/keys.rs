//! Many keys: a limit for each, beside governor's.

use std::sync::atomic::AtomicU64;

use governor::{DefaultKeyedRateLimiter, RateLimiter};
use ratekeeper::core::{Gcra, Permits, Quota};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{KeyedLimiter, SystemClock};

use super::{FLOOR, OURS};
use crate::direct::{ALLOWS, governor_allows, load_and_cas};
use crate::keyed::{Name, number, pick, uniform};
use crate::measure::{Contender, measure};
use crate::{Effort, report};

/// What each key is charged while the table is filled: half a second's worth, so that none
/// expires meanwhile.
const FILLED: Permits = Permits::new(500_000_000);

fn keyed() -> KeyedLimiter {
    let quota: Quota = ALLOWS.parse().expect("a quota");
    let gcra = Gcra::token_bucket(quota).expect("within bounds");
    let memory = MemoryConfig {
        budget_bytes: 1 << 30,
    };
    KeyedLimiter::with_clock(gcra, memory, SystemClock::new())
}

/// As many words as keys.
fn words(effort: Effort) -> Vec<AtomicU64> {
    (0..effort.keys).map(|_| AtomicU64::new(0)).collect()
}

pub(super) fn numbers(effort: Effort) {
    let (count, sequence, words) = (effort.keys, uniform(effort.keys), words(effort));
    let key = |n| number(pick(&sequence, n));
    let ours = keyed();
    let theirs: DefaultKeyedRateLimiter<u64> = RateLimiter::keyed(governor_allows());
    for index in 0..count as usize {
        let _ = ours.check_n(number(index).to_le_bytes(), FILLED);
        let _ = theirs.check_key(&number(index));
    }
    let counter = quanta::Clock::new();
    let floor = |n| (counter.raw(), load_and_cas(&words[pick(&sequence, n)]));
    let mine = |n| ours.check(key(n).to_le_bytes()).verdict.allows();
    let other = |n| theirs.check_key(&key(n)).is_ok();
    let mut contenders = [
        Contender::new("floor: counter + one of so many words", floor),
        Contender::new("ratekeeper KeyedLimiter::check", mine),
        Contender::new("governor check_key", other),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::beside(&format!("{count} numbers"), (FLOOR, OURS), &rows);
    let mut contenders = [
        Contender::pair("floor: counter + one of so many words", floor),
        Contender::pair("ratekeeper KeyedLimiter::check", mine),
        Contender::pair("governor check_key", other),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::beside(&format!("{count} numbers, 2 threads"), (FLOOR, OURS), &rows);
}

pub(super) fn strings(effort: Effort) {
    let (count, sequence, words) = (effort.keys, uniform(effort.keys), words(effort));
    let ours = keyed();
    let theirs: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(governor_allows());
    let mut name = Name::new();
    for index in 0..count as usize {
        let _ = ours.check_n(name.set(index), FILLED);
        let _ = theirs.check_key(name.set(index));
    }
    let counter = quanta::Clock::new();
    let [mut bare, mut mine, mut other] = [(); 3].map(|()| Name::new());
    let key = |n| pick(&sequence, n);
    let mut contenders = [
        Contender::new("floor: writing the key + the same", |n| {
            let length = bare.set(key(n)).len();
            (length, counter.raw(), load_and_cas(&words[key(n)]))
        }),
        Contender::new("ratekeeper KeyedLimiter::check", |n| {
            ours.check(mine.set(key(n))).verdict.allows()
        }),
        Contender::new("governor check_key", |n| {
            theirs.check_key(other.set(key(n))).is_ok()
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    let title = format!("{count} strings of 24 bytes, written just before");
    report::beside(&title, (FLOOR, OURS), &rows);
}
