//! By hand: keys that operators banned or allowed for a time, in force in every process.
//!
//! ```text
//!   POST /v1/bans --> the shared store --> each process, at most a second later
//!                 '-> this process, at once --> by-hand.state with the next saved state,
//!                                               without a shared store
//! ```

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::{Key, MAX_BAN, Nanos};
use ratekeeper_policy::{HandAct, HandTable, Rule};
use ratekeeper_store::StoreError;
use tokio::time::{MissedTickBehavior, interval};

use crate::context::ServiceContext;
use crate::observe::standing_bans::counts_by_hand;

/// How often a shared store is asked for changes: with the time of the call, a change is in force
/// everywhere within a second.
const FOLLOW: Duration = Duration::from_millis(800);

/// Changes the table, here and in the shared store; returns false if `change` does. It is called
/// again if another operator was faster.
///
/// # Errors
/// When the shared store does not answer.
pub(crate) async fn update(
    shared: &ServiceContext,
    change: impl Fn(&mut HandTable) -> bool,
) -> Result<bool, StoreError> {
    loop {
        refresh(shared).await?;
        let by_hand = Arc::clone(&shared.keeper.policy().by_hand);
        let before = by_hand.table();
        let mut next = (*before).clone();
        next.prune(shared.unix_nanos() / 1_000_000);
        if !change(&mut next) {
            return Ok(false);
        }
        next.renew(shared.unix_nanos());
        if let Some(store) = shared.keeper.store().shared() {
            let (known, table) = (before.version, next.to_bytes());
            if !store.main().set_by_hand(known, table, MAX_BAN).await? {
                continue;
            }
        }
        if by_hand.replace(&before, next) {
            return Ok(true);
        }
    }
}

/// Copies the table of a shared store, if it has changed; writes ours back to a store that has lost
/// it, or has an older one.
///
/// # Errors
/// When the shared store does not answer; the last copy stays.
pub(crate) async fn refresh(shared: &ServiceContext) -> Result<(), StoreError> {
    if let Some(store) = shared.keeper.store().shared() {
        let by_hand = Arc::clone(&shared.keeper.policy().by_hand);
        let before = by_hand.table();
        if let Some(bytes) = store.main().by_hand(before.version).await? {
            let found = HandTable::from_bytes(&bytes);
            if found.version < before.version {
                let (known, table) = (found.version, before.to_bytes());
                store.main().set_by_hand(known, table, MAX_BAN).await?;
            } else {
                by_hand.replace(&before, found);
            }
        }
    }
    Ok(())
}

/// Copies the table of a shared store until the service ends. While the store fails, the last copy
/// stays in force.
pub(crate) async fn follow(shared: Arc<ServiceContext>) {
    let mut tick = interval(FOLLOW);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(store) = shared.keeper.store().shared() {
        tick.tick().await;
        if store.is_asked() && refresh(&shared).await.is_err() {
            store.doubt(shared.now()).await;
        }
    }
}

/// Returns the act on a key, and the time that is left.
pub(crate) fn of_key(
    shared: &ServiceContext,
    rule: &Rule,
    key: Key<'_>,
) -> Option<(HandAct, Nanos)> {
    let unix_millis = shared.unix_nanos() / 1_000_000;
    let policy = shared.keeper.policy();
    policy.by_hand.of(&rule.limit.name, key, unix_millis)
}

/// Returns the number of keys of a limit that are banned: by the policy at this process, or by hand.
pub(crate) fn banned_keys(shared: &ServiceContext, rule: &Rule) -> u64 {
    let policy = shared.keeper.policy();
    let [by_hand, _] = counts_by_hand(&policy, rule, shared.unix_millis(shared.now()));
    shared.observers.bans.count(rule.limit.id) + by_hand
}
