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
use ratekeeper_core::{Algorithm, Decision, Gcra, Nanos, Permits, Tat, Time, Window, WindowState};
use ratekeeper_store::Cell;

use crate::measure::{Contender, measure};
use crate::{Effort, report};

/// Never denies: a permit a nanosecond, and a thousand million saved up.
pub(crate) const ALLOWS: &str = "1000000000/1s";
/// Denies all but the first.
const DENIES: &str = "1/1d";

pub(crate) fn gcra(quota: &str) -> Gcra {
    let quota = quota.parse().expect("a valid quota");
    Gcra::token_bucket(quota).expect("a quota within bounds")
}

fn window(quota: &str) -> Window {
    let quota = quota.parse().expect("a valid quota");
    Window::fixed(quota, Nanos::ZERO).expect("a quota within bounds")
}

fn two_window(quota: &str) -> Window {
    let quota = quota.parse().expect("a valid quota");
    Window::two_window(quota, Nanos::ZERO).expect("a quota within bounds")
}

/// The time of decision `number`: 100 ns after the one before it.
pub(crate) fn at(number: u64) -> Time {
    Time::from_nanos(number * 100)
}

/// Governor's name for [`ALLOWS`].
pub(crate) fn governor_allows() -> GovernorQuota {
    GovernorQuota::per_second(NonZeroU32::new(1_000_000_000).expect("not zero"))
}

fn governor_denies() -> GovernorQuota {
    GovernorQuota::per_hour(NonZeroU32::MIN)
}

pub(crate) fn run(effort: Effort) {
    floors_and_functions(effort);
    cells(effort);
}

fn floors_and_functions(effort: Effort) {
    let word = AtomicU64::new(0);
    let quanta = quanta::Clock::new();
    let (gcra, denying) = (gcra(ALLOWS), gcra(DENIES));
    let (fixed, two) = (window(ALLOWS), two_window(ALLOWS));
    let (mut tat, mut spent) = (Tat::default(), Tat::default());
    let _ = told(denying.decide(&mut spent, Time::ZERO, Permits::ONE));
    let (mut counts, mut pair) = (WindowState::default(), WindowState::default());
    let mut contenders = [
        Contender::new("floor: load + compare-exchange", |_| load_and_cas(&word)),
        Contender::new("clock: std Instant", |_| Instant::now()),
        Contender::new("clock: quanta", |_| quanta.raw()),
        Contender::new("Gcra::decide, allow", |n| {
            told(gcra.decide(&mut tat, at(n), Permits::ONE))
        }),
        Contender::new("Gcra::decide, deny", |n| {
            told(denying.decide(&mut spent, at(n), Permits::ONE))
        }),
        Contender::new("Window::decide, fixed, allow", |n| {
            told(fixed.decide(&mut counts, at(n), Permits::ONE))
        }),
        Contender::new("Window::decide, two-window, allow", |n| {
            told(two.decide(&mut pair, at(n), Permits::ONE))
        }),
    ];
    let rows = measure(effort.rounds, &mut contenders);
    report::table(
        "floor and pure functions",
        "floor: load + compare-exchange",
        &rows,
    );
}

/// What a caller reads of a decision.
fn told(decision: Decision) -> (bool, Permits) {
    (decision.verdict.allows(), decision.remaining)
}

fn load_and_cas(word: &AtomicU64) -> bool {
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
        Contender::new("floor: load + compare-exchange", |_| load_and_cas(&word)),
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
    report::table("one limiter", "floor: load + compare-exchange", &rows);
}
