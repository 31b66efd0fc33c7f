//! Gain of keys that are pushed out: at most the forgiven part, each time.

use std::collections::HashMap;

use ratekeeper_core::{Algorithm as _, Key, Limit, Nanos, Time};
use ratekeeper_store::MemoryStore;

use super::{
    SMALL, admits, algorithms, charge, flood, forgiven, lends, limit, pointwise, seconds, store,
    within_budget,
};

/// Permits admitted for a key, here and in an endless store, and how often it was pushed out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub(crate) here: u64,
    there: u64,
    pub(crate) pushed_out: u64,
    /// Until then the key is in debt here, as far as its last answer says.
    in_debt_until: Time,
}

impl Account {
    /// Notes whether a key that should be in debt is not known any more.
    pub(crate) fn note(
        &mut self,
        store: &MemoryStore,
        limit: &Limit,
        key: &[u8],
        now: Time,
    ) -> bool {
        let key = Key::from_bytes(key);
        let gone = now < self.in_debt_until && store.key(limit, key, now).is_none();
        self.pushed_out += u64::from(gone);
        self.in_debt_until = self.in_debt_until.min(if gone { now } else { Time::MAX });
        gone
    }

    pub(crate) fn settle(&mut self, store: &MemoryStore, limit: &Limit, key: &[u8], now: Time) {
        if let Some(standing) = store.key(limit, Key::from_bytes(key), now) {
            self.in_debt_until = now + standing.reset_after;
        }
    }
}

/// After every request, for every key: admitted no more often than by a store that forgets
/// nothing, plus the forgiven part for each time that it was pushed out.
#[test]
fn a_flood_gains_no_key_more_than_the_forgiven_part() {
    for algorithm in algorithms("5/60s") {
        if !pointwise(&algorithm) {
            continue;
        }
        let lends = lends(&algorithm);
        let limit = limit(0, algorithm);
        let forgiven = forgiven(&limit);
        let (bounded, endless) = (store(SMALL), store(1 << 30));
        let mut accounts: HashMap<Vec<u8>, Account> = HashMap::new();
        flood(|key, now| {
            let account = accounts.entry(key.clone()).or_default();
            account.note(&bounded, &limit, &key, now);
            account.here += u64::from(admits(&bounded, &limit, &key, now));
            account.there += u64::from(admits(&endless, &limit, &key, now));
            account.settle(&bounded, &limit, &key, now);
            let most = account.there + forgiven * account.pushed_out;
            assert!(account.here <= most, "{limit:?} at {now:?}: {account:?}");
            if now.as_nanos().is_multiple_of(500_000_000) {
                within_budget(&bounded.usage());
            }
        });
        let evicted = bounded.usage().limits[0].evicted;
        assert_eq!(evicted.budget == 0, lends, "{limit:?} {evicted:?}");
        assert_eq!(endless.usage().limits[0].evicted.budget, 0);
    }
}

/// A window that opens with the first request of a key: a request denied for want of room may
/// open the window later, and then it can serve better. The limit's bound on any span holds all
/// the same, but for the forgiven part; as it does for every algorithm.
#[test]
fn a_flood_gains_no_key_more_than_the_bound_and_the_forgiven_part() {
    const SPAN: Nanos = Nanos::from_secs(60);
    for algorithm in algorithms("5/60s") {
        let limit = limit(0, algorithm);
        let forgiven = usize::try_from(forgiven(&limit)).unwrap();
        let bound = usize::try_from(limit.algorithm.bound(SPAN)).unwrap();
        let bounded = store(SMALL);
        let mut seen: HashMap<Vec<u8>, (Account, Vec<Time>, Vec<Time>)> = HashMap::new();
        flood(|key, now| {
            let (account, admitted, pushed_out) = seen.entry(key.clone()).or_default();
            if account.note(&bounded, &limit, &key, now) {
                pushed_out.push(now);
            }
            if admits(&bounded, &limit, &key, now) {
                admitted.push(now);
            }
            account.settle(&bounded, &limit, &key, now);
            let lately = |times: &[Time]| {
                let old = times.iter().filter(|time| now.since(**time) >= SPAN);
                times.len() - old.count()
            };
            let most = bound + forgiven * lately(pushed_out);
            assert!(
                lately(admitted) <= most,
                "{limit:?} at {now:?} {admitted:?}"
            );
        });
    }
}

/// Conversion to states that take more room than there is: those that do not fit are pushed out.
#[test]
fn conversion_keeps_the_budget_and_every_debt() {
    let quota = "4/1h";
    for from in algorithms(quota) {
        for to in algorithms(quota) {
            let (before, after) = (limit(0, from.clone()), limit(0, to));
            let after = Limit {
                version: 2,
                ..after
            };
            let store = store(SMALL);
            let keys: Vec<[u8; 4]> = (0..5_000_u32).map(u32::to_le_bytes).collect();
            let mut accounts = vec![Account::default(); keys.len()];
            for limit in [&before, &after] {
                for _ in 0..3 {
                    for (key, account) in keys.iter().zip(&mut accounts) {
                        account.note(&store, limit, key, seconds(10));
                        account.here += u64::from(admits(&store, limit, key, seconds(10)));
                        account.settle(&store, limit, key, seconds(10));
                    }
                }
                within_budget(&store.usage());
            }
            for account in accounts {
                let most = 4 + account.pushed_out * 2;
                assert!(account.here <= most, "{before:?} {after:?} {account:?}");
            }
        }
    }
}

/// A key that spent its limit outlasts a flood, ten times the capacity, of keys that asked once:
/// those go first.
#[test]
fn a_drained_key_outlasts_a_flood_of_keys_that_asked_once() {
    for algorithm in algorithms("5/1h") {
        let (store, limit) = (store(SMALL), limit(0, algorithm));
        let abusers: Vec<[u8; 2]> = (0..50_u16).map(u16::to_le_bytes).collect();
        for abuser in &abusers {
            (0..5).for_each(|_| assert!(admits(&store, &limit, abuser, seconds(1))));
        }
        for number in 0..100_000_u64 {
            let _ = admits(&store, &limit, &number.to_le_bytes(), seconds(1));
            if number % 10_000 == 0 {
                for abuser in &abusers {
                    assert!(!admits(&store, &limit, abuser, seconds(1)), "{limit:?}");
                }
            }
        }
    }
}

/// Pushed out by keys that owe more, a key comes back with its debt less the forgiven part.
#[test]
fn evicted_keys_return_in_debt() {
    for algorithm in algorithms("20/20h") {
        if lends(&algorithm) {
            continue;
        }
        let (store, limit) = (store(SMALL), limit(0, algorithm));
        let ask = |key: &[u8], cost| store.decide_now(&[charge(&limit, key, cost)], seconds(1));
        // Enough for every shard: with 200 keys, one hash seed in 250 pushed none of them out.
        let abusers: Vec<[u8; 2]> = (0..1_000_u16).map(u16::to_le_bytes).collect();
        for abuser in &abusers {
            assert!(ask(abuser, 10).admitted);
        }
        for number in 0..50_000_u32 {
            let _ = ask(&number.to_le_bytes(), 15);
        }
        let gone = |abuser: &&[u8; 2]| {
            let key = Key::from_bytes(&abuser[..]);
            store.key(&limit, key, seconds(1)).is_none()
        };
        assert!(abusers.iter().filter(gone).count() > 0, "{limit:?}");
        for abuser in abusers.iter().filter(gone) {
            assert!(
                !ask(abuser, 13).admitted,
                "the key returns with 10 of 20 used, less 2 forgiven: {limit:?}"
            );
        }
    }
}
