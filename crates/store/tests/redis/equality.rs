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
//! the twins hold.

mod life;
mod on_unix;
mod recipe;

use std::fmt::Debug;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Balance, BanTerms, Banning, Edge, Exponential, Gcra, GrantId, Granted,
    Hybrid, Interval, IntervalState, KeptValue, Listed, Log, MAX_BAN, Nanos, Origin, Permits,
    Quota, QuotaReset, Refund, StoredForm as _, SubBuckets, Tat, Time, UnixMicros, Window,
};
use ratekeeper_store::{RedisClock, RedisConfig, RedisStore};

use crate::cases::cases;
use crate::conforms::tomorrow;
use crate::server::{Server, every_program};
use life::live;
use on_unix::OnUnix;
use recipe::{BITS, Recipe, below, denials, number, quota_of_any_size};

/// Lives that run at the same time, so that calls share round trips.
const LIVES: usize = 64;
/// Operations of a life.
const LENGTH: u64 = 200;
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
    /// Whether the first limit holds less than the state of the second has used.
    is_cut: fn(&A, &A, &A::State, Time) -> bool,
    /// How far before they become meaningless values are read right.
    ahead: Nanos,
}

type GrantFunction<A> = fn(&A, &mut <A as Algorithm>::State, Permits, GrantId) -> Granted;

impl<A: Algorithm> Trial<A> {
    /// A limit without grants, whose values are read right however old they are.
    fn new(
        name: &'static str,
        make: fn(Recipe) -> Option<A>,
        refund: fn(&A, &mut A::State, Time, Permits),
    ) -> Self {
        Self {
            name,
            grant: None,
            make,
            refund,
            is_cut: |_, _, _, _| false,
            ahead: Nanos::MAX,
        }
    }
}

impl<A: Algorithm> Clone for Trial<A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A: Algorithm> Copy for Trial<A> {}

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
        let lives = cases(4_000_u64, 100_000).div_ceil(LENGTH);
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
    let refund = |gcra: &OnUnix, tat: &mut Tat, now, cost| {
        gcra.0.refund(tat, OnUnix::at(now), cost);
    };
    // A value also keeps the last moment that other numbers promised.
    let is_cut = |new: &OnUnix, old: &OnUnix, tat: &Tat, now| {
        let now = UnixMicros::new(OnUnix::at(now).as_nanos() / 1_000);
        let (mut value, mut bytes) = (Vec::new(), Vec::new());
        old.0.write(tat, now, &mut value);
        let read = new.0.read(&value, now).unwrap_or_default();
        new.0.write(&read, now, &mut bytes);
        let mut kept = KeptValue { bytes, micros: 0 };
        let own = kept.bytes.clone();
        new.0.keep_beyond(&mut kept, &value, now);
        kept.bytes != own
    };
    run(&Trial {
        is_cut,
        ahead: Nanos::from_secs(900 * 86_400),
        ..Trial::new("gcra", make, refund)
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
    run(&Trial::new("window", make, Window::refund));
}

#[test]
fn quota_resets_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = recipe.random();
        let reset = QuotaReset::new(recipe.quota(&mut random, BITS)).ok()?;
        Some(reset.with_denials(denials(&mut random)))
    };
    run(&Trial::new("quota-reset", make, QuotaReset::refund));
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
        grant: Some(Balance::grant),
        ..Trial::new("balance", make, Balance::refund)
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
    run(&Trial::new("sub-buckets", make, SubBuckets::refund));
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
    // A value keeps permits beyond M for other processes, and does not name the refill of its writer.
    let is_cut = |new: &Interval, old: &Interval, state: &IntervalState, now| {
        let (before_refills, mut value) = (UnixMicros::default(), Vec::new());
        old.write(state, before_refills, &mut value);
        let (bytes, micros) = (Vec::new(), 0);
        let mut kept = KeptValue { bytes, micros };
        new.keep_beyond(&mut kept, &value, before_refills);
        let mut carried = *state;
        new.carry(&mut carried, old, now, Nanos::ZERO);
        let read = new.read(&value, before_refills);
        !kept.bytes.is_empty() || read.is_some_and(|read| read != carried)
    };
    run(&Trial {
        is_cut,
        ..Trial::new("interval", make, Interval::refund)
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
    run(&Trial::new("log", make, Log::refund));
}

/// Hybrids have no numbers that could change under their states.
#[test]
fn hybrids_equal_their_twin() {
    let make = |recipe: Recipe| {
        let mut random = Random::new(recipe.kind);
        Hybrid::quota_linear(recipe.quota(&mut random, BITS)).ok()
    };
    run(&Trial::new("hybrid", make, Hybrid::refund));
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
    run(&Trial::new("exponential", make, Exponential::refund));
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
    run(&Trial::new("bans", make, |bans, state, now, cost| {
        let _ = Listed::try_refund(bans, state, now, cost);
    }));
}
