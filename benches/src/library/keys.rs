//! Many keys: a limit for each, beside governor's.
//!
//! ```text
//!   in debt      every key owes something whenever it comes: all are in memory
//!   done with    a nanosecond after it came a key owes nothing: ours may forget it, and then
//!                it comes anew; governor's forgets only on request, which costs extra
//! ```

use std::num::NonZeroU32;
use std::sync::atomic::AtomicU64;

use governor::{DefaultKeyedRateLimiter, Quota as GovernorQuota, RateLimiter};
use ratekeeper::core::{Gcra, Quota};
use ratekeeper::store::MemoryConfig;
use ratekeeper::{KeyedLimiter, SystemClock};

use super::show;
use crate::Effort;
use crate::direct::{ALLOWS, governor_allows, load_and_cas};
use crate::keyed::{Name, number, pick, uniform};
use crate::measure::{Contender, measure};

/// A permit a microsecond for each key: none is denied, and the initial charge of a key is owed for
/// as long as the rows are measured.
const PER_MINUTE: u32 = 60_000_000;
/// The initial charge: half a minute's worth.
const CHARGED: u64 = PER_MINUTE as u64 / 2;

/// Governor's limiter with numbers as keys.
type Numbers = DefaultKeyedRateLimiter<u64>;

fn limiter(quota: &str) -> KeyedLimiter {
    let quota: Quota = quota.parse().expect("a quota");
    let gcra = Gcra::token_bucket(quota).expect("within bounds");
    let memory = MemoryConfig {
        budget_bytes: 1 << 30,
    };
    KeyedLimiter::with_clock(gcra, memory, SystemClock::new())
}

fn in_debt() -> KeyedLimiter {
    limiter(&format!("{PER_MINUTE}/1m"))
}

fn governor_in_debt() -> GovernorQuota {
    GovernorQuota::per_minute(NonZeroU32::new(PER_MINUTE).expect("not zero"))
}

/// Asserts that no key was forgotten meanwhile.
fn assert_all_here(limiter: &KeyedLimiter, effort: Effort) {
    let limits = limiter.store().usage().limits;
    let keys: usize = limits.iter().map(|limit| limit.keys).sum();
    assert_eq!(keys, effort.keys as usize, "keys in memory");
}

/// Returns as many words as keys.
fn words(effort: Effort) -> Vec<AtomicU64> {
    (0..effort.keys).map(|_| AtomicU64::new(0)).collect()
}

pub(super) fn numbers(effort: Effort) {
    let ours = in_debt();
    let theirs = RateLimiter::keyed(governor_in_debt());
    fill(&ours, CHARGED, &theirs, effort);
    side_by_side("in debt", &ours, &theirs, effort);
    assert_all_here(&ours, effort);
}

/// As [`numbers`], but no key owes anything when it comes back.
pub(super) fn numbers_done_with(effort: Effort) {
    let ours = limiter(ALLOWS);
    let theirs = RateLimiter::keyed(governor_allows());
    fill(&ours, 1, &theirs, effort);
    side_by_side("done with", &ours, &theirs, effort);
}

/// Charges each number once.
fn fill(ours: &KeyedLimiter, cost: u64, theirs: &Numbers, effort: Effort) {
    for index in 0..effort.keys as usize {
        let _ = ours.check_n(number(index).to_le_bytes(), cost);
        let _ = theirs.check_key(&number(index));
    }
}

/// Measures with one thread, then with two.
fn side_by_side(what: &str, ours: &KeyedLimiter, theirs: &Numbers, effort: Effort) {
    let (count, sequence, words) = (effort.keys, uniform(effort.keys), words(effort));
    let key = |n| number(pick(&sequence, n));
    let counter = quanta::Clock::new();
    let floor = |n| (counter.raw(), load_and_cas(&words[pick(&sequence, n)]));
    let mine = |n| ours.check(key(n).to_le_bytes()).is_ok();
    let other = |n| theirs.check_key(&key(n)).is_ok();
    let mut contenders = [
        Contender::new("floor: counter + one of so many words", floor),
        Contender::new("ratekeeper KeyedLimiter::check", mine),
        Contender::new("governor check_key", other),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    let title = format!("KeyedLimiter, {count} numbers, {what}");
    show(&title, &rows);
    let mut contenders = [
        Contender::pair("floor: counter + one of so many words", floor),
        Contender::pair("ratekeeper KeyedLimiter::check", mine),
        Contender::pair("governor check_key", other),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    show(&format!("{title}, 2 threads"), &rows);
}

pub(super) fn strings(effort: Effort) {
    let (count, sequence, words) = (effort.keys, uniform(effort.keys), words(effort));
    let ours = in_debt();
    let theirs: DefaultKeyedRateLimiter<String> = RateLimiter::keyed(governor_in_debt());
    let mut name = Name::new();
    for index in 0..count as usize {
        let _ = ours.check_n(name.set(index), CHARGED);
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
            ours.check(mine.set(key(n))).is_ok()
        }),
        Contender::new("governor check_key", |n| {
            theirs.check_key(other.set(key(n))).is_ok()
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    let title = format!("KeyedLimiter, {count} strings of 24 bytes, in debt, written just before");
    show(&title, &rows);
    assert_all_here(&ours, effort);
}
