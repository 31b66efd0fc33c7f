//! Newcomers in a full store: the first requests of each are admitted, whatever crowd was there
//! before.

use ratekeeper_core::{
    AnyAlgorithm, Concurrency, Key, LeaseId, Lend, Limit, Nanos, Permits, Time, Verdict, Window,
};
use ratekeeper_store::{Decide, Hold, Release};

use super::{
    SMALL, admits, algorithms, bucket, charge, forgiven, lends, limit, store, within_budget,
};

const GUIDE: &str = include_str!("../../../../../docs/guide/deploy.md");
const HOUR: u64 = 3_600_000_000_000;

/// Newcomers one after the other, at a rate that would keep `load` hundredths of the store's
/// capacity in debt at once in an endless one; one and a half lives of such a key long.
struct Crowd<'a> {
    limit: &'a Limit,
    /// Requests of each newcomer, at once.
    requests: u64,
    cost: u64,
    /// How long a key with these requests owes anything.
    life: u64,
    load: u64,
}

/// Results of the newcomers.
#[derive(Debug, Default, PartialEq)]
struct Met {
    newcomers: u64,
    /// Newcomers with a refusal among the permits that a key which comes back is forgiven.
    refused: u64,
    /// Requests.
    admitted: u64,
}

impl Crowd<'_> {
    fn play(&self) -> Met {
        let store = store(SMALL);
        let alive = most_keys(self.limit) * self.load / 100;
        let forgiven = forgiven(self.limit);
        let mut met = Met::default();
        for number in 0..alive * 3 / 2 {
            let now = Time::from_nanos(number * self.life / alive);
            let key = number.to_le_bytes();
            met.newcomers += 1;
            let mut refused = false;
            for request in 1..=self.requests {
                let charge = charge(self.limit, &key, self.cost);
                let admitted = store.decide_now(&[charge], now).admitted;
                met.admitted += u64::from(admitted);
                refused |= !admitted && request * self.cost <= forgiven;
            }
            met.refused += u64::from(refused);
        }
        within_budget(&store.usage());
        met
    }
}

/// Maximum number of keys that a store of `SMALL` bytes ever holds for a limit.
fn most_keys(limit: &Limit) -> u64 {
    let store = store(SMALL);
    let mut most = 0;
    for number in 0..40_000_u64 {
        let _ = admits(&store, limit, &number.to_le_bytes(), Time::ZERO);
        if number % 1_000 == 0 {
            most = most.max(store.usage().limits[0].keys);
        }
    }
    most as u64
}

/// From half to a hundred times the capacity.
#[test]
fn clients_that_ask_once_do_not_lock_others_out() {
    for (quota, cost, life) in [
        ("5/1h", 1, HOUR / 5),
        ("1/1h", 1, HOUR),
        ("1000/1h", 50, HOUR / 20),
    ] {
        let limit = limit(0, bucket(quota));
        for load in [50, 77, 93, 100, 200, 1_000, 10_000] {
            if load > 1_000 && cost > 1 {
                continue; // takes long, and shows nothing new
            }
            let (limit, requests) = (&limit, 1);
            let crowd = Crowd {
                limit,
                requests,
                cost,
                life,
                load,
            };
            let met = crowd.play();
            assert_eq!(
                met.refused, 0,
                "{quota} at {load} % of the capacity: {met:?}"
            );
            assert_eq!(met.admitted, met.newcomers);
        }
    }
}

/// Crowds that spend all they get leave newcomers the forgiven part, and more as long as the
/// crowd is not many times the capacity.
#[test]
fn crowds_that_drain_their_keys_leave_newcomers_the_forgiven_part() {
    let limit = limit(0, bucket("5/1h"));
    let loads = row("| keys, of those that fit |").into_iter();
    let loads = loads.map(|load| load.strip_suffix(" %").unwrap().replace(',', ""));
    let permits = row("| admitted of five, at least |").into_iter();
    // In hundredths: the load of the store, and permits of a newcomer.
    let permits = permits.map(|permits| permits.replace('.', "").parse::<u64>().unwrap() * 10);
    let crowds: Vec<(u64, u64)> = loads
        .map(|load| load.parse().unwrap())
        .zip(permits)
        .collect();
    assert_eq!(crowds.len(), 5);
    for (load, least) in crowds {
        let crowd = Crowd {
            limit: &limit,
            requests: 5,
            cost: 1,
            life: HOUR,
            load,
        };
        let met = crowd.play();
        let each = met.admitted * 100 / met.newcomers;
        assert_eq!(met.refused, 0, "{load} % of the capacity: {met:?}");
        // The places of keys follow a hash that chance seeds: each row leaves room of five times the
        // spread of its result, which is 0.01 permits.
        let shown = least..=least + 20;
        assert!(
            shown.contains(&each),
            "{load} % of the capacity: {each}, {met:?}"
        );
    }
}

/// The part that the other tests demand, for the limits of the guide.
#[test]
fn the_forgiven_parts_are_those_of_the_guide() {
    let (limits, parts) = (row("| limit |"), row("| `q` |"));
    assert_eq!((limits.len(), parts.len()), (5, 5));
    for (limits, part) in limits.into_iter().zip(parts) {
        for quota in limits.split(" to ") {
            let limit = limit(0, bucket(&format!("{}/1h", quota.replace(',', ""))));
            assert_eq!(forgiven(&limit).to_string(), part, "{quota}");
        }
    }
}

/// Returns the cells of a row of the guide, but for the first.
fn row(start: &str) -> Vec<&'static str> {
    let line = GUIDE.lines().find(|line| line.starts_with(start));
    let cells = line.unwrap().trim_matches('|').split('|');
    cells.skip(1).map(str::trim).collect()
}

/// As above, for every algorithm.
#[test]
fn every_algorithm_serves_newcomers() {
    for algorithm in algorithms("5/1h") {
        if lends(&algorithm) {
            continue;
        }
        let limit = limit(0, algorithm);
        for requests in [1, 3, 5] {
            let crowd = Crowd {
                limit: &limit,
                requests,
                cost: 1,
                life: HOUR,
                load: 300,
            };
            let met = crowd.play();
            assert_eq!(met.refused, 0, "{limit:?}, {requests} each: {met:?}");
        }
    }
}

/// Keys of one size that fill the store leave room to those of another: addresses of two kinds
/// in one limit.
#[test]
fn keys_of_another_size_find_room() {
    for (many, few) in [(24, 4), (4, 24), (12, 24)] {
        let (store, limit) = (store(SMALL), limit(0, bucket("5/1h")));
        let key = |number: u32, bytes: usize| {
            let mut key = vec![0; bytes];
            key[..4].copy_from_slice(&number.to_le_bytes());
            key
        };
        for number in 0..50_000 {
            assert!(admits(&store, &limit, &key(number, many), Time::ZERO));
        }
        for number in 0..1_000 {
            let admitted = admits(&store, &limit, &key(number, few), Time::ZERO);
            assert!(
                admitted,
                "key {number} of {few} bytes, after keys of {many} bytes"
            );
        }
        within_budget(&store.usage());
    }
}

/// A limit that takes too much gives up a third of a table, no more; also if all its keys owe the
/// same until the same moment.
#[test]
fn a_limit_that_takes_too_much_memory_gives_up_a_third() {
    let window = Window::fixed("5/1h".parse().unwrap(), Nanos::ZERO).unwrap();
    for algorithm in [AnyAlgorithm::from(window), bucket("5/1h").into()] {
        let (store, large) = (store(1 << 20), limit(0, algorithm));
        for number in 0..100_000_u64 {
            let _ = admits(&store, &large, &number.to_le_bytes(), Time::ZERO);
        }
        let keys = || store.usage().limits[0].keys;
        let (small, before) = (limit(1, bucket("5/1h")), keys());
        for number in 0..1_000_u64 {
            let (before, of_a_shard) = (keys(), keys() / 64);
            assert!(admits(&store, &small, &number.to_le_bytes(), Time::ZERO));
            let given_up = before - keys();
            assert!(given_up < of_a_shard * 2 / 3, "{large:?}: {given_up}");
        }
        assert!(keys() < before, "{large:?}");
    }
}

/// Permits on loan are never forgotten for a newcomer: that is refused, and the loans can be
/// given back.
#[test]
fn permits_on_loan_are_never_evicted() {
    let lending = Concurrency::new(Permits::new(2), Nanos::from_secs(60)).unwrap();
    let (store, limit) = (store(SMALL), limit(0, lending));
    let mut lent = Vec::new();
    let mut refused = 0;
    for number in 0..20_000_u64 {
        let key = number.to_le_bytes();
        let charges = [charge(&limit, &key, 1)];
        let lease = LeaseId::from_bytes(u128::from(number).to_le_bytes());
        let decisions = store.settle_now(Decide(Lend::To(lease)), &charges, Time::ZERO);
        if decisions.admitted {
            lent.push((key, lease));
        } else {
            let retry_after = Nanos::SECOND;
            assert_eq!(decisions.each[0].verdict, Verdict::Deny { retry_after });
            refused += 1;
        }
    }
    within_budget(&store.usage());
    assert!(refused > 0 && lent.len() > 200, "{refused} {}", lent.len());
    assert_eq!(store.usage().limits[0].evicted.budget, 0);
    for (key, lease) in &lent {
        let hold = Hold {
            limit: &limit,
            key: Key::from_bytes(key),
            lease: *lease,
        };
        assert_eq!(
            store.settle_now(Release, &[hold], Time::ZERO)[0],
            Permits::ONE
        );
    }
    assert!(admits(&store, &limit, b"new", Time::ZERO));
}
