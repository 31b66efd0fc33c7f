//! What decisions cost a server: calls, reads, writes and bytes.

use std::collections::HashMap;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Edge, Gcra, Hybrid, Interval, KeyBuilder, Limit, Log, Nanos, Permits,
    QuotaReset, SubBuckets, Time, Window,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{RedisConfig, RedisStore, Remote, Store, conformance};
use redis::Connection;

use crate::server::{Server, every_program};

/// Three an hour, by every core that has a twin.
fn limits() -> Vec<Limit> {
    let quota = "3/1h".parse().unwrap();
    let hour = Nanos::from_secs(3_600);
    let three = Permits::new(3);
    let all: [AnyAlgorithm; 7] = [
        Gcra::token_bucket(quota).unwrap().into(),
        Window::two_window(quota, Nanos::ZERO).unwrap().into(),
        QuotaReset::new(quota).unwrap().into(),
        SubBuckets::sub_buckets(quota, 5, Edge::Full, Nanos::ZERO)
            .unwrap()
            .into(),
        Log::sliding(quota).unwrap().into(),
        Interval::from_first(three, three, hour).unwrap().into(),
        Hybrid::quota_linear(quota).unwrap().into(),
    ];
    (0..)
        .zip(all)
        .map(|(id, algorithm)| limit(id, algorithm))
        .collect()
}

fn charge<'a>(limit: &'a Limit, key: &'a [u8]) -> Charge<'a> {
    conformance::charge(limit, key, 1)
}

/// Nothing here is about time, and this machine may be busy.
fn store_of(server: &Server) -> RedisStore {
    let config = RedisConfig {
        deadline: std::time::Duration::from_secs(30),
        ..RedisConfig::new(server.url())
    };
    RedisStore::new(config).unwrap()
}

/// Calls of each command since the last reset, those of scripts included.
fn calls(connection: &mut Connection) -> HashMap<String, u64> {
    let stats: String = redis::cmd("INFO")
        .arg("commandstats")
        .query(connection)
        .unwrap();
    redis::cmd("CONFIG")
        .arg("RESETSTAT")
        .exec(connection)
        .unwrap();
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), rest.split_once(',')?.0.parse().ok()?))
    };
    stats.lines().filter_map(line).collect()
}

#[test]
fn a_decision_is_one_call_with_a_read_and_a_write_for_each_limit() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = store_of(&server);
        let decide = |charges: &[Charge<'_>]| {
            let decided = runtime.block_on(store.decide(charges, Time::ZERO));
            decided.unwrap().admitted
        };
        let mut connection = server.connect();
        let limits = limits();
        for limit in &limits {
            // Connects, and teaches the server the script.
            assert!(decide(&[charge(limit, b"\x05other")]));
            calls(&mut connection);
            for number in 0..4 {
                let admitted = decide(&[charge(limit, b"\x01k")]);
                assert_eq!(admitted, number < 3, "{limit:?}");
                let calls = calls(&mut connection);
                let of = |name: &str| calls.get(name).copied().unwrap_or(0);
                assert_eq!(of("evalsha"), 1, "{limit:?}");
                assert_eq!(of("time"), 1, "the clock is read once");
                assert_eq!(of("get"), 1);
                let written = u64::from(admitted);
                assert_eq!(of("set"), written, "a denial writes nothing: {limit:?}");
                let others = calls.keys().filter(|name| {
                    ![
                        "evalsha",
                        "time",
                        "get",
                        "set",
                        "info",
                        "config|resetstat",
                        "config",
                    ]
                    .contains(&name.as_str())
                });
                assert_eq!(others.count(), 0, "{calls:?}");
            }
        }
        let charges: Vec<_> = limits
            .iter()
            .map(|limit| charge(limit, b"\x03all"))
            .collect();
        assert!(
            decide(&charges),
            "the request over all cores uses another script"
        );
        calls(&mut connection);
        assert!(decide(&charges));
        let calls = calls(&mut connection);
        assert_eq!((calls["evalsha"], calls["time"]), (1, 1));
        assert_eq!((calls["get"], calls["set"]), (7, 7));
    }
}

/// The growth of `used_memory` by an address, in the name of a limit of eight letters, the tables
/// of the server included.
#[test]
fn a_gcra_key_takes_the_bytes_of_the_guide() {
    const KEYS: u32 = 32_000;
    let guide = include_str!("../../../../docs/guide/redis.md").to_lowercase();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut missing = Vec::new();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = store_of(&server);
        let mut connection = server.connect();
        let limit = Limit {
            name: "per-user".into(),
            ..limit(0, Gcra::token_bucket("3/1h".parse().unwrap()).unwrap())
        };
        let fill = |first: u32, count: u32| {
            runtime.block_on(async {
                for number in first..first + count {
                    let mut key = Vec::new();
                    KeyBuilder::new(&mut key).part(format!("u{number:07}").as_bytes());
                    let decided = store.decide(&[charge(&limit, &key)], Time::ZERO).await;
                    assert!(decided.unwrap().admitted);
                }
            });
        };
        fill(0, 100);
        let before = used_memory(&mut connection);
        fill(100, KEYS);
        let each = (used_memory(&mut connection) - before).div_ceil(u64::from(KEYS));
        println!("{}: {each} bytes per gcra key", program.name);
        // In tens, because the server's buffers are counted too.
        let each = (each + 5) / 10 * 10;
        let shown = format!("{each} on {}", program.name);
        if !guide.contains(&shown.to_lowercase()) {
            missing.push(shown);
        }
    }
    assert!(missing.is_empty(), "{missing:?}: not in the guide");
}

fn used_memory(connection: &mut Connection) -> u64 {
    let info: String = redis::cmd("INFO").arg("memory").query(connection).unwrap();
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("used_memory:"));
    line.unwrap().trim().parse().unwrap()
}

/// A client that asks again while refused is refused here, until something comes back.
#[test]
fn denials_are_answered_locally_for_a_moment() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = store_of(&server);
        let mut connection = server.connect();
        let limits = limits();
        let charge = charge(&limits[0], b"\x01k");
        let decide = |charge: Charge<'_>| {
            let decided = runtime.block_on(store.decide(&[charge], Time::ZERO));
            decided.unwrap().each[0]
        };
        let three = Charge {
            cost: Permits::new(3),
            ..charge
        };
        assert!(decide(three).verdict.allows());
        let denied = decide(charge);
        calls(&mut connection);
        for _ in 0..100 {
            let again = decide(charge);
            assert!(again.verdict.retry_after() <= denied.verdict.retry_after());
            assert!(!again.verdict.allows());
        }
        let sent: u64 = calls(&mut connection).get("evalsha").copied().unwrap_or(0);
        assert!(
            sent <= 1,
            "more than one call, which a busy machine may need: {sent} calls"
        );
        assert!(
            !decide(three).verdict.allows(),
            "a denial of one cost does not answer for another cost"
        );
        runtime
            .block_on(store.refund(&[charge], Time::ZERO))
            .unwrap();
        assert!(decide(charge).verdict.allows());
    }
}

/// A charge of this process makes what a remembered denial says too good.
#[test]
fn a_charge_ends_the_denial_of_another_cost() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = store_of(&server);
        let limit = limit(0, Gcra::token_bucket("3/35h".parse().unwrap()).unwrap());
        let mut last = None;
        for (cost, admitted) in [(1, true), (1, true), (2, false), (1, true), (2, false)] {
            let charge = Charge {
                cost: Permits::new(cost),
                ..charge(&limit, b"\x01k")
            };
            let decided = runtime.block_on(store.decide(&[charge], Time::ZERO));
            let decided = decided.unwrap();
            assert_eq!(decided.admitted, admitted);
            last = decided.each.first().copied();
        }
        let last = last.unwrap();
        assert_eq!(last.remaining, Permits::ZERO);
        let wait = last.verdict.retry_after().unwrap();
        assert!(wait > Nanos::from_secs(83_000), "two permits: {wait:?}");
    }
}

/// One key, a thousand callers at a time: they share calls.
#[test]
fn callers_of_one_key_share_calls() {
    const CALLERS: u32 = 1_000;
    const EACH: u32 = 20;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = std::sync::Arc::new(store_of(&server));
        let mut connection = server.connect();
        let limit = std::sync::Arc::new(Limit {
            name: "hot".into(),
            ..limit(
                0,
                Gcra::token_bucket("1000000/1h".parse().unwrap()).unwrap(),
            )
        });
        calls(&mut connection);
        runtime.block_on(async {
            let ask = |_| {
                let (store, limit) = (store.clone(), limit.clone());
                tokio::spawn(async move {
                    for _ in 0..EACH {
                        let decided = store.decide(&[charge(&limit, b"\x01k")], Time::ZERO).await;
                        assert!(decided.unwrap().admitted);
                    }
                })
            };
            for caller in (0..CALLERS).map(ask).collect::<Vec<_>>() {
                caller.await.unwrap();
            }
        });
        let calls = calls(&mut connection)["evalsha"];
        println!(
            "{}: {calls} calls for {} decisions",
            program.name,
            CALLERS * EACH
        );
        assert!(calls < u64::from(CALLERS * EACH) / 10, "{calls} calls");
    }
}

/// A runtime that ends while a call waits takes only its own requests with it.
#[test]
fn a_runtime_that_ends_leaves_the_key_to_others() {
    let builder = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let [one, other] = [builder().unwrap(), builder().unwrap()];
    let server = Server::start(&every_program()[0], &[]);
    let store = store_of(&server);
    let limit = limits().remove(0);
    let charges = [charge(&limit, b"\x01k")];
    let ask = || store.decide(&charges, Time::ZERO);
    assert!(one.block_on(ask()).unwrap().admitted);
    other.block_on(async {
        tokio::select! {
            biased;
            _ = ask() => panic!("an answer without a call"),
            () = std::future::ready(()) => {}
        }
    });
    drop(other);
    for _ in 0..2 {
        assert!(one.block_on(ask()).unwrap().admitted, "by the server");
    }
    assert!(!one.block_on(ask()).unwrap().admitted, "three in all");
}

/// A call that waits on a runtime which nobody drives holds up no other one's.
#[test]
fn an_idle_runtime_holds_up_no_other() {
    let builder = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    };
    let [one, idle] = [builder().unwrap(), builder().unwrap()];
    let server = Server::start(&every_program()[0], &[]);
    let store = store_of(&server);
    let limit = limits().remove(0);
    idle.block_on(async {
        let charges = [charge(&limit, b"\x01idle")];
        tokio::select! {
            biased;
            _ = store.decide(&charges, Time::ZERO) => panic!("an answer without a call"),
            () = std::future::ready(()) => {}
        }
    });
    let charges = [charge(&limit, b"\x01k")];
    let decided = one.block_on(store.decide(&charges, Time::ZERO));
    assert!(decided.unwrap().admitted);
}

/// A debit is not answered from memory: the server may have lost the states that it refused by.
#[test]
fn a_debit_asks_the_server_despite_a_recent_denial() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in every_program() {
        let server = Server::start(&program, &[]);
        let store = store_of(&server);
        let limit = &limits()[0];
        let charges = [charge(limit, b"\x01k")];
        for admitted in [true, true, true, false] {
            let decided = runtime.block_on(store.decide(&charges, Time::ZERO));
            assert_eq!(decided.unwrap().admitted, admitted);
        }
        let mut gone = redis::cmd("DEL");
        gone.arg("rk:{k}:limit-0")
            .exec(&mut server.connect())
            .unwrap();
        let debited = runtime.block_on(store.debit(&charges, Time::ZERO));
        assert!(debited.unwrap().admitted, "the debit fits");
    }
}
