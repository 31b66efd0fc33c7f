//! Measure: checks that run something: scripts, clocks, the duration of a decision.
//!
//! ```text
//!   clock    before --- TIME of the server --- after        offset: between TIME - after
//!              |<----------- round trip ---------->|                 and TIME - before
//!
//!   latency  decision, decision, ...                        at most 200, for 3 s
//! ```

use ratekeeper::{Clock, SystemClock};
use ratekeeper_core::{
    AnyAlgorithm, Charge, Gcra, Key, KeyBuilder, Limit, LimitId, Nanos, Outage, Permits, Time,
    Window,
};
use ratekeeper_store::{RedisStore, Store, StoreError};

use super::reach::failed;
use super::{DoctorNode, Finding, Judgement};
use crate::words;

/// Readings of each server's clock; the one with the shortest round trip counts.
const CLOCK_READINGS: usize = 8;
/// A clock that is certainly further away than this is worth a warning, because a window would
/// begin visibly late, and because alerts of other programs begin here too.
const CLOCK_BOUND: Nanos = Nanos::from_millis(500);

/// Maximum number of timed decisions.
const MAX_DECISIONS: usize = 200;
/// Time after which no more decisions are timed.
const LONGEST: Nanos = Nanos::from_secs(3);
/// Number of keys of these decisions, so that in a cluster most primaries get some.
const KEYS: usize = 8;

/// Checks that the scripts of the store run on every server, and decide.
pub(super) async fn scripts(store: &RedisStore, nodes: &[DoctorNode]) -> Finding {
    let refused = try_scripts(store, nodes).await.err();
    let sound = || Judgement::ok("loaded and run, with the expected decisions");
    Finding::new("scripts", refused.unwrap_or_else(sound))
}

async fn try_scripts(store: &RedisStore, nodes: &[DoctorNode]) -> Result<(), Judgement> {
    for node in nodes.iter().filter(|node| node.is_primary()) {
        let answer = node.server.run_script().await;
        answer.map_err(|error| failed(&node.server.address(), error))?;
    }
    let [bucket, window, _] = limits();
    let key = key_of("scripts");
    let asked = [charge(&bucket, &key, 2), charge(&window, &key, 1)];
    let decide = async || {
        let decided = store.decide(&asked, Time::ZERO).await;
        decided.map_err(|error| failed("a decision", error))
    };
    let (first, second) = (decide().await?, decide().await?);
    let remaining: Vec<u64> = first.each.iter().map(|each| each.remaining.get()).collect();
    if first.admitted && remaining == [0, 2] && !second.admitted {
        return Ok(());
    }
    Err(Judgement::failure(
        format!(
            "two requests of cost 2 under a limit of 2 did not get the expected decisions: \
             {first:?}, {second:?}"
        ),
        "run Redis 6.2 or newer, or Valkey 7.2 or newer, without a proxy that changes replies",
    ))
}

/// Difference between a server's clock and this machine's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ClockOffset {
    /// Nanoseconds by which the server is ahead.
    nanos: i64,
    /// Maximum error of `nanos`, in both directions.
    uncertainty: Nanos,
}

impl ClockOffset {
    /// Computes the offset of a server that read `server` between two readings of this machine's
    /// clock, all in nanoseconds since 1970.
    fn between(before: u64, server: u64, after: u64) -> Self {
        let trip = after.saturating_sub(before);
        let middle = before + trip / 2;
        let ahead = i128::from(server) - i128::from(middle);
        Self {
            nanos: i64::try_from(ahead).unwrap_or(if ahead < 0 { i64::MIN } else { i64::MAX }),
            uncertainty: Nanos::from_nanos(trip.div_ceil(2)),
        }
    }

    fn size(self) -> Nanos {
        Nanos::from_nanos(self.nanos.unsigned_abs())
    }

    fn judge(self) -> Judgement {
        let side = if self.nanos < 0 { "behind" } else { "ahead of" };
        let message = format!(
            "{} {side} this machine's, give or take {}",
            words::span(self.size()),
            words::span(self.uncertainty)
        );
        if self.size().saturating_sub(self.uncertainty) > CLOCK_BOUND {
            let hint = "synchronize both clocks with the same time servers: windows begin by the \
                 server's clock, and by this machine's while the server is unreachable";
            return Judgement::warning(message, hint);
        }
        Judgement::ok(message)
    }
}

/// Compares the clocks of all servers, and reports the one that is furthest away.
pub(super) async fn clocks(nodes: &[DoctorNode]) -> Finding {
    let clock = SystemClock::new();
    let unix = || clock.origin().unix_nanos(clock.now());
    let mut offsets: Vec<(String, ClockOffset)> = Vec::new();
    for node in nodes {
        let address = node.server.address();
        let mut readings = Vec::new();
        for _ in 0..CLOCK_READINGS {
            let before = unix();
            let server = match node.server.clock().await {
                Ok(server) => server.get().saturating_mul(1_000),
                Err(error) => {
                    return Finding::new("clock", failed(&format!("clock of {address}"), error));
                }
            };
            readings.push(ClockOffset::between(before, server, unix()));
        }
        let best = readings.into_iter().min_by_key(|offset| offset.uncertainty);
        offsets.extend(best.map(|best| (address, best)));
    }
    let furthest = offsets.into_iter().max_by_key(|(_, offset)| offset.size());
    let Some((address, offset)) = furthest else {
        return Finding::new("clock", Judgement::ok("no clock was read"));
    };
    let mut judged = offset.judge();
    if nodes.len() > 1 {
        let (message, count) = (&judged.message, nodes.len());
        judged.message = format!("{address}: {message}, the largest difference of {count} servers");
    }
    Finding::new("clock", judged).with("offset_ms", millis(offset.nanos))
}

/// Measures the duration of a decision.
pub(super) async fn latency(store: &RedisStore, deadline: Nanos) -> Finding {
    let clock = SystemClock::new();
    let [_, _, wide] = limits();
    let keys = keys();
    let started = clock.now();
    let mut decisions = Vec::new();
    while decisions.len() < MAX_DECISIONS && clock.now().since(started) <= LONGEST {
        let asked = charge(&wide, &keys[decisions.len() % KEYS], 1);
        let before = clock.now();
        if let Err(error) = store.decide(&[asked], Time::ZERO).await {
            let place = format!("decision {} of {MAX_DECISIONS}", decisions.len() + 1);
            return Finding::new("latency", failed(&place, error));
        }
        decisions.push(clock.now().since(before));
    }
    let count = decisions.len();
    let decision = Spread::of(decisions);
    Finding::new("latency", judge_latency(decision, count, deadline))
        .with("decisions", count)
        .with("median_ms", millis_of(decision.median))
        .with("p99_ms", millis_of(decision.p99))
}

fn judge_latency(decision: Spread, count: usize, deadline: Nanos) -> Judgement {
    let message = format!(
        "a decision takes {} (median) and {} (p99 of {count})",
        words::span(decision.median),
        words::span(decision.p99),
    );
    let hint = format!(
        "calls time out after {}: use a server that is nearer, or raise `deadline` in \
         [store.redis]",
        words::span(deadline)
    );
    if decision.median > deadline {
        Judgement::failure(message, hint)
    } else if decision.p99 > Nanos::from_nanos(deadline.as_nanos() / 2) {
        Judgement::warning(message, hint)
    } else {
        Judgement::ok(message)
    }
}

/// Median and 99th percentile of a sample, by nearest rank, upwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Spread {
    median: Nanos,
    p99: Nanos,
}

impl Spread {
    fn of(mut sample: Vec<Nanos>) -> Self {
        sample.sort_unstable();
        let at = |percent: usize| {
            let rank = (sample.len() * percent).div_ceil(100).max(1);
            sample.get(rank - 1).copied().unwrap_or(Nanos::ZERO)
        };
        let (median, p99) = (at(50), at(99));
        Self { median, p99 }
    }
}

/// Removes every key that these checks may have written.
///
/// # Errors
/// Returns an error if the store fails; the keys expire within an hour.
pub(crate) async fn forget(store: &RedisStore) -> Result<(), StoreError> {
    let [bucket, window, wide] = limits();
    let scripts = key_of("scripts");
    for limit in [&bucket, &window] {
        store
            .erase(&[charge(limit, &scripts, 0)], Time::ZERO)
            .await?;
    }
    for key in keys() {
        store.erase(&[charge(&wide, &key, 0)], Time::ZERO).await?;
    }
    Ok(())
}

/// Returns the limits of these checks: a bucket, a window, and one that refuses no charge here.
fn limits() -> [Limit; 3] {
    const WITHIN: &str = "a quota within bounds";
    let bucket = |quota: &str| Gcra::token_bucket(quota.parse().expect(WITHIN)).expect(WITHIN);
    let window = Window::fixed("3/1h".parse().expect(WITHIN), Nanos::ZERO).expect(WITHIN);
    let limit = |(id, algorithm): (u32, AnyAlgorithm)| Limit {
        outage: Outage::Deny,
        ..Limit::new(format!("check-{id}"), LimitId::new(id), algorithm)
    };
    let wide = bucket("1000000/1s");
    [
        (0, bucket("2/1h").into()),
        (1, window.into()),
        (2, wide.into()),
    ]
    .map(limit)
}

fn charge<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Charge<'a> {
    Charge::enforced(limit, Key::from_bytes(key), Permits::new(cost))
}

fn keys() -> Vec<Vec<u8>> {
    (0..KEYS)
        .map(|number| key_of(&format!("latency-{number}")))
        .collect()
}

fn key_of(part: &str) -> Vec<u8> {
    let mut key = Vec::new();
    KeyBuilder::new(&mut key).part(part.as_bytes());
    key
}

fn millis_of(span: Nanos) -> f64 {
    millis(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))
}

/// Returns milliseconds, to a microsecond, because anything finer is noise.
#[expect(
    clippy::cast_precision_loss,
    reason = "only shown to people; 2^53 us are 285 years"
)]
fn millis(nanos: i64) -> f64 {
    (nanos / 1_000) as f64 / 1e3 // towards zero
}

#[cfg(test)]
mod tests {
    use super::super::Grade;
    use super::*;

    #[test]
    fn an_offset_is_known_to_half_a_round_trip() {
        let offset = ClockOffset::between(1_000, 1_300, 1_100);
        assert_eq!((offset.nanos, offset.uncertainty.as_nanos()), (250, 50));
        let offset = ClockOffset::between(1_000, 400, 1_101);
        assert_eq!((offset.nanos, offset.uncertainty.as_nanos()), (-650, 51));
        assert_eq!(ClockOffset::between(0, u64::MAX, 0).nanos, i64::MAX);
    }

    #[test]
    fn an_offset_certainly_above_the_bound_is_a_warning() {
        let judge = |nanos, uncertainty| {
            let uncertainty = Nanos::from_millis(uncertainty);
            ClockOffset { nanos, uncertainty }.judge()
        };
        for (nanos, uncertainty, grade, words) in [
            (-20_000, 0, Grade::Ok, "20 us behind this machine's"),
            (500_000_000, 0, Grade::Ok, "500 ms ahead of"),
            (500_000_001, 0, Grade::Warning, "500.01 ms ahead of"),
            (-700_000_000, 300, Grade::Ok, "give or take 300 ms"),
            (-900_000_000, 300, Grade::Warning, "900 ms behind"),
        ] {
            let judged = judge(nanos, uncertainty);
            assert_eq!(judged.grade, grade, "{}", judged.message);
            assert!(judged.message.contains(words), "{}", judged.message);
        }
    }

    #[test]
    fn a_sample_is_described_by_its_median_and_p99() {
        let spread = |numbers: std::ops::RangeInclusive<u64>| {
            let spread = Spread::of(numbers.map(Nanos::from_millis).collect());
            (spread.median.as_millis_ceil(), spread.p99.as_millis_ceil())
        };
        assert_eq!(spread(1..=200), (100, 198));
        assert_eq!(spread(1..=3), (2, 3));
        assert_eq!(spread(7..=7), (7, 7));
    }

    #[test]
    fn a_median_above_the_deadline_fails() {
        let spread = |median, p99| Spread {
            median: Nanos::from_millis(median),
            p99: Nanos::from_millis(p99),
        };
        for (median, p99, grade) in [
            (1, 25, Grade::Ok),
            (1, 26, Grade::Warning),
            (50, 50, Grade::Warning),
            (51, 60, Grade::Failure),
        ] {
            let judged = judge_latency(spread(median, p99), 200, Nanos::from_millis(50));
            assert_eq!(judged.grade, grade, "{}", judged.message);
        }
    }
}
