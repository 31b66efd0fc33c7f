//! Install: new policies, and a wall clock that was set, while requests are decided.
//!
//! ```text
//!   install(policy) --> windows by the wall clock --> ids by name --> replaces the old one whole
//!                                                     (a name keeps its id, so its counters too)
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ratekeeper_core::{Limit, LimitId, Origin};
use ratekeeper_policy::{Charges, Numbers, Policy, Rule, envoy};
use ratekeeper_store::Store;

use super::Keeper;
use crate::Clock;

/// Maximum number of pairs of a limit and a caller's numbers that have counters of their own.
pub const MAX_REPLACED: usize = 1_024;

/// Position of the clock's zero on the wall clock, for policies and configurations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zero {
    pub(super) origin: Origin,
    /// Number of times it was moved.
    pub(super) moves: u32,
}

/// The ids of limits. A name keeps its id for as long as the process runs.
#[derive(Debug, Default)]
pub(super) struct LimitIds {
    limits: HashMap<Arc<str>, LimitId>,
    /// The policy before the current one, kept until the next is installed: a request that still
    /// has it would else be the last that does, and wait until 100,000 overrides are freed.
    former: Option<Arc<Policy>>,
    /// Ids of limits with numbers replaced by callers.
    replaced: HashMap<(LimitId, Numbers), LimitId>,
}

impl LimitIds {
    fn next(&self) -> LimitId {
        let count = self.limits.len() + self.replaced.len();
        LimitId::new(u32::try_from(count).unwrap_or(u32::MAX))
    }

    fn of(&mut self, name: &Arc<str>) -> LimitId {
        let next = self.next();
        *self.limits.entry(Arc::clone(name)).or_insert(next)
    }

    /// Returns the id of a limit with a caller's numbers; `None` beyond [`MAX_REPLACED`] of them.
    fn of_replaced(&mut self, limit: &Limit, numbers: Numbers) -> Option<LimitId> {
        let next = self.next();
        let full = self.replaced.len() >= MAX_REPLACED;
        match self.replaced.entry((limit.id, numbers)) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(_) if full => None,
            Entry::Vacant(new) => Some(*new.insert(next)),
        }
    }
}

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Returns the limit of each set of numbers that a plan or an override has, or had.
    pub fn owners(&self) -> HashMap<LimitId, LimitId> {
        let ids = self.ids.lock();
        let numbers = ids.limits.iter();
        let numbers = numbers.filter_map(|(name, id)| {
            let (limit, _) = name.split_once('=')?;
            Some((*id, *ids.limits.get(limit)?))
        });
        numbers.collect()
    }

    /// Replaces the policy: the next request of every key meets the new numbers. Usage belongs to
    /// the name of a limit, and stays. Returns the new version.
    pub fn install(&self, mut policy: Policy) -> u32 {
        let mut ids = self.ids.lock();
        policy.set_origin(self.zero().origin);
        let before = self.policy.load();
        policy.version = before.version + 1;
        policy.keep_signals(&before);
        policy.by_hand = Arc::clone(&before.by_hand);
        let version = policy.version;
        for limit in policy.rules.limits_mut() {
            limit.id = ids.of(&limit.name);
            limit.version = version;
        }
        policy.rules.relate_limits();
        self.reservations.install(&policy);
        let policy = Arc::new(policy);
        ids.former = Some(self.policy.swap(Arc::clone(&policy)));
        drop(ids);
        if before.version > 0 {
            let limits = policy.rules.iter().flat_map(Rule::limits);
            self.store.adopt(&limits, self.clock.now());
        }
        version
    }

    /// Replaces the configuration of the rate limit service; counters stay with their domains.
    pub fn install_envoy(&self, mut config: envoy::EnvoyConfig) {
        let zero = self.zero();
        config.set_origin(zero.origin);
        let mut ids = self.ids.lock();
        for limit in config.limits_mut() {
            limit.id = ids.of(&limit.name);
            // Their windows change with the zero only; counters are carried over then.
            limit.version = 1 + zero.moves;
        }
        self.envoy.store(Some(Arc::new(config)));
    }

    /// Sets the position of the clock's zero on the wall clock, after the wall clock was set.
    /// Policies and configurations that are installed from now on have the windows of the new wall
    /// clock; active hours follow it at once. For counters in this process only, because a shared
    /// store has its own clock.
    pub fn set_origin(&self, origin: Origin) {
        self.set_wall_origin(origin);
        let mut zero = self.zero.lock();
        zero.moves += u32::from(zero.origin != origin);
        zero.origin = origin;
    }

    /// Like [`set_origin`](Self::set_origin), for active hours and signals only. If the wall clock
    /// was set back, the levels of signals are cleared, because they would last too long.
    pub fn set_wall_origin(&self, origin: Origin) {
        let before = self
            .wall_origin
            .swap(origin.as_unix_nanos(), Ordering::Relaxed);
        if before > origin.as_unix_nanos() {
            self.policy
                .load()
                .signals()
                .for_each(|signal| signal.clear());
        }
    }

    /// Returns the position of the clock's zero on the wall clock, as last set.
    pub fn wall_origin(&self) -> Origin {
        Origin::from_unix_nanos(self.wall_origin.load(Ordering::Relaxed))
    }

    fn zero(&self) -> Zero {
        *self.zero.lock()
    }

    /// Gives limits with a caller's numbers ids of their own, because a store keeps one set of
    /// numbers for a limit. Beyond `MAX_REPLACED`, the limit's own numbers hold.
    pub(crate) fn number_replaced(&self, charges: &mut Charges) {
        if charges.replaced.is_empty() {
            return;
        }
        let mut ids = self.ids.lock();
        for entry in &mut charges.entries {
            let limit = entry
                .replaced
                .and_then(|at| charges.replaced.get_mut(at as usize));
            let Some((limit, numbers)) = limit else {
                continue;
            };
            match ids.of_replaced(limit, *numbers) {
                Some(id) => limit.id = id,
                None => entry.replaced = None,
            }
        }
    }
}
