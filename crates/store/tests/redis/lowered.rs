//! Lowered bursts: a burst that is lowered for a while, at the same rate, forgives nothing.
//!
//! ```text
//!   burst   30 ---+        +---      admitted: never more than under 30 all the time
//!                 +--------+
//!            4     charges           lowered by a reload, for single keys, or by a restart
//! ```

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, BanTerms, Banning, Denials, Gcra, Interval, Limit, LimitKeys,
    Nanos, Permits, Quota, Time,
};
use ratekeeper_store::conformance::{charge, limit};
use ratekeeper_store::{MemoryConfig, MemoryStore, RedisClock, RedisConfig, RedisStore, Store};

use crate::cases::cases;
use crate::conforms::tomorrow;
use crate::server::{Server, programs};

const HOUR: Nanos = Nanos::from_secs(3_600);
/// Bursts are at most as large.
const LARGEST: u64 = 30;

/// Constructs a limit with this burst; all have the same rate.
type Make = fn(u64) -> AnyAlgorithm;

const ALGORITHMS: [(&str, Make); 9] = [
    ("bucket", |n| Gcra::token_bucket(rate(n)).unwrap().into()),
    ("counting bucket", |n| {
        let gcra = Gcra::token_bucket(rate(n)).unwrap();
        gcra.with_denials(Denials::Counted).into()
    }),
    ("patient bucket", |n| {
        Gcra::token_bucket(rate(n)).unwrap().patient().into()
    }),
    ("queueing bucket", |n| Gcra::new(rate(3), n).unwrap().into()),
    ("banning bucket", |n| {
        banning(Gcra::token_bucket(rate(n)).unwrap())
    }),
    ("steps", |n| {
        Interval::from_first(n, 3, HOUR).unwrap().into()
    }),
    ("bucket of large steps", |n| {
        Interval::from_first(n, 40, HOUR).unwrap().into()
    }),
    ("steps on a grid", |n| {
        Interval::on_grid(n, 3, HOUR, Nanos::ZERO).unwrap().into()
    }),
    ("banning steps", |n| {
        banning(Interval::from_first(n, 3, HOUR).unwrap())
    }),
];

fn rate(burst: u64) -> Quota {
    let quota = Quota::new(Permits::new(7), HOUR).unwrap();
    quota.with_burst(Permits::new(burst)).unwrap()
}

fn banning(limit: impl Into<AnyAlgorithm>) -> AnyAlgorithm {
    let terms = BanTerms {
        strikes: "9/1h".parse().unwrap(),
        first: Nanos::from_secs(60),
        growth_thousandths: 1_000,
        longest: Nanos::from_secs(60),
    };
    Banning::new(limit.into(), terms).unwrap().into()
}

#[tokio::test]
async fn a_lowered_burst_forgives_nothing_in_memory() {
    let new = || MemoryStore::new(MemoryConfig::default());
    let restart = |store: MemoryStore, limits: &[Limit], now| {
        let mut bytes = Vec::new();
        store.save(limits, now, &mut bytes).unwrap();
        let store = new();
        let named = |name: &str| limits.iter().find(|limit| &*limit.name == name);
        store.restore(&mut &*bytes, now, named).unwrap();
        store
    };
    lives(new, restart, cases(300, 10_000)).await;
}

#[tokio::test]
async fn a_lowered_burst_forgives_nothing_in_redis() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let new = || {
            RedisStore::new(RedisConfig {
                origin: tomorrow(),
                clock: RedisClock::Caller,
                deadline: Duration::from_secs(60),
                ..RedisConfig::new(server.url())
            })
            .unwrap()
        };
        lives(&new, |_, _, _| new(), cases(20, 500)).await;
    }
}

async fn lives<S: Store>(
    new: impl Fn() -> S,
    restart: impl Fn(S, &[Limit], Time) -> S,
    count: u64,
) {
    for (name, make) in ALGORITHMS {
        for seed in 0..count {
            life(new(), &restart, (name, make), seed).await;
        }
    }
}

/// Charges of one key, while the bursts of its limit and of the numbers of its own change, and
/// processes come and go.
async fn life<S: Store>(
    mut store: S,
    restart: impl Fn(S, &[Limit], Time) -> S,
    (name, make): (&str, Make),
    seed: u64,
) {
    let mut random = Random::new(seed);
    let mut own = Limit {
        name: format!("{name} {seed}").into(),
        ..limit(0, make(LARGEST))
    };
    let mut single: Option<Limit> = None;
    let (mut now, mut admitted, mut version) = (Time::ZERO, 0, 1);
    for step in 0..80 {
        if random.below(4) == 0 {
            now = now + Nanos::from_micros(random.below(3_000_000_000));
        }
        let burst = [1 + random.below(LARGEST), LARGEST][usize::from(random.below(3) == 0)];
        version += 1;
        match random.below(10) {
            0 | 1 => {
                own = Limit {
                    version,
                    algorithm: make(burst),
                    ..own
                }
            }
            2 => {
                let suffix = format!("{}={burst}", own.name);
                single = Some(Limit {
                    name: suffix.into(),
                    version,
                    keys: LimitKeys::Single(Arc::from([own.clone()])),
                    ..limit(u32::try_from(burst).unwrap(), make(burst))
                });
            }
            3 => single = None,
            // The file does not tell how fast steps came back.
            4 if name.contains("bucket") => {
                // The usage moves with a decision, and is saved under the limit where it is.
                let limit = single.as_ref().unwrap_or(&own);
                let _ = store.decide(&[charge(limit, b"k", 0)], now).await.unwrap();
                let limits: Vec<Limit> = single.iter().chain([&own]).cloned().collect();
                store = restart(store, &limits, now);
            }
            _ => {
                let limit = single.as_ref().unwrap_or(&own);
                let cost = 1 + random.below(3) * random.below(LARGEST);
                let decided = store.decide(&[charge(limit, b"k", cost)], now).await;
                if decided.unwrap().admitted {
                    admitted += cost;
                }
            }
        }
        let most = make(LARGEST).bound(now.since(Time::ZERO) + Nanos::from_nanos(1));
        assert!(
            admitted <= most,
            "{name} {seed}, step {step}: {admitted} of {most}"
        );
    }
}
