//! One limiter: the floor, clocks, pure decisions, the cell, and governor's direct limiter.

#![expect(
    clippy::disallowed_methods,
    reason = "the clock is one of the contenders"
)]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use governor::clock::FakeRelativeClock;
use governor::{Quota as GovernorQuota, RateLimiter};
use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{Cell, Decision, Gcra, Permits, Time};

use crate::measure::{Contender, measure};
use crate::{Effort, report};

/// The floor: one atomic change of a word.
pub(crate) const FLOOR: &str = "floor: load + compare-exchange";
/// Never denies: a permit a nanosecond, and a thousand million saved up.
pub(crate) const ALLOWS: &str = "1000000000/1s";
/// Denies all but the first.
const DENIES: &str = "1/1d";

pub(crate) fn gcra(quota: &str) -> Gcra {
    let quota = quota.parse().expect("a valid quota");
    Gcra::token_bucket(quota).expect("a quota within bounds")
}

/// Returns the time of decision `number`: 100 ns after the one before it.
pub(crate) fn at(number: u64) -> Time {
    Time::from_nanos(number * 100)
}

/// Returns [`ALLOWS`] as a quota of governor.
pub(crate) fn governor_allows() -> GovernorQuota {
    GovernorQuota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"))
}

fn governor_denies() -> GovernorQuota {
    GovernorQuota::per_hour(NonZeroU32::MIN)
}

pub(crate) fn run(effort: Effort) {
    floors(effort);
    cells(effort);
}

fn floors(effort: Effort) {
    let word = AtomicU64::new(0);
    let (quanta, system) = (quanta::Clock::new(), SystemClock::new());
    let mut contenders = [
        Contender::new(FLOOR, |_| load_and_cas(&word)),
        Contender::new("clock: std Instant", |_| Instant::now()),
        Contender::new("clock: quanta", |_| quanta.raw()),
        Contender::new("clock: SystemClock", |_| system.now()),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::table("floor and clocks", FLOOR, &rows);
}

/// Returns the parts of a decision that a caller reads.
pub(crate) fn told(decision: Decision) -> (bool, Permits) {
    (decision.verdict.allows(), decision.remaining)
}

pub(crate) fn load_and_cas(word: &AtomicU64) -> bool {
    let now = word.load(Ordering::Relaxed);
    word.compare_exchange(now, now + 1, Ordering::Relaxed, Ordering::Relaxed)
        .is_ok()
}

fn cells(effort: Effort) {
    let word = AtomicU64::new(0);
    let (allows, denies) = (gcra(ALLOWS), gcra(DENIES));
    let (open, shut) = (Cell::new(), Cell::new());
    let _ = told(shut.decide(&denies, Time::ZERO, Permits::ONE));
    let quanta = quanta::Clock::new();
    let start = quanta.raw();
    let by_quanta = || Time::from_nanos(quanta.delta_as_nanos(start, quanta.raw()));

    let fake = FakeRelativeClock::default();
    let governor = RateLimiter::direct_with_clock(governor_allows(), fake.clone());
    let shut_governor = RateLimiter::direct_with_clock(governor_denies(), fake);
    let _ = shut_governor.check();
    let timed_governor = RateLimiter::direct(governor_allows());

    let mut contenders = [
        Contender::new(FLOOR, |_| load_and_cas(&word)),
        Contender::new("cell, allow", |n| {
            told(open.decide(&allows, at(n), Permits::ONE))
        }),
        Contender::new("cell, deny", |n| {
            told(shut.decide(&denies, at(n), Permits::ONE))
        }),
        Contender::new("cell, allow, quanta clock", |_| {
            told(open.decide(&allows, by_quanta(), Permits::ONE))
        }),
        Contender::new("governor direct, allow, one-load clock", |_| {
            governor.check()
        }),
        Contender::new("governor direct, deny, one-load clock", |_| {
            shut_governor.check()
        }),
        Contender::new("governor direct, allow, quanta clock", |_| {
            timed_governor.check()
        }),
        Contender::pair("2 threads: floor", |_| load_and_cas(&word)),
        Contender::pair("2 threads: cell, allow", |n| {
            told(open.decide(&allows, at(n), Permits::ONE))
        }),
        Contender::pair("2 threads: cell, deny", |n| {
            told(shut.decide(&denies, at(n), Permits::ONE))
        }),
        Contender::pair("2 threads: governor, allow, one-load clock", |_| {
            governor.check()
        }),
        Contender::pair("2 threads: governor, deny, one-load clock", |_| {
            shut_governor.check()
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::table("one limiter", FLOOR, &rows);
}
