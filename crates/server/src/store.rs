//! Store: opens the store that the policy asks for, and looks after it.
//!
//! ```text
//!   [store.memory]                 counters in this process
//!   [store.redis] --> Fallback --> counters in Redis; while it fails, what each limit chose
//!                        ^
//!                  tend: probe, debit, report, ten times a second
//! ```

use std::sync::Arc;
use std::time::Duration;

use ratekeeper::Clock;
use ratekeeper_core::{Origin, Outage};
use ratekeeper_store::{
    AnyStore, Fallback, HealthChange, MemoryConfig, MemoryStore, RedisStore, StoreError,
};
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;
use crate::metrics::ahead;
use crate::redis_config::redis_config;
use crate::store_secrets::StoreSecrets;
use crate::store_servers::ServerLog;
use crate::{Event, StartError, StoreSettings};

/// How often a shared store is looked after.
const TEND: Duration = Duration::from_millis(100);
/// How often its clock is compared with ours.
const COMPARE: Duration = Duration::from_secs(10);
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
    let store = RedisStore::new(config).map_err(|error| match error {
        StoreError::Misconfigured(why) => StartError::Store(why),
        other => StartError::Store(other.to_string()),
    })?;
    let fallback = Fallback::new(store, memory, shared.redis.nodes);
    Ok((AnyStore::Redis(Box::new(fallback)), secrets))
}

/// Looks after a shared store until the service ends.
pub(crate) async fn tend<C: Clock>(shared: Arc<ServiceContext<C>>) {
    let mut tick = interval(TEND);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut log = ServerLog::default();
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        tend_once(&shared).await;
        let servers = store.main();
        if servers.has_parts() {
            let now = shared.keeper.clock().now();
            for event in log.changes(&servers.server_health(), now) {
                shared.sink.emit(&event);
            }
        }
    }
}

/// Compares the clock of a shared store with ours until the service ends.
pub(crate) async fn compare_clocks<C: Clock>(shared: Arc<ServiceContext<C>>) {
    let mut tick = interval(COMPARE);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        if store.is_asked() {
            compare_once(&shared, store.main()).await;
        }
    }
}

/// Compares the clocks of all servers with ours; the largest difference counts.
async fn compare_once<C: Clock>(shared: &ServiceContext<C>, store: &RedisStore) {
    let unix = || shared.origin().unix_nanos(shared.keeper.clock().now());
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
    if let Some(offset) = furthest {
        shared.metrics.clock_offset.store(offset);
    }
}

/// Looks after a shared store, and emits an event when its health changes.
pub(crate) async fn tend_once<C: Clock>(shared: &ServiceContext<C>) {
    let Some(store) = shared.keeper.store().shared() else {
        return;
    };
    let now = shared.keeper.clock().now();
    match store.tend(now).await {
        Some(HealthChange::Down(error)) => shared.sink.emit(&Event::StoreDown { error }),
        Some(HealthChange::Up(debited)) => shared.sink.emit(&Event::StoreUp { debited }),
        None => {}
    }
    let stuck = !store.is_asked() && !has_fallback(shared);
    shared.set_stuck(stuck);
}

/// Returns true if any limit does something else than refuse while the store fails; without
/// limits nothing needs a store.
fn has_fallback<C: Clock>(shared: &ServiceContext<C>) -> bool {
    let refuses = |outage| matches!(outage, Outage::Deny | Outage::Error);
    let policy = shared.keeper.policy();
    let mut rules = policy.rules.iter();
    match shared.keeper.envoy() {
        Some(envoy) if !refuses(envoy.settings().outage) => true,
        envoy if rules.len() == 0 => envoy.is_none(),
        _ => rules.any(|rule| !refuses(rule.limit.outage)),
    }
}
