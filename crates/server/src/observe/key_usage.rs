//! Key usage: the keys of each limit and their memory, those with other numbers of the limit among
//! them.

use std::collections::{BTreeMap, HashMap};

use ratekeeper_core::LimitId;
use ratekeeper_store::{LimitUsage, Usage};

/// Adds the keys with other numbers of a limit to its own: no variant is shown by itself. Those of
/// numbers that the policy no longer has are among them, so that no count goes back. The result is
/// in the order of the ids.
pub(crate) fn with_variants(owners: &HashMap<LimitId, LimitId>, mut usage: Usage) -> Usage {
    let mut merged: BTreeMap<LimitId, LimitUsage> = BTreeMap::new();
    for one in usage.limits {
        let id = owners.get(&one.id).copied().unwrap_or(one.id);
        let all = merged.entry(id).or_default();
        all.id = id;
        all.keys += one.keys;
        all.bytes += one.bytes;
        all.evicted.idle += one.evicted.idle;
        all.evicted.budget += one.evicted.budget;
        all.lapsed += one.lapsed;
    }
    usage.limits = merged.into_values().collect();
    usage
}

/// Returns the usage of a limit from the list that [`with_variants`] makes.
pub(crate) fn usage_of(usage: &Usage, id: LimitId) -> LimitUsage {
    let at = usage.limits.binary_search_by_key(&id, |used| used.id);
    at.map_or_else(|_| LimitUsage::default(), |at| usage.limits[at])
}
