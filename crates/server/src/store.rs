//! Store: opens the store that the policy asks for, and looks after it.
//!
//! ```text
//!   [store.memory]                 counters in this process
//!   [store.redis] --> Fallback --> counters in Redis; while it fails, what each limit chose
//!                        ^
//!                  tend: probe, debit, report, ten times a second
//! ```

pub(crate) mod by_hand;
pub(crate) mod choice;
pub(crate) mod secrets;
pub(crate) mod servers;

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Nanos, Origin, Outage, Time};
use ratekeeper_store::{
    AnyStore, Fallback, HealthChange, MemoryConfig, MemoryStore, RedisConfig, RedisStore,
    StoreError,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;
use crate::store::secrets::StoreSecrets;
use crate::store::servers::ServerLog;
use crate::{Event, StartError, StoreSettings};

/// How often a shared store is looked after.
const TEND: Duration = Duration::from_millis(100);
/// How often its clock is compared with ours.
const COMPARE: Duration = Duration::from_secs(10);
/// Difference of the clocks that `doctor` and the alert rules report as well.
const WORTH_A_WARNING: Nanos = Nanos::from_millis(500);
/// Minimum time between two warnings.
const WARN_AGAIN: Nanos = Nanos::from_secs(3_600);

/// Opens the store that these settings ask for; also returns its secrets that are in files.
/// Secrets are looked up, but no server is asked yet.
pub(crate) fn open(
    shared: Option<&StoreSettings>,
    memory: MemoryConfig,
    origin: Origin,
) -> Result<(AnyStore, Option<StoreSecrets>), StartError> {
    let memory = MemoryStore::new(memory);
    let Some(shared) = shared else {
        return Ok((AnyStore::Memory(memory), None));
    };
    let config = redis_config(shared, origin)?;
    let secrets = StoreSecrets::of(shared, &config);
    let store = RedisStore::new(config).map_err(refused)?;
    let fallback = Fallback::new(store, memory, shared.redis.nodes);
    Ok((AnyStore::Redis(Box::new(fallback)), secrets))
}

/// Returns the connection to the store of these settings, for limits on a clock of that origin.
///
/// # Errors
/// [`StartError::Store`] if a secret or a certificate is not where the settings say. Paths are
/// taken as they are: see [`StoreSettings::at_home`].
pub fn redis_config(shared: &StoreSettings, origin: Origin) -> Result<RedisConfig, StartError> {
    let login = shared.login.as_ref();
    let login = login.map(|login| (login.username.clone(), login.password.clone()));
    let config = ratekeeper::redis_config(&shared.redis, login).map_err(refused)?;
    Ok(RedisConfig { origin, ..config })
}

/// Returns why a store that these settings ask for cannot be used.
fn refused(error: StoreError) -> StartError {
    match error {
        StoreError::Misconfigured(why) => StartError::Store(why),
        other => StartError::Store(other.to_string()),
    }
}

/// Looks after a shared store until the service ends.
pub(crate) async fn tend(shared: Arc<ServiceContext>) {
    let mut tick = interval(TEND);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = ServerLog::default();
    let mut is_told = false;
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        tend_once(&shared).await;
        let servers = store.main();
        if let Some(why) = servers.sentinel_refusal().filter(|_| !is_told) {
            is_told = true;
            let rights = "`&+selected-slave &-failover-abort-*`";
            let text =
                format!("a sentinel announces no failovers; it needs RESP3 and {rights}: {why}");
            shared.sink.notice(text);
        }
        if servers.has_parts() {
            let now = shared.now();
            for event in log.changes(&servers.server_health(), now) {
                shared.sink.emit(&event);
            }
        }
    }
}

/// Compares the clock of a shared store with ours until the service ends, and warns of a
/// difference at most once an hour.
pub(crate) async fn compare_clocks(shared: Arc<ServiceContext>) {
    let mut tick = interval(COMPARE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warned: Option<Time> = None;
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        if !store.is_asked() {
            continue;
        }
        compare_once(&shared, store.main()).await;
        let now = shared.now();
        let is_due = warned.is_none_or(|warned| now.since(warned) >= WARN_AGAIN);
        let offset = *shared.observers.metrics.clock_offset.lock();
        if let Some(text) = offset.and_then(clock_warning).filter(|_| is_due) {
            shared.sink.notice(text);
            warned = Some(now);
        }
    }
}

/// Returns the warning about a clock of the store that is `offset` nanoseconds ahead of ours;
/// `None` if they agree well enough.
fn clock_warning(offset: i64) -> Option<String> {
    let off = Nanos::from_nanos(offset.unsigned_abs());
    if off < WORTH_A_WARNING {
        return None;
    }
    let off = Nanos::from_millis(off.as_nanos() / 1_000_000); // down
    let side = if offset < 0 { "behind" } else { "ahead of" };
    Some(format!(
        "RK-W103: the clock of the store is {off} {side} this machine's, so windows and calendar \
         limits begin at another time while the store is away; set both by NTP"
    ))
}

/// Compares the clocks of all servers with ours; the largest difference counts.
async fn compare_once(shared: &ServiceContext, store: &RedisStore) {
    let unix = || shared.unix_nanos();
    let mut furthest: Option<i64> = None;
    for server in store.servers().await.unwrap_or_default() {
        let before = unix();
        let Ok(there) = server.clock().await else {
            continue; // servers that are away are reported elsewhere
        };
        let offset = ahead(before, there.get().saturating_mul(1_000), unix());
        if furthest.is_none_or(|known| offset.unsigned_abs() > known.unsigned_abs()) {
            furthest = Some(offset);
        }
    }
    if furthest.is_some() {
        *shared.observers.metrics.clock_offset.lock() = furthest;
    }
}

/// Returns how many nanoseconds a clock is ahead that showed `there` between two readings of
/// another, all in nanoseconds since 1970.
fn ahead(before: u64, there: u64, after: u64) -> i64 {
    let middle = before + after.saturating_sub(before) / 2; // down: half a nanosecond is nothing
    let (ahead, most) = (i128::from(there) - i128::from(middle), i128::from(i64::MAX));
    i64::try_from(ahead.clamp(-most, most)).unwrap_or(i64::MAX)
}

/// Looks after a shared store, and emits an event when its health changes.
pub(crate) async fn tend_once(shared: &ServiceContext) {
    let Some(store) = shared.keeper.store().shared() else {
        return;
    };
    let now = shared.now();
    match store.tend(now).await {
        Some(HealthChange::Down(error)) => shared.sink.emit(&Event::StoreDown { error }),
        Some(HealthChange::Up(debited)) => shared.sink.emit(&Event::StoreUp { debited }),
        Some(HealthChange::Foreign(error)) => tracing::warn!(event = "store.foreign", %error),
        None => {}
    }
    let stuck = store.is_down() && !has_fallback(shared);
    shared.readiness.set_stuck(stuck);
}

/// Returns true if any limit does something else than refuse while the store fails; without
/// limits nothing needs a store.
fn has_fallback(shared: &ServiceContext) -> bool {
    let refuses = |outage| matches!(outage, Outage::Deny | Outage::Error);
    let policy = shared.keeper.policy();
    let mut rules = policy.rules.iter();
    match shared.keeper.envoy() {
        Some(envoy) if !refuses(envoy.settings().outage) => true,
        envoy if rules.len() == 0 => envoy.is_none(),
        _ => rules.any(|rule| !refuses(rule.limit.outage)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_compared_with_the_middle_of_the_call() {
        assert_eq!(ahead(1_000, 1_300, 1_100), 250);
        assert_eq!(ahead(1_000, 400, 1_100), -650);
        assert_eq!(ahead(1_000, 1_000, 900), 0, "a clock that steps back");
        assert_eq!(ahead(0, u64::MAX, 0), i64::MAX);
        assert_eq!(ahead(u64::MAX, 0, u64::MAX), i64::MIN + 1);
    }

    #[test]
    fn clocks_that_differ_by_half_a_second_are_warned_of() {
        for (offset, expected) in [
            (0, None),
            (499_999_999, None),
            (-499_999_999, None),
            (500_000_000, Some("500ms ahead of")),
            (-3_000_400_000, Some("3s behind")),
            (i64::MIN, Some("behind")),
        ] {
            let text = clock_warning(offset);
            assert_eq!(text.is_some(), expected.is_some(), "{offset}");
            let words = expected.unwrap_or_default();
            assert!(text.unwrap_or_default().contains(words), "{offset}");
        }
    }
}
