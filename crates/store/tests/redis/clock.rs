//! The server's clock is stepped, under load: what passes beyond the limits for it.
//!
//! ```text
//!   offset     0 ------- +30 min ------- 0 ------- -2 h ------
//!   passes     N         what half an    nothing   nothing
//!                        hour brings
//! ```
//!
//! The clock is the server's own: its scripts, its expiry, all of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Edge, Exponential, Gcra, Hybrid, Interval, Key, Limit, LimitId, Log,
    Mode, Nanos, Outage, Permits, SubBuckets, Window,
};
use ratekeeper_store::{RedisConfig, RedisStore, Store};
use tokio::time::{Instant, sleep};

use crate::server::{Server, programs};

/// Permits an hour, of each core.
const N: u32 = 1_000;
const STORES: usize = 2;
/// Of each store and limit.
const CALLERS: usize = 2;
const DEADLINE: Duration = Duration::from_millis(300);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_millis(1_500);

/// Of each core, what half an hour brings at most.
fn limits() -> Vec<(AnyAlgorithm, u32)> {
    let quota = "1000/1h".parse().unwrap();
    let (ten, thousand) = (Permits::new(10), Permits::new(N));
    let stroke = Nanos::from_secs(36);
    let cut = |edge| SubBuckets::sub_buckets(quota, 4, edge, Nanos::ZERO).unwrap();
    vec![
        (Gcra::token_bucket(quota).unwrap().into(), N / 2),
        (Window::quota_reset(quota).unwrap().into(), 0),
        // Another hour of the grid may begin.
        (Window::fixed(quota, Nanos::ZERO).unwrap().into(), N),
        (Window::two_window(quota, Nanos::ZERO).unwrap().into(), N),
        (cut(Edge::Full).into(), 0),
        (Log::sliding(quota).unwrap().into(), 0),
        (
            Interval::from_first(thousand, ten, stroke).unwrap().into(),
            N / 2,
        ),
        (Hybrid::quota_linear(quota).unwrap().into(), 0), // empty until its window is over
        (Exponential::new(quota).unwrap().into(), N / 2),
    ]
}

/// What the seconds of the test bring besides: twenty of them.
const MEANWHILE: u32 = 6 + 10;

struct Asked {
    admitted: AtomicU32,
    longest_micros: AtomicU32,
    stop: Arc<AtomicBool>,
}

async fn ask(store: Arc<RedisStore>, limit: Arc<Limit>, asked: Arc<Asked>) {
    while !asked.stop.load(Ordering::Relaxed) {
        let charge = Charge {
            limit: &limit,
            key: Key::from_bytes(b"\x01k"),
            cost: Permits::ONE,
            mode: Mode::Enforce,
        };
        let begun = Instant::now();
        let decided = store.decide(&[charge], ratekeeper_core::Time::ZERO).await;
        let micros = u32::try_from(begun.elapsed().as_micros()).unwrap();
        asked.longest_micros.fetch_max(micros, Ordering::Relaxed);
        let admitted = decided.expect("the server is there").admitted;
        asked
            .admitted
            .fetch_add(u32::from(admitted), Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_step_of_the_clock_brings_what_so_much_time_brings() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for program in programs() {
        let Some((server, clock)) = Server::with_clock(&program) else {
            return;
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stores: Vec<_> = (0..STORES)
            .map(|_| {
                let config = RedisConfig {
                    deadline: DEADLINE,
                    ..RedisConfig::new(server.url())
                };
                Arc::new(RedisStore::new(config).unwrap())
            })
            .collect();
        let mut trials = Vec::new();
        let mut callers = Vec::new();
        for (id, (algorithm, extra)) in (0..).zip(limits()) {
            let limit = Arc::new(Limit {
                name: format!("limit-{id}").into(),
                id: LimitId::new(id),
                version: 1,
                outage: Outage::Local,
                algorithm,
            });
            let asked = Arc::new(Asked {
                admitted: AtomicU32::new(0),
                longest_micros: AtomicU32::new(0),
                stop: Arc::clone(&stop),
            });
            for store in &stores {
                for _ in 0..CALLERS {
                    let caller = ask(Arc::clone(store), Arc::clone(&limit), Arc::clone(&asked));
                    callers.push(runtime.spawn(caller));
                }
            }
            trials.push((limit, extra, asked));
        }
        let wait = |millis| runtime.block_on(async { sleep(Duration::from_millis(millis)).await });
        let all_spent = || {
            let spent =
                |(_, _, asked): &(_, _, Arc<Asked>)| asked.admitted.load(Ordering::Relaxed) >= N;
            trials.iter().all(spent)
        };
        for _ in 0..2_000 {
            if all_spent() {
                break;
            }
            wait(10);
        }
        assert!(all_spent(), "every limit is spent before the steps");
        let mut before = vec![N; trials.len()];
        // Each time longer than denials are remembered; a race of the exponential counter
        // takes its time.
        for (offset, has_gained) in [(0, false), (1_800, true), (0, false), (-7_200, false)] {
            clock.set(offset);
            wait(2_500);
            for ((limit, extra, asked), before) in trials.iter().zip(&mut before) {
                let admitted = asked.admitted.load(Ordering::Relaxed);
                let most = *before + if has_gained { *extra } else { 0 } + MEANWHILE;
                assert!(
                    admitted <= most,
                    "{offset}: {admitted}, not {most}: {limit:?}"
                );
                *before = admitted;
            }
        }
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            runtime.block_on(caller).unwrap();
        }
        for (limit, extra, asked) in &trials {
            let longest = asked.longest_micros.load(Ordering::Relaxed);
            let longest = Duration::from_micros(longest.into());
            let admitted = asked.admitted.load(Ordering::Relaxed);
            println!("{}: {admitted}, longest {longest:?}", limit.name);
            assert!(longest < DEADLINE + SLACK, "{longest:?}: {limit:?}");
            let gained = admitted - N;
            if *extra == N / 2 {
                assert!(gained > N / 4, "the step was seen: {gained}: {limit:?}");
            }
        }
    }
}
