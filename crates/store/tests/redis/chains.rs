//! Chains: random requests with alternatives, conditions and headroom, in memory and in Redis.
//!
//! ```text
//!   random request --> MemoryStore --> decisions     the invariants of chains hold
//!          |                              ==
//!          +---------> RedisStore  --> decisions     on one server, and on a cluster
//! ```

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ratekeeper_core::laws::Random;
use ratekeeper_core::{
    AnyAlgorithm, Charge, Gcra, Key, Limit, Log, Mode, Nanos, Permits, Time, Window,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{
    Decisions, MemoryConfig, MemoryStore, RedisClock, RedisConfig, RedisServers, RedisStore, Store,
};

use crate::cases::cases;
use crate::conforms::tomorrow;
use crate::server::{Cluster, Server, every_program};

/// Requests until all keys are new.
const LIFE: u64 = 100;

fn limits() -> Vec<Limit> {
    let quota = |text: &str| text.parse().unwrap();
    let algorithms: [AnyAlgorithm; 5] = [
        Gcra::token_bucket(quota("4/1s")).unwrap().into(),
        Window::fixed(quota("5/2s"), Nanos::ZERO).unwrap().into(),
        Gcra::token_bucket(quota("10/10s")).unwrap().into(),
        Log::sliding(quota("3/1s")).unwrap().into(),
        Window::fixed(quota("1/2s"), Nanos::ZERO).unwrap().into(),
    ];
    (0..)
        .zip(algorithms)
        .map(|(id, algorithm)| limit(id, algorithm))
        .collect()
}

/// Whether a request may name a key twice. A chain over several nodes is looked at as if all of its
/// charges were made, so it may deny the second charge of a key where memory allows it.
#[derive(Clone, Copy, PartialEq)]
enum Keys {
    Any,
    Distinct,
}

/// A charge: limit, key, cost, mode.
type Asked = (usize, String, u64, Mode);

fn request(random: &mut Random, life: u64, keys: Keys) -> Vec<Asked> {
    let count = 1 + random.below(6);
    let charge = |at| {
        let limit = usize::try_from(random.below(4)).unwrap();
        let key = format!("{life}-{}", random.below(2));
        let cost =
            u64::try_from([1, 1, 1, 2, 0, 6][usize::try_from(random.below(6)).unwrap()]).unwrap();
        let mode = match random.below(8) {
            0 => Mode::Shadow,
            1..4 => Mode::Enforce,
            _ if at == 0 => Mode::Enforce,
            _ => Mode::Otherwise,
        };
        (limit, key, cost, mode)
    };
    let mut asked: Vec<Asked> = (0..count).map(charge).collect();
    if keys == Keys::Distinct {
        let mut known = HashSet::new();
        asked.retain(|(limit, key, ..)| known.insert((*limit, key.clone())));
    }
    // Some charges of no chain have a condition, or headroom.
    for at in (0..asked.len()).rev() {
        let is_chained = asked
            .get(at + 1)
            .is_some_and(|next| next.3 == Mode::Otherwise);
        if asked[at].3 == Mode::Otherwise || is_chained {
            continue;
        }
        match random.below(6) {
            0 | 1 => {
                // Both keys have one slot: limit 4 is of conditions alone.
                let key = asked[at].1.clone();
                let is_known = asked
                    .iter()
                    .any(|(limit, it, ..)| *limit == 4 && *it == key);
                if keys == Keys::Any || !is_known {
                    asked.insert(at, (4, key, 1, Mode::Once));
                }
            }
            2 => {
                let (limit, key, ..) = asked[at].clone();
                asked.insert(at, (limit, key, 2, Mode::Headroom));
            }
            _ => {}
        }
    }
    asked
}

/// Checks what holds for every answer, and returns the permits that were charged by limit and key.
fn charged(asked: &[Asked], decisions: &Decisions) -> HashMap<(usize, String), u64> {
    let mode = |at: usize| asked[at].3;
    let allows = |at: usize| decisions.each[at].verdict.allows();
    let mut admitted = true;
    let mut sums = HashMap::new();
    for head in (0..asked.len()).filter(|&at| mode(at) != Mode::Otherwise) {
        let rest = (head + 1..asked.len()).take_while(|&at| mode(at) == Mode::Otherwise);
        let chain: Vec<usize> = std::iter::once(head).chain(rest).collect();
        let charged_at = chain.iter().find(|&&at| allows(at));
        let is_excused = head > 0 && mode(head - 1) == Mode::Once && !allows(head - 1);
        let is_headroom = mode(head) == Mode::Headroom;
        if is_excused || is_headroom {
            assert!(allows(head) && !decisions.asks(head, mode), "{asked:?}");
            continue;
        }
        for &at in &chain {
            let asks = charged_at.is_none_or(|&charged_at| at <= charged_at);
            assert_eq!(decisions.asks(at, mode), asks, "{asked:?} {decisions:?}");
        }
        if mode(head) == Mode::Once {
            let makes = allows(head) && allows(head + 1);
            assert_eq!(
                decisions.makes(head, mode),
                makes,
                "{asked:?} {decisions:?}"
            );
            *sums.entry((4, asked[head].1.clone())).or_insert(0) += u64::from(makes);
            continue;
        }
        assert_eq!(
            decisions.covered_by(head, mode),
            charged_at.copied().filter(|&charged_at| charged_at != head)
        );
        admitted &= charged_at.is_some() || mode(head) == Mode::Shadow;
        if let Some(&charged_at) = charged_at {
            let (limit, key, cost, _) = &asked[charged_at];
            *sums.entry((*limit, key.clone())).or_insert(0) += cost;
        }
    }
    assert_eq!(decisions.admitted, admitted, "{asked:?} {decisions:?}");
    if !admitted {
        sums.clear();
    }
    sums
}

/// Asks the same of a store in memory and of Redis, whose clock has another zero.
async fn compare(redis: &RedisStore, keys: Keys, requests: u64) {
    let limits = limits();
    let memory = MemoryStore::new(MemoryConfig::default());
    let mut random = Random::new(0x00c4_a115);
    let mut now = Time::ZERO + Nanos::from_secs(1_000);
    let mut zero = None;
    let mut on_clock_of = |here: &Decisions, mut there: Decisions| {
        let zero = *zero.get_or_insert(there.made.since(here.made));
        there.made = Time::from_nanos(there.made.as_nanos() - zero.as_nanos());
        there
    };
    let (mut covered, mut refused, mut excused, mut shed) = (0, 0, 0, 0);
    for number in 0..requests {
        // Whole microseconds, as clocks of servers are. Not back: memory and Redis forget paid debts
        // at different times.
        now = now + Nanos::from_micros(random.below(400_000));
        let asked = request(&mut random, number / LIFE, keys);
        let charges = asked.iter().map(|(limit, key, cost, mode)| Charge {
            limit: &limits[*limit],
            key: Key::from_bytes(key.as_bytes()),
            cost: Permits::new(*cost),
            mode: *mode,
        });
        let charges: Vec<_> = charges.collect();
        let standing = |charge: &Charge<'_>| {
            let free = Charge {
                cost: Permits::ZERO,
                mode: Mode::Shadow,
                ..*charge
            };
            memory.settle_now(ratekeeper_store::Look, &[free], now).each[0].remaining
        };
        let before: Vec<_> = charges.iter().map(standing).collect();
        let here = memory.decide_now(&charges, now);
        let sums = charged(&asked, &here);
        for (at, (limit, key, ..)) in asked.iter().enumerate() {
            let sum = sums
                .get(&(*limit, key.clone()))
                .copied()
                .unwrap_or_default();
            let taken = before[at] - standing(&charges[at]);
            assert_eq!(
                taken,
                Permits::new(sum),
                "request {number}: {asked:?} {here:?}"
            );
        }
        covered +=
            u64::from((0..asked.len()).any(|at| here.covered_by(at, |at| asked[at].3).is_some()));
        refused += u64::from(!here.admitted);
        let denies = |at: usize| !here.each[at].verdict.allows();
        let before = |at: usize| at.checked_sub(1).map(|at| asked[at].3);
        let count = |wanted: &dyn Fn(usize) -> bool| {
            u64::try_from((0..asked.len()).filter(|at| wanted(*at)).count()).unwrap()
        };
        excused += count(&|at| asked[at].3 == Mode::Once && denies(at));
        shed += count(&|at| before(at) == Some(Mode::Headroom) && denies(at));
        let there = on_clock_of(&here, redis.decide(&charges, now).await.unwrap());
        assert_eq!(here, there, "request {number} at {now:?}: {asked:?}");
        if number.is_multiple_of(5) {
            let here = memory.settle_now(ratekeeper_store::Look, &charges, now);
            let there = on_clock_of(&here, redis.look(&charges, now).await.unwrap());
            assert_eq!(here, there, "look {number} at {now:?}: {asked:?}");
        }
    }
    let counts = [covered, refused, excused, shed];
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    println!(
        "{requests} requests equal: {covered} with an alternative charged, {refused} refused, \
         {excused} excused, {shed} without headroom"
    );
}

fn run(servers: RedisServers, keys: Keys, requests: u64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let _inside = runtime.enter();
    let store = RedisStore::new(RedisConfig {
        servers,
        origin: tomorrow(),
        clock: RedisClock::Caller,
        deadline: Duration::from_secs(60),
        ..RedisConfig::new("redis://unused")
    });
    runtime.block_on(compare(&store.unwrap(), keys, requests));
}

#[test]
fn chains_are_equal_in_memory_and_in_redis() {
    for program in every_program() {
        let server = Server::start(&program, &[]);
        run(
            RedisServers::One(server.url()),
            Keys::Any,
            cases(4_000, 20_000),
        );
    }
}

/// Where the charges of a chain lie on different nodes.
#[test]
fn chains_are_equal_in_memory_and_on_a_cluster() {
    for program in every_program() {
        let cluster = Cluster::start(&program);
        run(
            RedisServers::Cluster(cluster.urls()),
            Keys::Distinct,
            cases(1_000, 3_000), // a chain takes several calls
        );
    }
}
