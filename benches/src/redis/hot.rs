//! Hot: one key with far more requests than are worth a call each.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ratekeeper_core::{Charge, Gcra, Key, Limit, LimitId, Mode, Outage, Permits, Time};
use ratekeeper_store::{RedisConfig, RedisStore, Store};
use tokio::time::{MissedTickBehavior, interval};

use super::server::Server;
use crate::report;

/// Requests a second, evenly spread, and their duration in seconds.
const RATE: u32 = 20_000;
const SECONDS: u32 = 2;
/// Maximum number of calls a second that the server may receive for them.
const GOAL: f64 = 2_000.0;

/// Prints the calls and answers of these requests.
#[expect(clippy::disallowed_methods, reason = "benches read the clock")]
pub(super) fn run(server: &Server) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let config = RedisConfig {
        deadline: Duration::from_secs(5),
        prefix: "hot".into(),
        ..RedisConfig::new(format!("redis://127.0.0.1:{}", server.port))
    };
    let store = Arc::new(RedisStore::new(config).expect("a URL"));
    let limit = Arc::new(Limit {
        name: "hot".into(),
        id: LimitId::new(0),
        version: 1,
        outage: Outage::Deny,
        scope: ratekeeper_core::LimitScope::Cluster,
        keys: ratekeeper_core::LimitKeys::All,
        algorithm: Gcra::token_bucket("1000000/1h".parse().expect("a quota"))
            .expect("within bounds")
            .into(),
    });
    let waits = Arc::new(Mutex::new(Vec::new()));
    let calls = server.calls("evalsha");
    let (began, cpu) = (Instant::now(), server.cpu_micros());
    runtime.block_on(async {
        let mut tick = interval(Duration::from_millis(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut asked = Vec::new();
        for _ in 0..SECONDS * 1_000 {
            tick.tick().await;
            for _ in 0..RATE / 1_000 {
                let (store, limit, waits) = (store.clone(), limit.clone(), waits.clone());
                asked.push(tokio::spawn(async move {
                    let charge = Charge {
                        limit: &limit,
                        key: Key::from_bytes(b"\x01k"),
                        cost: Permits::ONE,
                        mode: Mode::Enforce,
                    };
                    let began = Instant::now();
                    let decided = store.decide(&[charge], Time::ZERO).await;
                    assert!(decided.expect("the server is there").admitted);
                    waits.lock().expect("no task panics").push(began.elapsed());
                }));
            }
        }
        for each in asked {
            each.await.expect("a decision does not panic");
        }
    });
    let took = began.elapsed().as_secs_f64();
    let calls = (server.calls("evalsha") - calls) as f64 / took;
    let cpu = (server.cpu_micros() - cpu) / 1e6 / took * 100.0;
    let mut waits = waits.lock().expect("no task panics");
    waits.sort_unstable();
    let decisions = waits.len() as f64 / took;
    let at = |hundredths: usize| waits[waits.len() * hundredths / 100].as_micros();
    let stands = if calls < GOAL { "met" } else { "missed" };
    report::line(&format!(
        "\nredis: one key, {decisions:.0} decisions a second: {calls:.0} calls a second (goal \
         {GOAL:.0}: {stands} {:.2}), {cpu:.1} % of the server's core, waits p50 {} us, p99 {} us",
        calls / GOAL,
        at(50),
        at(99),
    ));
}
