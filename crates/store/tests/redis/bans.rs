//! Bans are listed by every process that shares a store, on every server and in a cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use ratekeeper_core::{BanTerms, Banning, Charge, Gcra, Key, KeyBuilder, Limit, Nanos, Time};
use ratekeeper_store::{BanCursor, RedisConfig, RedisServers, RedisStore, Store, conformance};
use tokio::runtime::Runtime;

use crate::server::{Cluster, Server, every_program, programs};

/// Keys that are banned, and keys that are only counted.
const BANNED: usize = 300;
const COUNTED: usize = 900;
const HOUR: Nanos = Nanos::from_secs(3_600);

fn limit(id: u32, name: &str) -> Limit {
    let terms = BanTerms {
        strikes: "1/24h".parse().unwrap(),
        first: HOUR,
        growth_thousandths: 1_000,
        longest: HOUR,
    };
    let one = Gcra::token_bucket("1/10h".parse().unwrap()).unwrap();
    Limit {
        name: name.into(),
        ..conformance::limit(id, Banning::new(one.into(), terms).unwrap())
    }
}

fn key_of(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut key = KeyBuilder::new(&mut bytes);
    for part in parts {
        key.part(part.as_bytes());
    }
    bytes
}

fn charge<'a>(limit: &'a Limit, key: &'a [u8]) -> Charge<'a> {
    conformance::charge(limit, key, 1)
}

/// Returns all banned keys, and the number of pages.
async fn listed(store: &RedisStore, limits: &[&Limit], top: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut keys, mut pages, mut from) = (Vec::new(), 0, None);
    loop {
        let page = store.bans(limits, from.as_ref(), top, Time::ZERO).await;
        let page = page.unwrap();
        pages += 1;
        for ban in page.bans {
            let ends = ban.entry.decision.verdict.retry_after().unwrap();
            assert!(ends > Nanos::from_secs(3_000) && ends <= HOUR, "{ends}");
            assert!(!ban.is_hashed);
            keys.push(ban.entry.key);
        }
        let Some(next) = page.next else {
            return (keys, pages);
        };
        let next: BanCursor = next.to_string().parse().unwrap();
        from = Some(next);
    }
}

/// One process bans, by refusals and by hand; another, which has never met a key, lists.
fn check(servers: &RedisServers) {
    let process = || {
        let config = RedisConfig {
            servers: servers.clone(),
            prefix: "r[k]*".into(),
            deadline: Duration::from_secs(60),
            ..RedisConfig::new("")
        };
        RedisStore::new(config).unwrap()
    };
    let (first, second) = (process(), process());
    let login = limit(0, "login");
    let (pro, other) = (limit(1, "login=pro"), limit(2, "login-page"));
    let limits = [&login, &pro];
    Runtime::new().unwrap().block_on(async {
        let mut expected = BTreeSet::new();
        for number in 0..BANNED + COUNTED {
            let user = format!("user:{number}");
            let key = key_of(&[&user, "/login"]);
            let limit = limits[number % 2];
            let asked = if number < BANNED { 2 } else { 1 };
            for _ in 0..asked {
                let _ = first
                    .decide(&[charge(limit, &key)], Time::ZERO)
                    .await
                    .unwrap();
            }
            if number < BANNED {
                expected.insert(key);
            }
        }
        let by_hand = key_of(&["2001:db8::1", ""]);
        let lifted = key_of(&["user:0", "/login"]);
        for (limit, key, span) in [
            (&login, &by_hand, HOUR),
            (&other, &by_hand, HOUR),
            (&login, &lifted, Nanos::ZERO),
        ] {
            let charges = [charge(limit, key)];
            let _ = first.ban(&charges, span, Time::ZERO).await.unwrap();
        }
        expected.insert(by_hand);
        expected.remove(&lifted);
        for (top, most_pages) in [(usize::MAX, 3), (1, BANNED + COUNTED)] {
            let (keys, pages) = listed(&second, &limits, top).await;
            let found: BTreeSet<_> = keys.into_iter().collect();
            assert_eq!(found, expected, "top {top}");
            assert!(pages <= most_pages, "{pages} pages of {top}");
        }
        let (of_other, _) = listed(&second, &[&other], usize::MAX).await;
        assert_eq!(of_other.len(), 1);
        copied_by_hand(&first, &second).await;
    });
}

/// The table of the keys set by hand is copied by each process that does not know it, and replaced
/// by one that does.
async fn copied_by_hand(first: &RedisStore, second: &RedisStore) {
    let table = |version: u64| [&version.to_le_bytes()[..], b"rows\0\xff"].concat();
    assert_eq!(second.by_hand(0).await.unwrap(), None, "there is none");
    assert!(first.set_by_hand(0, table(7), HOUR).await.unwrap());
    let late = second.set_by_hand(0, table(8), HOUR).await.unwrap();
    assert!(!late, "the other process was faster");
    assert_eq!(second.by_hand(0).await.unwrap(), Some(table(7)));
    assert_eq!(second.by_hand(7).await.unwrap(), None, "it is known");
    let moment = Nanos::from_millis(1);
    assert!(second.set_by_hand(7, table(9), moment).await.unwrap());
    while first.by_hand(9).await.unwrap() != Some(Vec::new()) {} // until the server drops it
}

#[test]
fn a_process_lists_the_bans_of_others() {
    for program in every_program() {
        let server = Server::start(&program, &[]);
        check(&RedisServers::One(server.url()));
    }
    for program in programs() {
        let cluster = Cluster::start(&program);
        check(&RedisServers::Cluster(cluster.urls()));
    }
}

/// The server has the hash of a long value only, and says so.
#[test]
fn a_long_value_is_listed_by_its_hash() {
    for program in programs() {
        let server = Server::start(&program, &[]);
        let store = RedisStore::new(RedisConfig::new(server.url())).unwrap();
        let login = limit(0, "login");
        let long = key_of(&[&"x".repeat(100), "/login"]);
        Runtime::new().unwrap().block_on(async {
            let charges = [charge(&login, &long)];
            let _ = store.ban(&charges, HOUR, Time::ZERO).await.unwrap();
            let page = store.bans(&[&login], None, 10, Time::ZERO).await.unwrap();
            let [ban] = page.bans.as_slice() else {
                panic!("{page:?}");
            };
            let parts: Vec<_> = Key::from_bytes(&ban.entry.key).display_parts().collect();
            assert!(ban.is_hashed);
            assert!(
                parts[0].starts_with('#') && parts[0].len() == 33,
                "{parts:?}"
            );
            assert_eq!(parts[1], "/login");
        });
    }
}
