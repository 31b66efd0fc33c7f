//! Expiry: however a value is written, it stays until it carries no information any more, and no
//! longer than a step.
//!
//! ```text
//!   step  |           |           |
//!   debt  ----1----2----------3-->            1 and 2 are paid within one step: 2 keeps the
//!   key   -----------------------------|      expiry that 1 has set, 3 sets it anew
//! ```

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{
    Algorithm as _, AnyAlgorithm, Charge, EXPIRY_STEP_MICROS, Edge, Gcra, Hybrid, Interval, Key,
    KeyBuilder, Limit, Log, Mode, Nanos, Outage, Permits, Quota, QuotaReset, SubBuckets, Time,
    UnixMicros, Window,
};
use ratekeeper_store::{RedisConfig, RedisStore, Store, conformance};
use tokio::runtime::Runtime;

use crate::server::{Server, programs};

const KEYS: usize = 3;
const ROUNDS: u64 = 400;

fn limit(id: u32, quota: &str) -> Limit {
    Limit {
        outage: Outage::Deny,
        ..conformance::limit(id, Gcra::token_bucket(quota.parse().unwrap()).unwrap())
    }
}

/// The moment, the milliseconds for which a key stays, and its value, at once: a script that the
/// system has interrupted between its readings is run again.
fn look(connection: &mut redis::Connection, name: &str) -> Option<(u64, u64, Vec<u8>)> {
    let look = redis::Script::new(
        "local function now()
             local time = redis.call('TIME')
             return time[1] * 1000 + math.floor(time[2] / 1000)
         end
         local value, before = redis.call('GET', KEYS[1]), now()
         local stays = redis.call('PTTL', KEYS[1])
         return {before, stays, now(), value}",
    );
    loop {
        let (before, stays, after, value): (u64, i64, u64, Option<Vec<u8>>) =
            look.key(name).invoke(connection).unwrap();
        if after <= before + 1 {
            return Some((before, u64::try_from(stays).ok()?, value?));
        }
    }
}

/// Whether a value has been moved back: it is negative.
fn is_lowered(value: &[u8]) -> bool {
    value[5] & 0x80 != 0
}

/// When a value becomes meaningless: milliseconds since 1970, rounded up.
fn paid_ms(value: &[u8], now_ms: u64) -> u64 {
    const TURN: u64 = 92_000_000_000_000;
    let mut bytes = [0; 8];
    let sign = if is_lowered(value) { 0xff } else { 0 };
    for (byte, written) in bytes.iter_mut().zip(&value[..6]) {
        *byte = written ^ sign;
    }
    let micros = u64::from_le_bytes(bytes);
    let now = now_ms * 1_000;
    // The one nearest to now of all that it may mean.
    let turn = now / TURN;
    let moments = [turn - 1, turn, turn + 1].map(|turn| turn * TURN + micros);
    let paid = moments.into_iter().min_by_key(|paid| paid.abs_diff(now));
    (paid.unwrap() + 1).div_ceil(1_000)
}

/// A small generator: the same sequence every time.
fn random(state: &mut u64, below: u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % below
}

#[test]
fn a_value_expires_within_one_step_of_the_end_of_its_effect() {
    let runtime = Runtime::new().unwrap();
    for program in programs() {
        let server = Server::start(&program, &[]);
        let stores =
            [(); 2].map(|()| Arc::new(RedisStore::new(RedisConfig::new(server.url())).unwrap()));
        // A permit takes 10 ms, 0.9 s, 9 s: far below a step, a part of it, several.
        let limits = [
            limit(0, "500/5s"),
            limit(1, "100000/1d"),
            limit(2, "10000/1d"),
        ];
        let keys: Vec<_> = (0..KEYS)
            .map(|key| {
                let mut bytes = Vec::new();
                KeyBuilder::new(&mut bytes).part(format!("user-{key}").as_bytes());
                bytes
            })
            .collect();
        let mut connection = server.connect();
        let (mut seed, mut looked, mut kept) = (1, 0_u64, 0_u64);
        let mut before = vec![None; KEYS * limits.len()];
        for _ in 0..ROUNDS {
            let mut next = |below| usize::try_from(random(&mut seed, below)).unwrap();
            let store = &stores[next(2)];
            let act = next(8);
            let (first, of) = (next(KEYS as u64), next(3));
            let cost = Permits::new(next(4) as u64);
            let charge = |key: usize, of: usize| Charge {
                limit: &limits[of],
                key: Key::from_bytes(&keys[key]),
                cost,
                mode: Mode::Enforce,
            };
            runtime.block_on(async {
                let several = [charge(first, of), charge(first, (of + 1) % 3)];
                match act {
                    // Gathered into one call: the second and those after wait for the first.
                    0..=2 => {
                        let asks = [0, 1, 2].map(|key| [charge(key, of)]);
                        let ask = |key: usize| store.decide(&asks[key], Time::ZERO);
                        let (one, two, three) = tokio::join!(ask(0), ask(1), ask(2));
                        drop((one.unwrap(), two.unwrap(), three.unwrap()));
                    }
                    3 | 4 => drop(store.decide(&several[..1], Time::ZERO).await.unwrap()),
                    5 => drop(store.decide(&several, Time::ZERO).await.unwrap()),
                    // A key with a refund is marked for good: only one of the keys.
                    6 => {
                        let given = [charge(KEYS - 1, of)];
                        store.refund(&given, Time::ZERO).await.unwrap();
                    }
                    // Twice the same key: by compare-and-set.
                    _ => {
                        let twice = [charge(first, of), charge(first, of)];
                        drop(store.decide(&twice, Time::ZERO).await.unwrap());
                    }
                }
            });
            for key in 0..KEYS {
                for of in 0..limits.len() {
                    let name = format!("rk:{{user-{key}}}:limit-{of}");
                    let Some((now, stays, value)) = look(&mut connection, &name) else {
                        continue;
                    };
                    let (gone, paid) = (now + stays, paid_ms(&value, now));
                    // The two clocks of a script are a millisecond apart at most.
                    assert!(gone + 1 >= paid, "{name} {value:?}: {gone} < {paid}");
                    if !is_lowered(&value) {
                        let step = EXPIRY_STEP_MICROS / 1_000;
                        assert!(gone <= paid + step + 1, "{name} {value:?}: {gone} > {paid}");
                        let off = (gone + 1) % step;
                        assert!(off <= 2, "{name} {value:?}: {gone} is not on a step");
                        let old = before[key * limits.len() + of].replace((gone, value.clone()));
                        kept += u64::from(
                            old.is_some_and(|(was, old)| was.abs_diff(gone) <= 1 && old != value),
                        );
                    }
                    looked += 1;
                }
            }
        }
        assert!(
            looked > ROUNDS * 5 && kept > ROUNDS / 4,
            "{looked} keys were read, {kept} kept their expiry"
        );
    }
}

/// Limits under different numbers whose states mean the same.
fn pairs(per: &str) -> Vec<[AnyAlgorithm; 2]> {
    let quota = |permits: u32| -> Quota { format!("{permits}/{per}").parse().unwrap() };
    let every = Nanos::from_nanos(quota(1).per().as_nanos() / 4);
    let cut = |edge| SubBuckets::sub_buckets(quota(50), 5, edge, Nanos::ZERO).unwrap();
    let refilled = |refill| Interval::from_first(60_u64, Permits::new(refill), every).unwrap();
    let log = Log::sliding(quota(40)).unwrap();
    let gap = Nanos::from_micros(1);
    vec![
        [
            Window::fixed(quota(90), Nanos::ZERO).unwrap().into(),
            Window::two_window(quota(80), Nanos::ZERO).unwrap().into(),
        ],
        [cut(Edge::Drop).into(), cut(Edge::Full).into()],
        [50, 70].map(|permits| QuotaReset::new(quota(permits)).unwrap().into()),
        [log.into(), log.with_gap(gap).unwrap().into()],
        [refilled(20).into(), refilled(3).into()],
        [(); 2].map(|()| Hybrid::quota_linear(quota(30)).unwrap().into()),
    ]
}

#[test]
fn values_of_other_algorithms_expire_so_too() {
    let runtime = Runtime::new().unwrap();
    for program in programs() {
        let server = Server::start(&program, &[]);
        let mut connection = server.connect();
        let config = || RedisConfig {
            deadline: Duration::from_secs(60),
            ..RedisConfig::new(server.url())
        };
        let stores = [(); 2].map(|()| RedisStore::new(config()).unwrap());
        let pairs: Vec<_> = ["300ms", "5s", "1d"].into_iter().flat_map(pairs).collect();
        let (mut seed, mut before, mut kept) = (1, vec![None; pairs.len()], 0_u64);
        // The latest end so far, under either of the numbers: that expiry may have been kept.
        let mut latest = vec![0; pairs.len()];
        for _ in 0..ROUNDS / 4 {
            for (id, pair) in (0..).zip(&pairs) {
                let mut next = |below| random(&mut seed, below);
                let of = usize::from(next(4) == 0);
                let charge = Charge {
                    limit: &conformance::limit(id, pair[of].clone()),
                    key: Key::from_bytes(b"\x01k"),
                    cost: Permits::new(next(3)),
                    mode: Mode::Enforce,
                };
                runtime.block_on(async {
                    match next(8) {
                        0 => stores[of].refund(&[charge], Time::ZERO).await.unwrap(),
                        1 => drop(stores[of].decide(&[charge; 2], Time::ZERO).await.unwrap()),
                        _ => drop(stores[of].decide(&[charge], Time::ZERO).await.unwrap()),
                    }
                });
                let name = format!("*:limit-{id}~*");
                let names = redis::cmd("KEYS")
                    .arg(name)
                    .query::<Vec<String>>(&mut connection);
                let Some(name) = names.unwrap().pop() else {
                    continue;
                };
                let Some((now, stays, value)) = look(&mut connection, &name) else {
                    continue;
                };
                let ends = pair.each_ref().map(|limit| {
                    let now = UnixMicros::new(now * 1_000);
                    let state = limit.read(&value, now).unwrap();
                    limit
                        .expires_at(&state, now.time())
                        .as_nanos()
                        .div_ceil(1_000_000)
                });
                let (gone, step) = (now + stays, EXPIRY_STEP_MICROS / 1_000);
                let old = before[id as usize].replace((gone, value.clone()));
                let is_written = old.as_ref().is_none_or(|(_, old)| *old != value);
                let (first, last) = (ends[0].min(ends[1]), &mut latest[id as usize]);
                *last = ends[0].max(ends[1]).max(*last);
                let lasts = if is_written { ends[of] } else { first };
                assert!(gone + 1 >= lasts, "{charge:?} {value:?}: {gone} < {ends:?}");
                assert!(
                    gone <= *last + step + 1,
                    "{charge:?} {value:?}: {gone} > {ends:?}"
                );
                assert!((gone + 1) % step <= 2, "{gone} is not on a step");
                let keeps = old.is_some_and(|(was, _)| was.abs_diff(gone) <= 1);
                kept += u64::from(is_written && keeps);
            }
        }
        assert!(kept > ROUNDS, "{kept} values kept their expiry");
    }
}
