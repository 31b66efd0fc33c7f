//! The server's clock is stepped, under load: the permits that pass beyond the limits for it.
//!
//! ```text
//!   clock     xx:40 --- +30 min --- xx:40 ------- -2 h ------
//!   passes     N        what half an   what is     nothing
//!                       hour brings    left of it
//! ```
//!
//! The clock is the server's own: its scripts, its expiry, all of it. The half hour begins at 40
//! minutes past, whenever the test runs: it always holds one turn of the hour. The speed of the
//! machine does not matter: permits gained may be spent later, so the bound is upon all that have
//! passed, and grows with the time that has really gone by.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ratekeeper_core::{
    AnyAlgorithm, Charge, Edge, Exponential, Gcra, Hybrid, Interval, Key, Limit, Log, Mode, Nanos,
    Permits, QuotaReset, SubBuckets, Window,
};
use ratekeeper_store::conformance::limit;
use ratekeeper_store::{CallTime, RedisConfig, RedisStore, Store, StoreError};
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep};

use crate::punctual::in_time;
use crate::server::{Server, programs};

/// Permits an hour, of each core.
const N: u64 = 1_000;
/// The time between two permits at that rate.
const INTERVAL: Duration = Duration::from_millis(3_600);
/// Permits of a stroke, where they come in strokes.
const STROKE: u64 = 10;
const STORES: usize = 2;
/// Callers for each store and limit.
const CALLERS: usize = 2;
const DEADLINE: Duration = Duration::from_millis(300);
/// Maximum time of any wait.
const PATIENCE: Duration = Duration::from_secs(180);
/// Longer than denials are remembered.
const AFTER_A_STEP: Duration = Duration::from_millis(2_500);

/// Limits, one for each core, and the maximum gain of each from half an hour.
fn limits() -> Vec<(AnyAlgorithm, u64)> {
    let quota = "1000/1h".parse().unwrap();
    let (ten, thousand) = (Permits::new(10), Permits::new(N));
    let stroke = Nanos::from_secs(36);
    let cut = |edge| SubBuckets::sub_buckets(quota, 4, edge, Nanos::ZERO).unwrap();
    vec![
        (Gcra::token_bucket(quota).unwrap().into(), N / 2),
        (QuotaReset::new(quota).unwrap().into(), 0),
        // Another hour of the grid begins.
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

/// Returns the maximum gain from the time that the test has taken.
fn meanwhile(begun: Instant) -> u64 {
    let whole = begun.elapsed().as_nanos() / INTERVAL.as_nanos();
    u64::try_from(whole).unwrap() + 1 + STROKE
}

/// Seconds to be added to the server's time of day, so that it is 40 minutes past.
fn to_forty_past(server: &Server) -> i64 {
    let time = redis::cmd("TIME").query(&mut server.connect());
    let (seconds, _): (i64, i64) = time.unwrap();
    2_400 - seconds % 3_600
}

/// A limit on trial, and its results.
struct Trial {
    limit: Limit,
    /// Maximum gain from half an hour.
    extra: u64,
    admitted: AtomicU64,
    /// Calls that were not answered in time, or whose turn did not come.
    lost: AtomicU64,
}

impl Trial {
    fn admitted(&self) -> u64 {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Returns true if nothing is left: a lost call may have been charged or not.
    fn is_spent(&self) -> bool {
        self.admitted() + self.lost.load(Ordering::Relaxed) >= N
    }

    /// Returns true if the step was seen, where permits come back bit by bit.
    fn has_gained(&self) -> bool {
        self.extra != N / 2 || self.admitted() > N + N / 4
    }
}

async fn ask(store: Arc<RedisStore>, trial: Arc<Trial>, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        let charge = Charge {
            limit: &trial.limit,
            key: Key::from_bytes(b"\x01k"),
            cost: Permits::ONE,
            mode: Mode::Enforce,
        };
        let charges = [charge];
        let decided = store.decide(&charges, ratekeeper_core::Time::ZERO);
        match in_time(DEADLINE, decided).await {
            Ok(decided) => {
                let passed = u64::from(decided.admitted);
                trial.admitted.fetch_add(passed, Ordering::Relaxed);
            }
            Err(StoreError::Unavailable(_) | StoreError::Partly(_)) => {
                trial.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(other) => panic!("{other}"),
        }
        sleep(Duration::from_millis(1)).await;
    }
}

fn count(times: &CallTime) -> u64 {
    times.buckets.iter().sum()
}

/// Waits until `is_so` is true.
fn until(runtime: &Runtime, what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "timed out: {what}");
        runtime.block_on(async { sleep(Duration::from_millis(10)).await });
    }
}

#[test]
fn a_step_of_the_clock_refills_as_much_as_the_same_time_would() {
    let runtime = Runtime::new().unwrap();
    for program in programs() {
        let Some((server, clock)) = Server::with_clock(&program) else {
            return;
        };
        let begins = to_forty_past(&server);
        clock.set(begins);
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let store = |_| {
            let config = RedisConfig {
                deadline: DEADLINE,
                ..RedisConfig::new(server.url())
            };
            Arc::new(RedisStore::new(config).unwrap())
        };
        let stores: Vec<_> = (0..STORES).map(store).collect();
        let mut trials = Vec::new();
        let mut callers = Vec::new();
        for (id, (algorithm, extra)) in (0..).zip(limits()) {
            let limit = limit(id, algorithm);
            let trial = Arc::new(Trial {
                limit,
                extra,
                admitted: AtomicU64::new(0),
                lost: AtomicU64::new(0),
            });
            for store in stores.iter().flat_map(|store| [store; CALLERS]) {
                let caller = ask(Arc::clone(store), Arc::clone(&trial), Arc::clone(&stop));
                callers.push(runtime.spawn(caller));
            }
            trials.push(trial);
        }
        until(&runtime, "every limit is spent before the steps", || {
            trials.iter().all(|trial| trial.is_spent())
        });
        let mut has_stepped = false;
        for step in [0, 1_800, 0, -7_200] {
            clock.set(begins + step);
            has_stepped |= step > 0;
            runtime.block_on(async { sleep(AFTER_A_STEP).await });
            if has_stepped {
                until(&runtime, "the server follows the step of its clock", || {
                    trials.iter().all(|trial| trial.has_gained())
                });
            }
            for trial in &trials {
                let admitted = trial.admitted();
                let brought = if has_stepped { trial.extra } else { 0 };
                let most = N + brought + meanwhile(begun);
                assert!(
                    admitted <= most,
                    "step {step}: {admitted} admitted, more than {most}: {:?}",
                    trial.limit
                );
            }
        }
        stop.store(true, Ordering::Relaxed);
        for caller in callers {
            runtime.block_on(caller).unwrap();
        }
        let mut lost = 0;
        for trial in &trials {
            println!("{}: {}", trial.limit.name, trial.admitted());
            lost += trial.lost.load(Ordering::Relaxed);
        }
        let times = stores.iter().flat_map(|store| store.call_times());
        let failed = times.map(|(_, times)| count(&times.error) + count(&times.timeout));
        assert!(
            lost <= failed.sum(),
            "{lost} calls were lost, more than the store counted"
        );
    }
}
