//! Together: processes with different numbers of one bucket, on one server.
//!
//! ```text
//!   20/1h  --+                       value: its moment, and the numbers of its writer
//!            +--> rk:{ada}:calls     each reads the used permits: together at most 20,
//!   10/1h  --+                       and 20 an hour
//! ```

use std::time::Duration;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, BanTerms, Banning, Charge, Denials, Exponential, Gcra, Interval,
    Key, Limit, Log, Mode, Nanos, Permits, Quota, Time,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{RedisClock, RedisConfig, RedisStore, Store as _};

use crate::cases::cases;
use crate::conforms::tomorrow;
use crate::server::{Server, programs};

/// A process: a store of its own, and its numbers of the limit.
struct Process {
    store: RedisStore,
    limit: Limit,
}

impl Process {
    fn new(server: &Server, algorithm: impl Into<AnyAlgorithm>) -> Self {
        let store = RedisStore::new(RedisConfig {
            origin: tomorrow(),
            clock: RedisClock::Caller,
            deadline: Duration::from_secs(60),
            ..RedisConfig::new(server.url())
        });
        Self {
            store: store.unwrap(),
            limit: limit(0, algorithm),
        }
    }

    fn change(&mut self, algorithm: impl Into<AnyAlgorithm>) {
        self.limit.algorithm = algorithm.into();
        self.limit.version += 1;
    }

    fn charge<'a>(&'a self, key: &'a str, cost: u64) -> [Charge<'a>; 1] {
        [Charge {
            limit: &self.limit,
            key: Key::from_bytes(key.as_bytes()),
            cost: Permits::new(cost),
            mode: Mode::Enforce,
        }]
    }

    async fn takes(&self, key: &str, cost: u64, now: Time) -> bool {
        let decided = self.store.decide(&self.charge(key, cost), now).await;
        decided.unwrap().admitted
    }

    async fn gives_back(&self, key: &str, cost: u64, now: Time) {
        self.store
            .refund(&self.charge(key, cost), now)
            .await
            .unwrap();
    }

    /// The remaining permits.
    async fn left(&self, key: &str, now: Time) -> u64 {
        let seen = self.store.look(&self.charge(key, 0), now).await.unwrap();
        seen.each[0].remaining.get()
    }
}

fn bucket(text: &str) -> Gcra {
    Gcra::token_bucket(text.parse().unwrap()).unwrap()
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Nanos::from_secs(seconds)
}

#[tokio::test]
async fn a_change_of_numbers_keeps_the_used_permits() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        for (old, used, new, left) in [
            ("10/10h", 10, "20/10h", 10),
            ("100/1h", 50, "1000/1h", 950),
            ("100/1m", 100, "100/1h", 0),
            ("1000/1d", 1000, "500/1d", 0),
        ] {
            let key = format!("{old} {new}");
            let mut process = Process::new(&server, bucket(old));
            assert!(process.takes(&key, used, at(0)).await);
            process.change(bucket(new));
            assert_eq!(process.left(&key, at(0)).await, left, "{key}");
        }
        // One process knows the new numbers from its start; the next permit comes at the new rate.
        let old = Process::new(&server, bucket("100/1m"));
        let new = Process::new(&server, bucket("100/1h"));
        assert!(old.takes("k", 100, at(0)).await);
        assert!(!new.takes("k", 1, at(0)).await);
        assert!(!new.takes("k", 1, at(35)).await);
        assert!(new.takes("k", 1, at(36)).await);
    }
}

/// A burst above the quota is not forgiven by a reload that lowers it.
#[tokio::test]
async fn a_lowered_burst_at_the_same_rate_forgives_nothing() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let burst = |permits| {
            let quota = "10/10s".parse::<Quota>().unwrap();
            Gcra::token_bucket(quota.with_burst(Permits::new(permits)).unwrap()).unwrap()
        };
        let mut process = Process::new(&server, burst(1_000));
        assert!(process.takes("k", 1_000, at(0)).await);
        process.change(burst(10));
        assert!(!process.takes("k", 1, at(0)).await);
        assert!(!process.takes("k", 1, at(990)).await);
        process.change(burst(1_000));
        assert_eq!(process.left("k", at(990)).await, 990);
    }
}

/// What time has paid is not owed again when the clock steps back, also if permits came back before
/// and the numbers changed since: both write the value anew.
#[tokio::test]
async fn a_debt_that_was_paid_long_ago_does_not_come_back() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let mut process = Process::new(&server, bucket("10/10s"));
        assert!(process.takes("k", 5, at(0)).await);
        process.gives_back("k", 1, at(0)).await;
        process.change(bucket("10/20s"));
        assert!(!process.takes("k", 11, at(100)).await);
        assert_eq!(process.left("k", at(90)).await, 10);
    }
}

#[tokio::test]
async fn a_lower_limit_forgives_nothing_of_a_higher_one() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let high = Process::new(&server, bucket("1000/1d"));
        let low = Process::new(&server, bucket("500/1d"));
        assert!(high.takes("k", 1_000, at(0)).await);
        for _ in 0..3 {
            assert!(!high.takes("k", 1, at(0)).await);
            assert!(!low.takes("k", 1, at(0)).await);
        }
        // Where all have the lower numbers, the cut stands, and idle hours pay the rest.
        assert!(!low.takes("k", 1, at(172)).await);
        assert!(low.takes("k", 1, at(173)).await);
        assert_eq!(low.left("k", at(86_400 + 173)).await, 500);
        assert_eq!(high.left("k", at(86_400 + 173)).await, 500);
    }
}

fn banning(limit: impl Into<AnyAlgorithm>, after: u64) -> AnyAlgorithm {
    let terms = BanTerms {
        strikes: Quota::new(Permits::new(after), Nanos::from_secs(3_600)).unwrap(),
        first: Nanos::from_secs(3_600),
        growth_thousandths: 1_000,
        longest: Nanos::from_secs(3_600),
    };
    Banning::new(limit.into(), terms).unwrap().into()
}

/// Constructs a limit of so many permits.
type Make = fn(u64) -> AnyAlgorithm;

fn hourly(permits: u64) -> Quota {
    Quota::new(Permits::new(permits), Nanos::from_secs(3_600)).unwrap()
}

fn steps(permits: u64) -> Interval {
    Interval::from_first(permits, 1, Nanos::from_secs(3_600)).unwrap()
}

/// Limits that would admit the difference again and again, if the lower one were to write the usage
/// as it reads it.
const CUTTING: [(&str, Make); 7] = [
    ("bucket", |n| Gcra::token_bucket(hourly(n)).unwrap().into()),
    ("banning bucket", |n| {
        banning(Gcra::token_bucket(hourly(n)).unwrap(), 100)
    }),
    ("soon banning bucket", |n| {
        banning(Gcra::token_bucket(hourly(n)).unwrap(), 3)
    }),
    ("steps", |n| steps(n).into()),
    ("banning steps", |n| banning(steps(n), 100)),
    ("counting log", |n| {
        let log = Log::sliding(hourly(n)).unwrap();
        log.with_denials(Denials::Counted).into()
    }),
    ("log", |n| Log::sliding(hourly(n)).unwrap().into()),
];

/// The one with the lower numbers asks, is refused, and gives back charges of the other.
#[tokio::test]
async fn a_lower_limit_cuts_for_itself_only() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        for (name, make) in CUTTING {
            for by_long_script in [false, true] {
                let key = format!("{name} {by_long_script}");
                let (low, high) = (
                    Process::new(&server, make(20)),
                    Process::new(&server, make(35)),
                );
                let other = Limit {
                    name: "beside".into(),
                    ..limit(9, bucket("1000/1h"))
                };
                let takes = async |process: &Process, cost| {
                    let [charge] = process.charge(&key, cost);
                    let beside = Charge {
                        limit: &other,
                        ..charge
                    };
                    let both = [charge, beside];
                    let charges = &both[..if by_long_script { 2 } else { 1 }];
                    let decided = process.store.decide(charges, at(0)).await.unwrap();
                    decided.admitted
                };
                let mut charged = 0;
                for round in 0..20 {
                    while takes(&high, 1).await {
                        charged += 1;
                        assert!(charged <= 35, "{key}: round {round}");
                    }
                    assert!(!takes(&low, 1).await, "{key}");
                    assert!(!takes(&low, 20).await, "{key}");
                    if round % 4 == 3 {
                        low.gives_back(&key, 1, at(0)).await;
                        charged -= 1;
                    }
                }
                assert!(charged >= 30, "{key}: {charged}");
            }
        }
    }
}

#[tokio::test]
async fn processes_together_admit_at_most_the_looser() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        for seed in 0..cases(60, 2_000) {
            live(&server, seed).await;
        }
    }
}

/// Random charges and refunds by three processes; all charges are bounded by the largest bucket and
/// the highest rate.
async fn live(server: &Server, seed: u64) {
    let mut random = Random::new(seed);
    let mut quotas = Vec::new();
    let mut processes = Vec::new();
    while processes.len() < 3 {
        let permits = 1 + random.below(50);
        let period = Nanos::from_millis(1_000 * (1 + random.below(30)));
        let quota = Quota::new(Permits::new(permits), period).unwrap();
        let quota = match random.below(3) {
            0 => quota
                .with_burst(Permits::new(1 + random.below(80)))
                .unwrap(),
            _ => quota,
        };
        let bucket = Gcra::token_bucket(quota).unwrap();
        let bucket = if random.below(3) == 0 {
            bucket.patient()
        } else {
            bucket
        };
        processes.push(Process::new(server, bucket));
        quotas.push(quota);
    }
    let largest = quotas
        .iter()
        .map(|quota| quota.burst_size().get())
        .max()
        .unwrap();
    let rate = |quota: &Quota| (quota.permits().get(), quota.per().as_nanos());
    let fastest = quotas.iter().map(rate);
    let (permits, per) = fastest
        .max_by_key(|(permits, per)| permits * 1_000_000_000_000 / per)
        .unwrap();
    let key = format!("life {seed}");
    let (mut now, mut charged) = (Time::ZERO, 0);
    let mut last = (0, 0);
    for number in 0..120 {
        if random.below(3) == 0 {
            let most = [50_000, 1_000_000, 20_000_000][usize::try_from(random.below(3)).unwrap()];
            now = now + Nanos::from_micros(random.below(most));
            last = (0, 0);
        }
        let who = usize::try_from(random.below(3)).unwrap();
        if random.below(10) == 0 && last.1 > 0 {
            processes[last.0].gives_back(&key, last.1, now).await;
            charged -= last.1;
            last = (0, 0);
            continue;
        }
        let cost = 1 + random.below(random.clone().below(largest) + 1);
        if processes[who].takes(&key, cost, now).await {
            charged += cost;
            last = (who, cost);
        }
        let refilled = u128::from(permits) * u128::from(now.as_nanos()) / u128::from(per);
        let most = u128::from(largest) + refilled;
        assert!(
            u128::from(charged) <= most,
            "{seed}, operation {number}: {charged} of {most}, {quotas:?}"
        );
    }
}

/// Both together admit no more than both hold, however often they take turns.
#[tokio::test]
async fn no_moment_of_a_queue_is_promised_twice() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        for seed in 0..cases(20, 1_000) {
            let mut random = Random::new(seed);
            let mut most = 0;
            let mut process = || {
                let period = Nanos::from_secs(1 + random.below(600));
                let quota = Quota::new(Permits::new(1 + random.below(40)), period).unwrap();
                let quota = quota.with_burst(Permits::new(1 + random.below(40)));
                let queue = random.below(2) * random.below(60);
                let gcra = Gcra::new(quota.unwrap(), Permits::new(queue)).unwrap();
                most += gcra.capacity().get();
                Process::new(&server, gcra)
            };
            let processes = [process(), process()];
            let (key, mut admitted) = (format!("turns {seed}"), 0);
            for _ in 0..60 {
                let cost = random.below(8);
                let process = &processes[usize::from(random.below(2) == 0)];
                if process.takes(&key, cost, at(0)).await {
                    admitted += cost;
                }
            }
            assert!(admitted <= most, "{seed}: {admitted} of {most}");
        }
    }
}

/// Keys of one limit with numbers of their own, as an override gives them: of a request that names two
/// users, of others at the same moment, and of a limit that takes two calls.
#[tokio::test]
async fn a_request_has_keys_with_different_numbers() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let numbers: [fn(&str) -> AnyAlgorithm; 2] = [
            |quota| bucket(quota).into(),
            |quota| Exponential::new(quota.parse().unwrap()).unwrap().into(),
        ];
        for algorithm in numbers {
            let store = RedisStore::new(RedisConfig {
                deadline: Duration::from_secs(60),
                ..RedisConfig::new(server.url())
            });
            let store = store.unwrap();
            let [own, other] = [(0, "1000/1d"), (1, "100/1d")].map(|(id, quota)| Limit {
                name: format!("by-{}", algorithm("1/1d").name()).into(),
                ..limit(id, algorithm(quota))
            });
            let key = |limit, key: &'static str| {
                Charge::enforced(limit, Key::from_bytes(key.as_bytes()), Permits::ONE)
            };
            let both = [key(&own, "\x01a"), key(&other, "\x01b")];
            let decide =
                async |charges: &[Charge<'_>]| store.decide(charges, Time::ZERO).await.unwrap();
            let (first, second, alone, third) = tokio::join!(
                decide(&both),
                decide(&both),
                decide(&both[1..]),
                decide(&both)
            );
            for decided in [first, second, alone, third] {
                assert!(decided.admitted);
            }
            let left = decide(&both).await.each;
            let left = [left[0].remaining.get(), left[1].remaining.get()];
            assert_eq!(left, [996, 95], "{:?}", own.algorithm);
        }
    }
}
