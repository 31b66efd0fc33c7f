//! Every core: one pure decision, allowed and denied, and the bytes of its state.
//!
//! ```text
//!   allow   never denied: permits come back as fast as they are spent
//!   deny    spent first, then asked again and again: the wait is computed each time
//! ```
//!
//! Each row has a goal. `met 0.42` is a decision in 0.42 of it, `missed 1.30` in 1.3 times.

use std::sync::atomic::AtomicU64;

use ratekeeper_core::{
    Algorithm, Concurrency, ConcurrencyState, Edge, Exponential, Gcra, Hybrid, Interval, LeaseId,
    Log, Nanos, Permits, Quota, QuotaReset, SubBuckets, Time, WarmUp, Window,
};

use crate::direct::{FLOOR, load_and_cas, told};
use crate::measure::{Contender, measure};
use crate::{Effort, report};

/// Goal for a decision, in nanoseconds.
const GOAL: f64 = 10.0;
/// Goal for decisions that scan a list or compute a power.
const DEAR: f64 = 30.0;

/// A row of the table, without the figures.
struct Row {
    bytes: usize,
    goal: f64,
}

#[derive(Default)]
struct Rows<'a> {
    contenders: Vec<Contender<'a>>,
    rows: Vec<Row>,
}

impl<'a> Rows<'a> {
    /// Adds a row in which `open` is asked every `step` nanoseconds and never denies.
    fn allow<A: Algorithm + 'a>(&mut self, name: &'static str, goal: f64, open: A, step: u64) {
        let mut state = A::State::default();
        let bytes = size_of::<A::State>() + open.heap_bytes();
        let decide = move |number: u64| {
            let decision = open.decide(&mut state, Time::from_nanos(number * step), Permits::ONE);
            debug_assert!(decision.verdict.allows(), "{name}: {decision:?}");
            told(decision)
        };
        self.contenders.push(Contender::new(name, decide));
        self.rows.push(Row { bytes, goal });
    }

    /// Adds a row in which `shut` is spent at the start, and then asked each nanosecond.
    fn deny<A: Algorithm + 'a>(&mut self, name: &'static str, goal: f64, shut: A) {
        let mut state = A::State::default();
        let bytes = size_of::<A::State>() + shut.heap_bytes();
        let spent = shut.decide(&mut state, Time::ZERO, shut.capacity());
        assert!(spent.verdict.allows(), "{name}: a key never seen holds all");
        let decide = move |number: u64| {
            let decision = shut.decide(&mut state, Time::from_nanos(number), Permits::ONE);
            debug_assert!(!decision.verdict.allows(), "{name}: {decision:?}");
            (told(decision), decision.verdict.retry_after())
        };
        self.contenders.push(Contender::new(name, decide));
        self.rows.push(Row { bytes, goal });
    }

    /// Adds a row in which a permit is lent and given back, with `others` more on loan.
    fn lend(&mut self, name: &'static str, others: u32) {
        let lease = |index: u32| LeaseId::from_bytes(u128::from(index).to_le_bytes());
        let most = Permits::new((others + 1).into());
        let limit = Concurrency::new(most, Nanos::from_secs(86_400)).expect("a few, for a day");
        let mut leases = ConcurrencyState::default();
        for index in 1..=others {
            assert!(
                limit
                    .acquire(&mut leases, Time::ZERO, lease(index), Permits::ONE)
                    .verdict
                    .allows()
            );
        }
        let decide = move |number: u64| {
            let now = Time::from_nanos(number);
            let taken = limit.acquire(&mut leases, now, lease(0), Permits::ONE);
            (told(taken), limit.release(&mut leases, now, lease(0)))
        };
        self.contenders.push(Contender::new(name, decide));
        let bytes = size_of::<ConcurrencyState>() + limit.heap_bytes();
        self.rows.push(Row {
            bytes,
            goal: f64::NAN, // two calls, over a list: no goal is set
        });
    }
}

fn quota(text: &str) -> Quota {
    text.parse().expect("a valid quota")
}

pub(crate) fn run(effort: Effort) {
    let word = AtomicU64::new(0);
    let mut rows = Rows::default();
    rows.contenders
        .push(Contender::new(FLOOR, |_| load_and_cas(&word)));
    rows.rows.push(Row {
        bytes: 8,
        goal: f64::NAN,
    });
    counters(&mut rows);
    others(&mut rows);
    let measured = measure(effort.rounds, &mut rows.contenders);
    let goals = rows.rows.iter().map(|row| (row.bytes, row.goal));
    report::goals("every core: one pure decision", FLOOR, &measured, goals);
}

/// A thousand million permits a second, asked for every 100 ns.
const OPEN: &str = "1000000000/1s";
/// A hundred a day, spent at once.
const SHUT: &str = "100/1d";

fn counters(rows: &mut Rows<'_>) {
    let gcra = |text| Gcra::token_bucket(quota(text)).expect("within bounds");
    rows.allow("token bucket, allow", GOAL, gcra(OPEN), 100);
    rows.deny("token bucket, deny", GOAL, gcra(SHUT));
    let queue = |text| Gcra::new(quota(text), Permits::new(9)).expect("within bounds");
    rows.allow("leaky queue, allow", GOAL, queue(OPEN), 100);
    rows.deny("leaky queue, deny", GOAL, queue(SHUT));
    let fixed = |text| Window::fixed(quota(text), Nanos::ZERO).expect("within bounds");
    rows.allow("fixed window, allow", GOAL, fixed(OPEN), 100);
    rows.deny("fixed window, deny", GOAL, fixed(SHUT));
    let reset = |text| QuotaReset::new(quota(text)).expect("within bounds");
    rows.allow("quota reset, allow", GOAL, reset(OPEN), 100);
    rows.deny("quota reset, deny", GOAL, reset(SHUT));
    let two = |text| Window::two_window(quota(text), Nanos::ZERO).expect("within bounds");
    rows.allow("two-window, allow", GOAL, two(OPEN), 100);
    rows.deny("two-window, deny", GOAL, two(SHUT));
    for (allow, deny, count, edge) in [
        (
            "6 sub-buckets full, allow",
            "6 sub-buckets full, deny",
            6,
            Edge::Full,
        ),
        (
            "6 sub-buckets weighted, allow",
            "6 sub-buckets weighted, deny",
            6,
            Edge::Weighted,
        ),
        (
            "60 sub-buckets full, allow",
            "60 sub-buckets full, deny",
            60,
            Edge::Full,
        ),
    ] {
        let cut = |text| {
            SubBuckets::sub_buckets(quota(text), count, edge, Nanos::ZERO).expect("within bounds")
        };
        rows.allow(allow, GOAL, cut(OPEN), 100);
        rows.deny(deny, GOAL, cut(SHUT));
    }
}

fn others(rows: &mut Rows<'_>) {
    let interval = |most, every| {
        let most = Permits::new(most);
        Interval::from_first(most, most, every).expect("within bounds")
    };
    let (open, day) = (1_000_000_000, Nanos::from_secs(86_400));
    rows.allow("interval, allow", GOAL, interval(open, Nanos::SECOND), 100);
    rows.deny("interval, deny", GOAL, interval(100, day));
    let hybrid = |text| Hybrid::quota_linear(quota(text)).expect("within bounds");
    rows.allow("hybrid bursty, allow", GOAL, hybrid(OPEN), 100);
    rows.allow("hybrid smooth, allow", GOAL, hybrid("10/1us"), 100); // at its pace
    rows.deny("hybrid, deny", GOAL, hybrid(SHUT));
    let warm_up = |rate| {
        let warm_up = WarmUp::warming_up(rate, Nanos::SECOND).expect("a rate");
        warm_up.with_largest(Permits::new(100))
    };
    rows.allow("warm-up, allow", GOAL, warm_up(100_000.0), 40_000); // cold, it takes 30 us
    rows.deny("warm-up, deny", GOAL, warm_up(0.001));
    let bursty = |rate| {
        let bursty = WarmUp::bursty(rate, 1.0).expect("a rate");
        bursty.with_largest(Permits::new(100))
    };
    rows.allow("smooth bursty, allow", GOAL, bursty(100_000.0), 10_000);
    rows.deny("smooth bursty, deny", GOAL, bursty(0.001));
    let log = |text| Log::sliding(quota(text)).expect("within bounds");
    rows.allow("log of 100, allow", DEAR, log("100/10us"), 100);
    rows.deny("log of 100, deny", DEAR, log(SHUT));
    rows.allow("log of 10,000, allow", DEAR, log("10000/1ms"), 100);
    rows.deny("log of 10,000, deny", DEAR, log("10000/1d"));
    let exponential = |text| Exponential::new(quota(text)).expect("within bounds");
    rows.allow("exponential, allow", DEAR, exponential(OPEN), 100);
    rows.deny("exponential, deny", DEAR, exponential("100/1m"));
    rows.deny("exponential of a day, deny", DEAR, exponential(SHUT)); // a float has no ns
    let lent = |most| Concurrency::new(Permits::new(most), day).expect("within bounds");
    rows.deny("permits of 10, deny", GOAL, lent(10));
    rows.lend("permits: lend 1 of 10 and take it back", 9);
    rows.lend("permits: lend 1 of 1,000 and take it back", 999);
}
