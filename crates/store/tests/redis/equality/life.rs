//! Life: random operations on one key of one limit, in the store and in the core.

use std::fmt::Debug;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    Algorithm, AnyAlgorithm, Charge, Decision, Gcra, GrantId, Key, Limit, Mode, Nanos, Permits,
    Time,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{RedisStore, Store as _};

use super::recipe::{Recipe, below};
use super::{LENGTH, Trial};

/// Values of GCRA are read correctly for this long after they have become meaningless.
const IDLE: Nanos = Nanos::from_secs(90 * 86_400);
/// A few years: values are dated modulo 2.9.
const END: Time = Time::from_nanos(5 * YEAR.as_nanos());
const YEAR: Nanos = Nanos::from_secs(365 * 86_400);

/// One key of one limit, for [`LENGTH`] operations.
pub(super) async fn live<A>(trial: &Trial<A>, store: &RedisStore, seed: u64)
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
        now = moment(&algorithm, &state, now, trial.ahead, &mut random);
        if random.below(50) == 0
            && let Some(mut new) = limit_of(trial, recipe, &mut random)
        {
            new.succeed(&algorithm);
            // Values keep for other processes what a bucket cuts: see `together`.
            if (trial.is_cut)(&new, &algorithm, &state, now) {
                continue;
            }
            new.carry(&mut state, &algorithm, now, Nanos::ZERO);
            algorithm = new;
            limit.version += 1;
            limit.algorithm = algorithm.clone().into();
        }
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
pub(super) fn moment<A: Algorithm>(
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

pub(super) fn cost<A: Algorithm>(
    algorithm: &A,
    state: &A::State,
    now: Time,
    random: &mut Random,
) -> Permits {
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

/// A limit, made of `recipe` with another seed.
fn limit_of<A: Algorithm>(trial: &Trial<A>, recipe: Recipe, random: &mut Random) -> Option<A> {
    let seeds = (0..100).map(|_| random.next());
    let mut limits = seeds.filter_map(|seed| (trial.make)(Recipe { seed, ..recipe }));
    limits.next()
}

fn limit_named(name: &str, id: u64, algorithm: impl Into<AnyAlgorithm>) -> Limit {
    Limit {
        name: name.into(),
        ..limit(u32::try_from(id).unwrap(), algorithm)
    }
}
