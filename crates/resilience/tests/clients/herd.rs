//! The herd: a thousand clients are refused at once and come back, in virtual time.
//!
//! ```text
//!   1,000 clients --> limit of 100/1s --> 900 refused --> backoff, budget --> again
//! ```
//!
//! Run with `--nocapture` to see the table.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ratekeeper_core::{
    Algorithm, Gcra, Nanos, Origin, Permits, Tat, Time, Verdict, Window, WindowState,
};
use ratekeeper_resilience::{
    Attempts, Backoff, Budget, BudgetSettings, Hints, Jitter, RetryAfter, ServerWait, SplitMix,
};

const CLIENTS: usize = 1_000;
/// Permits of the limit at once, and a second.
const LIMIT: usize = 100;
const BUCKET: Nanos = Nanos::from_millis(100);
/// From a request to its answer.
const ROUND_TRIP: Nanos = Nanos::from_millis(1);

/// Patient enough that a herd could be served without a budget.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(100),
    cap: Duration::from_secs(20),
    attempts_max: 12,
    jitter: Jitter::Full,
};

/// Result of a herd.
struct Outcome {
    /// Requests that arrived in each 100 ms, the first attempts included.
    arrivals: Vec<usize>,
    admitted: usize,
    retries: usize,
    gave_up: usize,
}

impl Outcome {
    /// Maximum number of requests in 100 ms, among those that begin `from` or later.
    fn peak(&self, from: Nanos) -> usize {
        let first = usize::try_from(from.as_nanos() / BUCKET.as_nanos()).unwrap();
        self.arrivals[first.min(self.arrivals.len())..]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    }

    /// Number of periods of 100 ms in which a client came.
    fn spread(&self) -> usize {
        self.arrivals.iter().filter(|&&count| count > 0).count()
    }

    #[expect(clippy::print_stdout, reason = "the table of --nocapture")]
    fn row(&self, name: &str) {
        println!(
            "{name:<24} peak after 1 s {:>4}   buckets used {:>4}   retries {:>5}   \
             admitted {:>4}   gave up {:>4}   over after {:>6.1} s",
            self.peak(Nanos::SECOND),
            self.spread(),
            self.retries,
            self.admitted,
            self.gave_up,
            f64::from(u32::try_from(self.arrivals.len()).unwrap()) / 10.0,
        );
    }
}

/// Plays the herd; all its clients share `budget` if there is one.
fn play(jitter: Jitter, budget: Option<&Budget>, seed: u64) -> Outcome {
    let limit = Gcra::token_bucket(format!("{LIMIT}/1s").parse().unwrap()).unwrap();
    let (mut tat, mut random) = (Tat::default(), SplitMix::new(seed));
    let mut clients: Vec<Attempts> = (0..CLIENTS)
        .map(|_| Backoff { jitter, ..BACKOFF }.attempts())
        .collect();
    let mut queue: BinaryHeap<_> = (0..CLIENTS)
        .map(|client| Reverse((Time::ZERO, client)))
        .collect();
    let mut outcome = Outcome {
        arrivals: Vec::new(),
        admitted: 0,
        retries: 0,
        gave_up: 0,
    };
    while let Some(Reverse((now, client))) = queue.pop() {
        let bucket = usize::try_from(now.as_nanos() / BUCKET.as_nanos()).unwrap();
        outcome
            .arrivals
            .resize(outcome.arrivals.len().max(bucket + 1), 0);
        outcome.arrivals[bucket] += 1;
        match budget {
            Some(budget) if clients[client].made() == 1 => budget.deposit(now),
            _ => {}
        }
        if limit.decide(&mut tat, now, Permits::ONE).verdict.allows() {
            outcome.admitted += 1;
            continue;
        }
        let now = now + ROUND_TRIP;
        match clients[client].next_wait(&mut random) {
            Some(wait) if budget.is_none_or(|budget| budget.withdraw(now)) => {
                outcome.retries += 1;
                queue.push(Reverse((now + wait, client)));
            }
            _ => outcome.gave_up += 1,
        }
    }
    assert_eq!(
        outcome.admitted + outcome.gave_up,
        CLIENTS,
        "every client is counted"
    );
    assert_eq!(
        outcome.arrivals.iter().sum::<usize>(),
        CLIENTS + outcome.retries
    );
    outcome
}

#[test]
fn without_jitter_the_herd_returns_as_one() {
    let herd = play(Jitter::Without, None, 1);
    herd.row("without jitter");
    // After k refusals all remaining clients come within one bucket: 100 at first, then the
    // refill of 100, 200, 400, 800 ms is gone from 900.
    let visits: Vec<_> = herd
        .arrivals
        .iter()
        .copied()
        .filter(|&count| count > 0)
        .collect();
    assert_eq!(visits[..4], [1_000, 900, 890, 870]);
    assert_eq!(herd.spread(), visits.len());
    assert!(
        visits.len() <= 12,
        "one bucket for each attempt: {visits:?}"
    );
    assert!(herd.peak(Nanos::SECOND) >= 700);
}

#[test]
fn jitter_spreads_the_herd() {
    for (name, jitter) in [
        ("full", Jitter::Full),
        ("decorrelated", Jitter::Decorrelated),
    ] {
        for seed in 0..5 {
            let herd = play(jitter, None, seed);
            let alone = play(Jitter::Without, None, seed);
            herd.row(name);
            // The same clients and as many attempts each; a fraction of them at any time.
            assert!(herd.peak(Nanos::SECOND) * 4 <= alone.peak(Nanos::SECOND));
            assert!(herd.spread() >= 4 * alone.spread());
            assert!(herd.admitted >= alone.admitted);
        }
    }
}

#[test]
fn a_budget_holds_the_extra_load_under_its_bound() {
    let settings = BudgetSettings::default();
    for jitter in [Jitter::Without, Jitter::Full, Jitter::Decorrelated] {
        for seed in 0..5 {
            let herd = play(jitter, Some(&Budget::new(settings).unwrap()), seed);
            herd.row("budget");
            let free = play(jitter, None, seed);
            // A tenth of the first attempts, and the reserve once for each 10 s begun.
            let windows = herd.arrivals.len().div_ceil(100);
            let bound = CLIENTS / 10 + 10 * windows;
            assert!(herd.retries <= bound, "{} of {bound}", herd.retries);
            assert!(herd.retries >= CLIENTS / 10, "saved retries may be spent");
            assert!(free.retries > 20 * bound, "without it: {}", free.retries);
        }
    }
}

/// All clients refused by a window of a minute get the same moment, in whole seconds.
#[test]
fn a_herd_with_the_same_retry_after_is_spread_too() {
    let limit = Window::fixed("100/1m".parse().unwrap(), Nanos::ZERO).unwrap();
    let (mut state, mut random, rules) = (
        WindowState::default(),
        SplitMix::new(1),
        RetryAfter::default(),
    );
    let mut returns = [0_usize; 650];
    for _ in 0..CLIENTS {
        let decision = limit.decide(&mut state, Time::ZERO, Permits::ONE);
        let Verdict::Deny { retry_after } = decision.verdict else {
            continue;
        };
        let hints = Hints {
            retry_after: Some(&retry_after.as_secs_ceil().to_string()),
            ..Hints::default()
        };
        let told = rules.parse(hints, Time::ZERO, Origin::UNIX);
        assert_eq!(
            told,
            ServerWait::Wait(Nanos::from_secs(60)),
            "one moment for all"
        );
        let wait = rules.spread(Nanos::from_secs(60), &mut random);
        returns[usize::try_from(wait.as_nanos() / BUCKET.as_nanos()).unwrap()] += 1;
    }
    // 900 over 5 s: 18 in 100 ms on average, with a standard deviation of 4.2.
    assert_eq!(returns[600..].iter().sum::<usize>(), CLIENTS - LIMIT);
    assert!(returns.iter().max() <= Some(&40), "{returns:?}");
}
