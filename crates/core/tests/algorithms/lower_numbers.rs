//! Processes with different numbers share one value: the one with lower numbers cuts the usage for
//! itself, and what it writes keeps the rest for those with higher ones.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, AnyState, BanTerms, Banning, Decision, Denials, Edge,
    Exponential, Gcra, Interval, KeptValue, Log, Nanos, Permits, Quota, QuotaReset, Receipt,
    SubBuckets, UnixMicros, Window,
};

const HOUR: Nanos = Nanos::from_secs(3_600);

/// Constructs a limit with so many permits; all have the same shape.
type Make = fn(u64) -> AnyAlgorithm;

fn quota(permits: u64) -> Quota {
    Quota::new(Permits::new(permits), HOUR).unwrap()
}

fn bucket(permits: u64) -> Quota {
    quota(7).with_burst(Permits::new(permits)).unwrap()
}

const ALGORITHMS: [(&str, Make); 15] = [
    ("bucket", |n| Gcra::token_bucket(quota(n)).unwrap().into()),
    ("bucket of one rate", |n| {
        Gcra::token_bucket(bucket(n)).unwrap().into()
    }),
    ("counting bucket", |n| {
        let gcra = Gcra::token_bucket(quota(n)).unwrap();
        gcra.with_denials(Denials::Counted).into()
    }),
    ("step bucket", |n| {
        Interval::from_first(n, 3, HOUR).unwrap().into()
    }),
    ("whole step bucket", |n| {
        Interval::from_first(n, n, HOUR).unwrap().into()
    }),
    ("step bucket on a grid", |n| {
        Interval::on_grid(n, 3, HOUR, Nanos::ZERO).unwrap().into()
    }),
    ("log", |n| Log::sliding(quota(n)).unwrap().into()),
    ("counting log", |n| {
        let log = Log::sliding(quota(n)).unwrap();
        log.with_denials(Denials::Counted).into()
    }),
    ("fixed window", |n| {
        Window::fixed(quota(n), Nanos::ZERO).unwrap().into()
    }),
    ("counting window", |n| {
        let window = Window::fixed(quota(n), Nanos::ZERO).unwrap();
        window.with_denials(Denials::Counted).into()
    }),
    ("two windows", |n| {
        Window::two_window(quota(n), Nanos::ZERO).unwrap().into()
    }),
    ("sub-buckets", |n| {
        let buckets = SubBuckets::sub_buckets(quota(n), 5, Edge::Full, Nanos::ZERO);
        buckets.unwrap().into()
    }),
    ("quota reset", |n| QuotaReset::new(quota(n)).unwrap().into()),
    ("exponential", |n| {
        Exponential::new(quota(n)).unwrap().into()
    }),
    ("counting exponential", |n| {
        let counter = Exponential::new(quota(n)).unwrap();
        counter.with_denials(Denials::Counted).into()
    }),
];

/// The same limit with bans.
fn banning(limit: AnyAlgorithm, after: u64) -> AnyAlgorithm {
    let terms = BanTerms {
        strikes: quota(after),
        first: HOUR,
        growth_thousandths: 1_000,
        longest: HOUR,
    };
    Banning::new(limit, terms).unwrap().into()
}

/// The value of one key, as a shared store keeps it.
#[derive(Default)]
struct SharedValue {
    bytes: Vec<u8>,
    /// Number of microseconds since 1970 at which it is gone.
    until: u64,
}

impl SharedValue {
    fn read(&self, limit: &AnyAlgorithm, now: UnixMicros) -> AnyState {
        match &*self.bytes {
            [] => AnyState::default(),
            bytes => limit.read(bytes, now).unwrap(),
        }
    }

    fn usage(&self, limit: &AnyAlgorithm, now: UnixMicros) -> u64 {
        limit.usage(&self.read(limit, now), now.time()).get()
    }

    /// Reads, changes and writes the state, as a process does.
    fn change<T>(
        &mut self,
        limit: &AnyAlgorithm,
        now: UnixMicros,
        change: impl FnOnce(&mut AnyState) -> T,
    ) -> T {
        let before = self.read(limit, now);
        let mut state = before.clone();
        let changed = change(&mut state);
        if state != before {
            let left = limit.expires_at(&state, now.time()).since(now.time());
            let mut kept = KeptValue {
                bytes: Vec::new(),
                micros: left.as_nanos().div_ceil(1_000),
            };
            limit.write(&state, now, &mut kept.bytes);
            limit.keep_beyond(&mut kept, &self.bytes, now);
            (self.bytes, self.until) = (kept.bytes, now.get() + kept.micros);
        }
        changed
    }
}

#[test]
fn a_lower_reading_keeps_the_usage_of_a_looser_one() {
    for (name, make) in ALGORITHMS {
        for seed in 0..400 {
            let (low, high) = (make(17 + seed % 4), make(21 + seed % 11));
            check(name, [&low, &high], seed);
            if low.denials() == Denials::Free {
                let after = 1 + seed % 9;
                let with_bans = [banning(low, after), banning(high, after)];
                check(name, [&with_bans[0], &with_bans[1]], seed);
            }
        }
    }
}

/// A life of charges, give-backs and refunds by two processes. No act of the one with the lower
/// numbers lowers the usage that the other reads, except by the permits that it gives back.
fn check(name: &str, limits: [&AnyAlgorithm; 2], seed: u64) {
    let (mut random, mut value) = (Random::new(seed), SharedValue::default());
    let mut now = UnixMicros::new(1_767_225_600_000_000);
    let mut charged: Vec<(Receipt, u64)> = Vec::new();
    assert_eq!(limits[0].shape(), limits[1].shape(), "{name}");
    for step in 0..60 {
        if random.below(4) == 0 {
            now = UnixMicros::new(now.get() + random.below(2_000_000_000));
        }
        if value.until <= now.get() {
            value = SharedValue::default();
        }
        let limit = limits[usize::from(random.below(2) == 0)];
        let before = limits.map(|limit| value.usage(limit, now));
        let mut back = 0;
        match random.below(6) {
            0 => {
                back = 1 + random.below(3);
                value.change(limit, now, |state| {
                    let _ = limit.try_refund(state, now.time(), Permits::new(back));
                });
            }
            1 if !charged.is_empty() => {
                let at = usize::try_from(random.below(charged.len() as u64)).unwrap();
                let (receipt, cost) = charged.swap_remove(at);
                back = cost;
                value.change(limit, now, |state| {
                    let _ = limit.try_give_back(state, now.time(), Permits::new(cost), receipt);
                });
            }
            _ => {
                let cost = [0, 1, 1, 3, 9, 30][usize::try_from(random.below(6)).unwrap()];
                let decision: Decision = value.change(limit, now, |state| {
                    limit.decide(state, now.time(), Permits::new(cost))
                });
                if decision.verdict.allows() && cost > 0 {
                    charged.push((Receipt::of(&decision, now.time()), cost));
                }
            }
        }
        let after = limits.map(|limit| value.usage(limit, now));
        for (before, after) in before.into_iter().zip(after) {
            assert!(
                after + back >= before,
                "{name} {seed}, step {step}: {before} are used, {after} after {back} came back"
            );
        }
    }
}
