//! The table of algorithms is correct: bytes, worst cases and long runs, number by number; and
//! the guide shows the same table.
//!
//! ```text
//!   a row of algorithms/mod.rs --> the same limit, built --> size_of, bound, a greedy caller
//!   "2N - 1"                   --> evaluated at two N, P --> the same number
//! ```
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use ratekeeper_core::{
    Algorithm, Balance, BalanceState, Calendar, CalendarWindow, Concurrency, ConcurrencyState,
    Denials, Edge, Exponential, Gcra, Hybrid, Interval, Log, LogState, Nanos, Origin, Permits,
    Quota, QuotaReset, SubBuckets, Time, Verdict, WarmUp, Window,
};

const PAGE: &str = include_str!("../../src/algorithms/mod.rs");
const GUIDE: &str = include_str!("../../../../docs/guide/algorithms.md");

/// The numbers that the letters of the table stand for.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    n: u32,
    p: Nanos,
    b: u32,
    q: u32,
    m: u32,
    c: u32,
}

const TWO: [Numbers; 2] = [
    Numbers {
        n: 10,
        p: Nanos::from_secs(60),
        b: 4,
        q: 3,
        m: 6,
        c: 2,
    },
    Numbers {
        n: 20,
        p: Nanos::from_secs(3_600),
        b: 45,
        q: 5,
        m: 12,
        c: 1,
    },
];

/// The measured facts of one row.
#[derive(Clone, Copy, Debug)]
struct Facts {
    bytes: u64,
    /// Maximum number of permits in one P.
    bound: u64,
    /// The permits that a greedy caller gets in a P, long after the first.
    rate: f64,
}

impl Numbers {
    fn quota(self) -> Quota {
        Quota::new(Permits::new(self.n.into()), self.p).unwrap()
    }

    fn sub_buckets(self, edge: Edge) -> Facts {
        let window = SubBuckets::sub_buckets(self.quota(), self.m, edge, Nanos::ZERO);
        self.facts(&window.unwrap())
    }

    /// Measured on `algorithm`.
    fn facts<A: Algorithm>(self, algorithm: &A) -> Facts {
        Facts {
            bytes: (size_of::<A::State>() + algorithm.heap_bytes()) as u64,
            bound: algorithm.bound(self.p),
            rate: self.rate(algorithm),
        }
    }

    /// One permit after the other, each as soon as it may be, from the 100th P to the 400th.
    fn rate<A: Algorithm>(self, algorithm: &A) -> f64 {
        let (mut state, mut now, mut taken) = (A::State::default(), Time::ZERO, 0);
        let at = |spans: u64| Time::from_nanos(self.p.as_nanos() * spans);
        while now < at(400) {
            match algorithm.decide(&mut state, now, Permits::ONE).verdict {
                Verdict::Allow | Verdict::AllowAfter(_) if now >= at(100) => taken += 1,
                Verdict::Allow | Verdict::AllowAfter(_) => {}
                denied => {
                    let wait = denied.retry_after();
                    now = now + wait.expect("a cost of one permit never exceeds the capacity");
                }
            }
        }
        f64::from(taken) / 300.0
    }
}

/// The limit of each row, by its name.
fn facts(name: &str, of: Numbers) -> Facts {
    let (quota, p, zero) = (of.quota(), of.p, Nanos::ZERO);
    let bursts = quota.with_burst(Permits::new(of.b.into())).unwrap();
    let all = Permits::new(of.n.into());
    let largest = Permits::new(of.c.into());
    match name {
        "token bucket" => of.facts(&Gcra::token_bucket(bursts).unwrap()),
        "leaky meter" => of.facts(&Gcra::leaky_meter(bursts).unwrap()),
        "leaky queue" => of.facts(&Gcra::leaky_queue(quota, Permits::new(of.q.into())).unwrap()),
        "spacing" => of.facts(&Gcra::spacing(p).unwrap()),
        "fixed window" => of.facts(&Window::fixed(quota, zero).unwrap()),
        "calendar" => of.facts(&Window::calendar(all, Arc::new(Even(p))).unwrap()),
        "quota reset" => of.facts(&QuotaReset::new(quota).unwrap()),
        "two-window" => of.facts(&Window::two_window(quota, zero).unwrap()),
        "drop" => of.sub_buckets(Edge::Drop),
        "weighted" => of.sub_buckets(Edge::Weighted),
        "full" => of.sub_buckets(Edge::Full),
        "interval" => of.facts(&Interval::on_grid(all, all, p, zero).unwrap()),
        "first take" => of.facts(&Interval::from_first(all, all, p).unwrap()),
        "sliding log" => of.facts(&Log::sliding(quota).unwrap()),
        "strict" => strict(of),
        "hybrid" => of.facts(&Hybrid::quota_linear(quota).unwrap()),
        "exponential" => of.facts(&Exponential::new(quota).unwrap()),
        "warm-up" => {
            let limit = WarmUp::warming_up(quota.permits_per_second(), p).unwrap();
            of.facts(&limit.with_largest(largest))
        }
        "smooth burst" => {
            let limit = WarmUp::bursty(quota.permits_per_second(), p.as_secs_f64()).unwrap();
            of.facts(&limit.with_largest(largest))
        }
        "concurrency" => concurrency(of),
        "balance" => balance(of),
        other => panic!("unknown algorithm `{other}` in the table"),
    }
}

/// A caller that tries ten times as often as it may.
fn strict(of: Numbers) -> Facts {
    let strict = Log::sliding(of.quota()).unwrap();
    let strict = strict.with_denials(Denials::Counted);
    let (mut state, mut taken) = (LogState::default(), 0);
    let gap = of.p.as_nanos() / u64::from(10 * of.n);
    for attempt in 0..40_000 {
        let now = Time::from_nanos(attempt * gap);
        let decision = strict.decide(&mut state, now, Permits::ONE);
        taken += u32::from(attempt >= 10_000 && decision.verdict.allows());
    }
    Facts {
        rate: f64::from(taken),
        ..of.facts(&strict)
    }
}

/// Nothing bounds a span, but N are on loan at once, and as many come in as go.
fn concurrency(of: Numbers) -> Facts {
    let limit = Concurrency::new(Permits::new(of.n.into()), of.p).unwrap();
    let mut state = ConcurrencyState::default();
    let mut lent = 0;
    while limit
        .decide(&mut state, Time::ZERO, Permits::ONE)
        .verdict
        .allows()
    {
        lent += 1;
    }
    Facts {
        bytes: (size_of_val(&state) + limit.heap_bytes()) as u64,
        bound: lent,
        rate: f64::INFINITY,
    }
}

/// Nothing comes back with time.
fn balance(of: Numbers) -> Facts {
    let max = Permits::new(of.n.into());
    let limit = Balance::new(max, max).unwrap();
    let (mut state, now) = (BalanceState::default(), Time::ZERO);
    let all = limit.decide(&mut state, now, max);
    assert!(all.verdict.allows());
    let later = limit.decide(&mut state, Time::from_nanos(u64::MAX - 1), Permits::ONE);
    assert_eq!(later.verdict, Verdict::DenyForever);
    Facts {
        bytes: (size_of_val(&state) + limit.heap_bytes()) as u64,
        bound: limit.bound(of.p),
        rate: 0.0,
    }
}

/// Windows of one length.
#[derive(Debug)]
struct Even(Nanos);

impl Calendar for Even {
    fn window_at(&self, now: Time) -> CalendarWindow {
        let start = now.as_nanos() / self.0.as_nanos() * self.0.as_nanos();
        let start = Time::from_nanos(start);
        let end = start + self.0;
        CalendarWindow { start, end }
    }
    fn name(&self) -> &'static str {
        "even"
    }
    fn shortest(&self) -> Nanos {
        self.0
    }
    fn on_clock(&self, _origin: Origin) -> Arc<dyn Calendar> {
        Arc::new(Self(self.0))
    }
}

/// A sum of numbers and letters, in halves: `2N - 1`, `36+4m`, `N - 1/2`.
fn halves(text: &str, of: Numbers) -> Option<i64> {
    let letter = |letter| match letter {
        'N' => Some(of.n),
        'B' => Some(of.b),
        'Q' => Some(of.q),
        'C' => Some(of.c),
        'm' => Some(of.m),
        _ => None,
    };
    let term = |term: &str| -> Option<i64> {
        let digits = term.trim_end_matches(char::is_alphabetic);
        let times = match digits {
            "" => 2,
            "1/2" => 1,
            digits => 2 * digits.parse::<i64>().ok()?,
        };
        let mut letters = term[digits.len()..].chars();
        let unit = letters.next().map_or(Some(1), letter)?;
        letters.next().is_none().then(|| times * i64::from(unit))
    };
    let text = text.replace(' ', "").replace('-', "+-");
    text.split('+')
        .map(|part| match part.strip_prefix('-') {
            Some(less) => term(less).map(|value| -value),
            None => term(part),
        })
        .sum()
}

/// The same as a whole number.
fn whole(text: &str, of: Numbers) -> Option<u64> {
    let halves = u64::try_from(halves(text, of)?).ok()?;
    halves.is_multiple_of(2).then_some(halves / 2)
}

/// The rate in a P, by the last column.
fn long_run(text: &str, of: Numbers) -> f64 {
    match text {
        "as fast as work is" => f64::INFINITY,
        "0 while tried" | "as much as is granted" => 0.0,
        "N per P + P/m" => f64::from(of.n * of.m) / f64::from(of.m + 1),
        "N per P, evenly" => f64::from(of.n),
        text => {
            let halves = halves(text.strip_suffix(" per P").unwrap(), of).unwrap();
            f64::from(i32::try_from(halves).unwrap()) / 2.0
        }
    }
}

/// The lines between the fences.
fn table(page: &str) -> Vec<&str> {
    let lines = page
        .lines()
        .map(|line| line.strip_prefix("//!").unwrap_or(line).trim_end());
    let lines = lines.skip_while(|line| !line.contains(" | constructor "));
    lines
        .map(str::trim_end)
        .take_while(|line| line.trim() != "```")
        .collect()
}

#[test]
fn the_figures_in_the_table_are_correct() {
    let mut rows = BTreeMap::new();
    let table = table(PAGE);
    let first = table.iter().skip(2).take_while(|line| !line.is_empty());
    for line in first {
        let [name, constructor, bytes, worst, run] =
            line.split('|').map(str::trim).collect::<Vec<_>>()[..]
        else {
            panic!("{line}");
        };
        if worst.is_empty() {
            continue; // a heading
        }
        for of in TWO {
            let facts = facts(name, of);
            assert_eq!(Some(facts.bytes), whole(bytes, of), "bytes: {line}");
            let worst = worst.trim_end_matches(" *").trim_end_matches(" at once");
            assert_eq!(Some(facts.bound), whole(worst, of), "in one P: {line}");
            let expected = long_run(run, of);
            let near = expected.is_infinite() || (facts.rate - expected).abs() <= 0.02;
            assert!(near, "in the long run {}: {line}", facts.rate);
        }
        assert!(rows.insert(name, constructor).is_none(), "{name} twice");
    }
    assert_eq!(rows.len(), 21);
}

#[test]
fn every_algorithm_is_in_every_part_of_the_table() {
    let table = table(PAGE);
    let parts: Vec<_> = table
        .split(|line| line.trim_start().starts_with("algorithm "))
        .skip(1)
        .collect();
    assert_eq!(parts.len(), 3, "numbers, choice, meaning");
    let names = |part: &[&str]| -> Vec<String> {
        let first = |line: &&str| {
            line.split('|')
                .next()
                .unwrap()
                .trim_end_matches(':')
                .to_owned()
        };
        let rows = part.iter().filter(|line| line.contains('|'));
        let names = rows.map(first).filter(|name| !name.starts_with("     "));
        names
            .map(|name| name.trim().trim_end_matches(':').to_owned())
            .collect()
    };
    let numbers = names(parts[0]);
    assert!(numbers.len() >= 16, "{numbers:?}");
    for part in &parts[1..] {
        let missing: Vec<_> = numbers
            .iter()
            .filter(|name| !names(part).contains(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}

#[test]
fn the_guide_shows_the_same_table() {
    let page: Vec<String> = table(PAGE)
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    assert_eq!(table(GUIDE), page);
}
