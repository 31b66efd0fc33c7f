//! Shared store: metrics of a store that other processes use too.

use ratekeeper_store::{ActKind, BreakerState, CallTimes, Fallback, FallbackCounts, RedisStore};

use super::family::{MetricList, seconds};
use super::table;

/// The value of the label `store`.
const STORE: &str = "redis";
/// The act whose times are always shown.
const DECIDE: &str = ActKind::NAMES[0];
/// Maximum number of servers with a series of their own: those in trouble go first.
const MAX_SERVERS: usize = 128;

/// Writes the metrics of a shared store, whose clock is ahead by so much, if that is known.
pub(super) fn encode(
    store: &Fallback<RedisStore>,
    clock_offset_nanos: Option<i64>,
    out: &mut MetricList,
) {
    let health = store.health();
    encode_times(store.main(), out);
    if let Some(nanos) = clock_offset_nanos {
        let mut series = table::STORE_CLOCK_OFFSET.open(out);
        series.number(&[STORE], seconds(nanos));
    }
    encode_servers(store.main(), out);
    let mut series = table::STORE_REQUESTS.open(out);
    for calls in &health.calls {
        series.count(&[STORE, calls.op, "ok"], calls.answered);
        series.count(&[STORE, calls.op, "error"], calls.failed);
    }
    let state = match health.state {
        BreakerState::Closed => 0,
        BreakerState::HalfOpen => 1,
        BreakerState::Open { .. } => 2,
    };
    table::STORE_BREAKER_STATE.each(out, [([STORE], state)]);
    table::FALLBACK_ACTIVE.each(out, [([STORE], health.is_down.into())]);
    let FallbackCounts { local, allow, deny } = health.fallback;
    let choices = [("local", local), ("allow", allow), ("deny", deny)];
    let choices = choices.map(|(choice, count)| ([STORE, choice], count));
    table::FALLBACK_DECISIONS.each(out, choices);
    table::FALLBACK_DEBITED.each(out, [([STORE], health.debited)]);
}

fn encode_servers(store: &RedisStore, out: &mut MetricList) {
    let mut servers = store.server_health();
    servers.sort_by_key(|server| server.trouble.is_none());
    let servers = servers.iter().take(MAX_SERVERS);
    let up = servers.map(|it| ([STORE, &*it.address], u64::from(it.trouble.is_none())));
    table::STORE_SERVER_UP.each(out, up);
}

fn encode_times(store: &RedisStore, out: &mut MetricList) {
    let mut series = table::STORE_DURATION.open(out);
    for (op, times) in store.call_times() {
        // Acts that are never called would make a scrape long.
        if op != DECIDE && times == CallTimes::default() {
            continue;
        }
        let made = [("ok", times.ok), ("error", times.error)];
        let given_up = [("timeout", times.timeout), ("crowded", times.crowded)];
        for (outcome, time) in made.into_iter().chain(given_up) {
            series.durations(&[STORE, op, outcome], &time.into());
        }
    }
}
