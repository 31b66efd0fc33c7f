//! Equality: every field of every decision of the store is that of the core, which runs
//! beside it on states of its own.
//!
//! ```text
//!                     +--> RedisStore (script, or compare-and-set) --> decision
//!   random operation -+                                                   ==
//!                     +--> core, state in memory ------------------> decision
//! ```
//!
//! Operations are charges of all sizes, peeks, looks and refunds, at moments that run forward,
//! stand still, jump, and step back, while the parameters change. Limits are of all sizes that
//! the twins hold. `RATEKEEPER_OPS=1000000` runs as many for each core and server.

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Balance, BanTerms, Banning, Charge, Decision, Denials, Edge,
    Exponential, Gcra, GrantId, Granted, Hybrid, Interval, Key, Limit, LimitId, LimitScope, Listed,
    Log, MAX_BAN, Mode, Nanos, Origin, Outage, Permits, Quota, QuotaReset, Refund, SubBuckets, Tat,
    Time, Window,
};
use ratekeeper_store::{RedisClock, RedisConfig, RedisStore, Store};

use crate::conforms::tomorrow;
use crate::server::{Server, every_program};

/// Operations for each core and server unless `RATEKEEPER_OPS` is set.
const OPERATIONS: u64 = 20_000;
/// Lives that run at the same time, so that calls share round trips.
const LIVES: usize = 64;
/// Operations of a life.
const LENGTH: u64 = 200;
/// Values of GCRA are read correctly for this long after they have become meaningless.
const IDLE: Nanos = Nanos::from_secs(90 * 86_400);
/// A few years: values are dated modulo 2.9.
const END: Time = Time::from_nanos(5 * YEAR.as_nanos());
const YEAR: Nanos = Nanos::from_secs(365 * 86_400);

/// Bits of the largest quota.
const BITS: u64 = Quota::MAX_PERMITS.ilog2() as u64 + 1;

/// Where the zero of all clocks lies.
static ORIGIN: LazyLock<Origin> = LazyLock::new(tomorrow);

/// A core on trial.
struct Trial<A: Algorithm> {
    name: &'static str,
    /// `None` for limits without grants.
    grant: Option<GrantFunction<A>>,
    /// Returns `None` if there is no limit of these numbers.
    make: fn(Recipe) -> Option<A>,
    refund: fn(&A, &mut A::State, Time, Permits),
    /// How far before they become meaningless values are read right.
    ahead: Nanos,
}

type GrantFunction<A> = fn(&A, &mut <A as Algorithm>::State, Permits, GrantId) -> Granted;

impl<A: Algorithm> Clone for Trial<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Algorithm> Copy for Trial<A> {}

/// Parameters of a limit. Limits that differ in the seed only understand each other's states.
#[derive(Clone, Copy)]
struct Recipe {
    per: Nanos,
    phase: Nanos,
    kind: u64,
    seed: u64,
}

impl Recipe {
    fn new(random: &mut Random) -> Self {
        Self {
            per: span(random),
            phase: span(random),
            kind: random.next(),
            seed: random.next(),
        }
    }

    fn random(&self) -> Random {
        Random::new(self.seed)
    }

    fn quota(&self, random: &mut Random, bits: u64) -> Quota {
        Quota::new(Permits::new(number(random, bits)), self.per).unwrap()
    }
}

/// A limit, made of `recipe` with another seed.
fn limit_of<A: Algorithm>(trial: &Trial<A>, recipe: Recipe, random: &mut Random) -> Option<A> {
    let seeds = (0..100).map(|_| random.next());
    let mut limits = seeds.filter_map(|seed| (trial.make)(Recipe { seed, ..recipe }));
    limits.next()
}

fn operations() -> u64 {
    let wanted = std::env::var("RATEKEEPER_OPS").ok();
    wanted.map_or(OPERATIONS, |text| text.parse().unwrap())
}

fn run<A>(trial: &Trial<A>)
where
    A: Algorithm + Clone + Debug + Into<AnyAlgorithm> + Send + Sync + 'static,
    A::State: Send,
{
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = Arc::new(
            RedisStore::new(RedisConfig {
                origin: *ORIGIN,
                clock: RedisClock::Caller,
                deadline: Duration::from_secs(60),
                ..RedisConfig::new(server.url())
            })
            .unwrap(),
        );
        let lives = operations().div_ceil(LENGTH);
        runtime.block_on(async {
            let threads = (0..LIVES as u64).map(|first| {
                let store = Arc::clone(&store);
                let trial = *trial;
                tokio::spawn(async move {
                    for seed in (first..lives).step_by(LIVES) {
                        live(&trial, &store, seed).await;
                    }
                })
            });
            for thread in threads.collect::<Vec<_>>() {
                thread.await.unwrap();
            }
        });
        let count = lives * LENGTH;
        println!(
            "{} on {}: {count} operations equal",
            trial.name, program.name
        );
    }
}

fn limit_named(name: &str, id: u64, algorithm: impl Into<AnyAlgorithm>) -> Limit {
    Limit {
        name: name.into(),
        id: LimitId::new(u32::try_from(id).unwrap()),
        version: 1,
        outage: Outage::Local,
        scope: LimitScope::Cluster,
        algorithm: algorithm.into(),
    }
}

/// One key of one limit, for [`LENGTH`] operations.
async fn live<A>(trial: &Trial<A>, store: &RedisStore, seed: u64)
where
    A: Algorithm + Clone + Debug + Into<AnyAlgorithm>,
{
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x4d);
    let (recipe, mut algorithm) = loop {
        let recipe = Recipe::new(&mut random);
        if let Some(algorithm) = limit_of(trial, recipe, &mut random) {
            break (recipe, algorithm);
        }
    };
    let name = format!("{}-{seed}", trial.name);
    let mut limit = limit_named(&name, seed, algorithm.clone());
    let bucket = Gcra::token_bucket("9/1s".parse().unwrap()).unwrap();
    let companion = limit_named(&format!("companion-{seed}"), 1_000_000 + seed, bucket);
    let mut state = A::State::default();
    let mut now = Time::ZERO + YEAR;
    let mut history = Vec::new();
    for number in 0..LENGTH {
        if random.below(50) == 0
            && let Some(other) = limit_of(trial, recipe, &mut random)
        {
            algorithm = other;
            limit.version += 1;
            limit.algorithm = algorithm.clone().into();
        }
        now = moment(&algorithm, &state, now, trial.ahead, &mut random);
        let cost = cost(&algorithm, &state, now, &mut random);
        let mode = if random.below(8) == 0 {
            Mode::Shadow
        } else {
            Mode::Enforce
        };
        let charge = Charge {
            limit: &limit,
            key: Key::from_bytes(b"\x01k"),
            cost,
            mode,
        };
        let act = random.below(20);
        history.push((act, now, cost, state.clone()));
        let (expected, decided) = match act {
            0 => {
                let verdict = algorithm.look(&state, now, cost).verdict;
                let standing = algorithm.look(&state, now, Permits::ZERO);
                // A debt that the clock made too long is cut by deciding, not by looking.
                let after = algorithm.look(&state, now, cost);
                let expected = if verdict.allows() {
                    Decision {
                        verdict,
                        ..standing
                    }
                } else {
                    after
                };
                (
                    Some(expected),
                    Some(store.look(&[charge], now).await.unwrap()),
                )
            }
            1 | 2 => {
                (trial.refund)(&algorithm, &mut state, now, cost);
                store.refund(&[charge], now).await.unwrap();
                (None, None)
            }
            3 | 4 if let Some(grant) = trial.grant => {
                // Few ids, so that some grants are repeated.
                let id = GrantId::of(&random.below(50).to_string());
                let granted = grant(&algorithm, &mut state, cost, id);
                let answer = store.grant(&[charge], id, now).await.unwrap()[0];
                assert_eq!(answer.granted, Some(granted), "{} {seed}", trial.name);
                let standing = algorithm.look(&state, now, Permits::ZERO);
                assert_eq!(answer.decision, standing, "{} {seed}", trial.name);
                (None, None)
            }
            _ => {
                let expected = algorithm.decide(&mut state, now, cost);
                // Alone, and beside another limit, scripts differ. The other vetoes nothing.
                let beside = Charge {
                    limit: &companion,
                    mode: Mode::Shadow,
                    ..charge
                };
                let both = [charge, beside];
                let charges = &both[..if seed.is_multiple_of(2) { 1 } else { 2 }];
                (
                    Some(expected),
                    Some(store.decide(charges, now).await.unwrap()),
                )
            }
        };
        let decided = decided.map(|decisions| decisions.each[0]);
        assert_eq!(
            decided,
            expected,
            "{} {seed}, operation {number}, (act, now, cost, state): {:?}\n{algorithm:?}",
            trial.name,
            &history[history.len().saturating_sub(4)..],
        );
    }
}

/// The next moment: often the same, soon after, at an edge, far ahead, or back.
fn moment<A: Algorithm>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    ahead: Nanos,
    random: &mut Random,
) -> Time {
    let expires = algorithm.expires_at(state, now);
    let capacity = algorithm.capacity();
    let edge = algorithm
        .look(state, now, Permits::new(1 + below(random, capacity)))
        .verdict;
    let scale = expires
        .since(now)
        .as_nanos()
        .clamp(1_000_000, YEAR.as_nanos());
    let span = |random: &mut Random, most: u64| Nanos::from_nanos(random.below(most + 1));
    let next = match random.below(16) {
        0..5 => now,
        5..8 => {
            let most = 1 << random.below(30);
            now + span(random, most)
        }
        8..10 => now + span(random, scale / 8),
        10 | 11 => now + edge.retry_after().unwrap_or(Nanos::ZERO),
        12 => now + edge.retry_after().unwrap_or(Nanos::ZERO) - Nanos::from_micros(1),
        13 => now + span(random, scale * 2),
        14 => now - span(random, 20_000_000_000),
        _ => now - span(random, scale),
    };
    // Within what values can tell; up to whole microseconds, as clocks of servers are.
    let latest = expires.max(now) + IDLE;
    let first = (expires - ahead).max(Time::ZERO + Nanos::from_secs(86_400));
    let next = next.clamp(first, latest.min(END).max(first));
    Time::from_nanos(next.as_nanos().div_ceil(1_000) * 1_000)
}

fn cost<A: Algorithm>(algorithm: &A, state: &A::State, now: Time, random: &mut Random) -> Permits {
    let remaining = algorithm.look(state, now, Permits::ZERO).remaining;
    let capacity = algorithm.capacity();
    match random.below(16) {
        0 => Permits::ZERO,
        1..8 => Permits::ONE,
        8 | 9 => remaining,
        10 | 11 => remaining + Permits::ONE,
        12 => capacity,
        13 => Permits::new(random.next() >> random.below(64)),
        14 => Permits::new(random.below(3 * capacity.get() + 2)),
        _ => Permits::new(below(random, capacity)),
    }
}

fn below(random: &mut Random, end: Permits) -> u64 {
    random.below(end.get())
}

/// As many numbers of one length in bits as of another; now and then the largest quota.
fn number(random: &mut Random, bits: u64) -> u64 {
    let most = 1 << random.below(bits + 1);
    match random.below(16) {
        0 if bits == BITS => Quota::MAX_PERMITS,
        _ => 1 + random.below(most).min(Quota::MAX_PERMITS - 1),
    }
}

/// From a few microseconds to a year; as many whole microseconds and seconds as nanoseconds.
fn span(random: &mut Random) -> Nanos {
    let most = 1 << (10 + random.below(45));
    let step = [1, 1_000, 1_000_000_000][usize::try_from(random.below(3)).unwrap()];
    let span: u64 = 1 + random.below(most);
    Nanos::from_nanos(span.next_multiple_of(step))
}

fn denials(random: &mut Random) -> Denials {
    if random.below(3) == 0 {
        Denials::Counted
    } else {
        Denials::Free
    }
}

/// GCRA on the clock of the store. Its units count from the clock's zero, if a microsecond is no
/// whole number of them.
#[derive(Clone, Debug)]
struct OnUnix(Gcra);

impl OnUnix {
    fn at(now: Time) -> Time {
        now + Nanos::from_nanos(ORIGIN.as_unix_nanos())
    }
}

impl From<OnUnix> for AnyAlgorithm {
    fn from(gcra: OnUnix) -> Self {
        gcra.0.into()
    }
}

impl Algorithm for OnUnix {
    type State = Tat;

    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn capacity(&self) -> Permits {
        self.0.capacity()
    }
    fn decide(&self, tat: &mut Tat, now: Time, cost: Permits) -> Decision {
        self.0.decide(tat, Self::at(now), cost)
    }
    fn expires_at(&self, tat: &Tat, now: Time) -> Time {
        ORIGIN.time_at(self.0.expires_at(tat, Self::at(now)).as_nanos())
    }
    fn stricter(&self, tat: &mut Tat, other: &Tat) {
        self.0.stricter(tat, other);
    }
    fn keeps_state_of(&self, old: &Self) -> bool {
        self.0.keeps_state_of(&old.0)
    }
    fn bound(&self, window: Nanos) -> u64 {
        self.0.bound(window)
    }
}

/// As many small numbers as large ones.
fn quota_of_any_size(random: &mut Random) -> Quota {
    let bits = [6, 16, BITS][usize::try_from(random.below(3)).unwrap()];
    Quota::new(Permits::new(number(random, bits)), span(random)).unwrap()
}

#[test]
fn gcra_equals_its_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let quota = quota_of_any_size(&mut random);
        let quota = match random.below(2) {
            0 => quota
                .with_burst(Permits::new(number(&mut random, BITS)))
                .unwrap(),
            _ => quota,
        };
        let queue = match random.below(3) {
            0 => Permits::new(number(&mut random, BITS)),
            _ => Permits::ZERO,
        };
        let gcra = Gcra::new(quota, queue).ok()?; // too fast or too long: another
        Some(OnUnix(gcra.with_denials(denials(&mut random))))
    };
    run(&Trial {
        name: "gcra",
        grant: None,
        make,
        refund: |gcra, tat, now, cost| gcra.0.refund(tat, OnUnix::at(now), cost),
        ahead: Nanos::from_secs(900 * 86_400),
    });
}

#[test]
fn windows_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let quota = recipe.quota(&mut random, BITS);
        // One shape: the edge may change under the counts.
        let window = match random.below(2) {
            0 => Window::fixed(quota, recipe.phase),
            _ => Window::two_window(quota, recipe.phase),
        };
        Some(window.ok()?.with_denials(denials(&mut random)))
    };
    run(&Trial {
        name: "window",
        grant: None,
        make,
        refund: Window::refund,
        ahead: Nanos::MAX,
    });
}

#[test]
fn quota_resets_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let reset = QuotaReset::new(recipe.quota(&mut random, BITS)).ok()?;
        Some(reset.with_denials(denials(&mut random)))
    };
    run(&Trial {
        name: "quota-reset",
        grant: None,
        make,
        refund: QuotaReset::refund,
        ahead: Nanos::MAX,
    });
}

#[test]
fn balances_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let bits = [3, 16, BITS][usize::try_from(random.below(3)).unwrap()];
        let max = number(&mut random, bits);
        let start = below(&mut random, Permits::new(max) + Permits::ONE);
        Balance::new(Permits::new(start), Permits::new(max)).ok()
    };
    run(&Trial {
        name: "balance",
        grant: Some(Balance::grant),
        make,
        refund: Balance::refund,
        ahead: Nanos::MAX,
    });
}

#[test]
fn sub_buckets_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let quota = recipe.quota(&mut random, BITS);
        let edge = match random.below(3) {
            0 => Edge::Drop,
            1 => Edge::Full,
            _ => Edge::Weighted,
        };
        let count = u32::try_from(1 + recipe.kind % 60).unwrap();
        let window = SubBuckets::sub_buckets(quota, count, edge, recipe.phase).ok()?;
        Some(window.with_denials(denials(&mut random)))
    };
    run(&Trial {
        name: "sub-buckets",
        grant: None,
        make,
        refund: SubBuckets::refund,
        ahead: Nanos::MAX,
    });
}

#[test]
fn intervals_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let most = Permits::new(number(&mut random, BITS));
        let refill = Permits::new(number(&mut random, BITS));
        match recipe.kind % 2 {
            0 => Interval::on_grid(most, refill, recipe.per, recipe.phase).ok(),
            _ => Interval::from_first(most, refill, recipe.per).ok(),
        }
    };
    run(&Trial {
        name: "interval",
        grant: None,
        make,
        refund: Interval::refund,
        ahead: Nanos::MAX,
    });
}

#[test]
fn logs_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let log = Log::sliding(recipe.quota(&mut random, 7)).ok()?;
        let log = match random.below(3) {
            0 => log
                .with_gap(Nanos::from_nanos(random.below(recipe.per.as_nanos() + 1)))
                .ok()?,
            _ => log,
        };
        Some(log.with_denials(denials(&mut random)))
    };
    run(&Trial {
        name: "log",
        grant: None,
        make,
        refund: Log::refund,
        ahead: Nanos::MAX,
    });
}

/// Hybrids have no numbers that could change under their states.
#[test]
fn hybrids_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = Random::new(recipe.kind);
        Hybrid::quota_linear(recipe.quota(&mut random, BITS)).ok()
    };
    run(&Trial {
        name: "hybrid",
        grant: None,
        make,
        refund: Hybrid::refund,
        ahead: Nanos::MAX,
    });
}

/// Cores without a twin are decided by compare-and-set.
#[test]
fn cores_without_a_twin_are_equal() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        // Above 2^32 permits, limits of one length in bits have units in common.
        let permits = match recipe.kind % 12 {
            0..6 => number(&mut random, 32).min(u64::from(u32::MAX)),
            bits => (1 << (26 + bits)) + random.below(1 << (26 + bits)),
        };
        let quota = Quota::new(Permits::new(permits), recipe.per).unwrap();
        let exponential = Exponential::new(quota).ok()?;
        Some(exponential.with_denials(denials(&mut random)))
    };
    run(&Trial {
        name: "exponential",
        grant: None,
        make,
        refund: Exponential::refund,
        ahead: Nanos::MAX,
    });
}

/// Bans, their strikes and the limit below them are one state, in an exchange.
#[test]
fn bans_are_equal() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let quota = Quota::new(Permits::new(number(&mut random, 3)), recipe.per).unwrap();
        let limit = match recipe.kind % 3 {
            0 => Window::fixed(quota, recipe.phase).ok()?.into(),
            1 => Log::sliding(quota).ok()?.into(),
            _ => QuotaReset::new(quota).ok()?.into(),
        };
        let strikes = Permits::new(number(&mut random, 2));
        let first = Nanos::from_nanos(1 + random.below(recipe.per.as_nanos() * 2));
        let terms = BanTerms {
            strikes: Quota::new(strikes, recipe.per).unwrap(),
            first: first.min(MAX_BAN),
            growth_thousandths: 1_500,
            longest: MAX_BAN,
        };
        Banning::new(limit, terms).ok()
    };
    run(&Trial {
        name: "bans",
        grant: None,
        make,
        refund: |bans, state, now, cost| {
            let _ = Listed::try_refund(bans, state, now, cost);
        },
        ahead: Nanos::MAX,
    });
}
