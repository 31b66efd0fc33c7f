//! Bans: their ends are looked for once a second; those of the last process are listed at the start.

use std::time::Duration;

use ratekeeper_core::Key;

use crate::context::ServiceContext;
use crate::observe::standing_bans::MAX_BANS;

/// How often ends are looked for.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Lists the bans of the counters that the last process left in the memory store.
pub(crate) fn list_restored(shared: &ServiceContext) {
    let (store, now) = (shared.keeper.store().local(), shared.now());
    let policy = shared.keeper.policy();
    let banning = policy.rules.iter();
    for rule in banning.filter(|rule| rule.limit.algorithm.bans().is_some()) {
        for ban in rule.limits().flat_map(|it| store.bans(it, MAX_BANS, now)) {
            let left = ban.decision.verdict.retry_after().unwrap_or_default();
            let key = Key::from_bytes(&ban.key);
            shared.observers.bans.begin(rule.limit.id, key, now + left);
        }
    }
}

/// Reports the bans that have ended.
pub(super) fn report_ends(shared: &ServiceContext) {
    let ended = shared.observers.bans.look(shared.now());
    if ended.is_empty() {
        return;
    }
    let policy = shared.keeper.policy();
    let reveal = shared.key_reveal(policy.settings.reveal_keys);
    for bans in ended {
        let mut rules = policy.rules.iter();
        let Some(rule) = rules.find(|rule| rule.limit.id == bans.limit) else {
            continue; // the policy has just lost it
        };
        let key = reveal.text(rule, Key::from_bytes(&bans.key));
        let (limit, suppressed) = (&*rule.limit.name, bans.others);
        tracing::info!(event = "ban.ended", limit, key, suppressed);
    }
}
