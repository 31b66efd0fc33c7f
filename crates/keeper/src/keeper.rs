//! Keeper: the whole path of a request on one screen.
//!
//! ```text
//!   facts --policy--> charges --store--> decisions --> answer
//!            (which limits,     (all or
//!             whose keys)        none)
//! ```

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use ratekeeper_core::{Charge, Lend, Limit, LimitId, Mode, Origin, Permits, Time};
use ratekeeper_policy::{Charges, Facts, Numbers, Policy, WallTime, envoy};
use ratekeeper_store::{Decisions, MemoryStore, Store, StoreError};
use smallvec::SmallVec;

use crate::call::is_refunded;
use crate::scope::{Scope, keep_entries};
use crate::{Answer, Clock, Reservations, at_once};

/// A policy, a store and a clock: decides requests for every front end.
///
/// ```
/// use ratekeeper::policy::Facts;
/// use ratekeeper::{Keeper, Scope, at_once};
///
/// let keeper = Keeper::open(
///     r#"
///     version = 1
///     [[limit]]
///     name  = "api"
///     key   = ["all"]
///     limit = "2/1h"
///     "#,
/// )?;
/// for expected in [true, true, false] {
///     let answer = at_once(keeper.check(&Facts::default(), Scope::All)).unwrap();
///     assert_eq!(answer.allowed(), expected);
/// }
/// # Ok::<(), ratekeeper::OpenError>(())
/// ```
#[derive(Debug)]
pub struct Keeper<S, C> {
    store: S,
    clock: C,
    policy: ArcSwap<Policy>,
    envoy: ArcSwapOption<envoy::EnvoyConfig>,
    ids: Mutex<LimitIds>,
    zero: Mutex<Zero>,
    /// Unix time of the clock's zero, in nanoseconds, for active hours.
    wall_origin: AtomicU64,
    pub(crate) reservations: Reservations,
}

/// Position of the clock's zero on the wall clock, for policies and configurations.
#[derive(Clone, Copy, Debug)]
struct Zero {
    origin: Origin,
    /// Number of times it was moved.
    moves: u32,
}

/// The ids of limits: given once, for as long as the process runs.
#[derive(Debug, Default)]
struct LimitIds {
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

    /// Returns `None` if there are too many.
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

/// Maximum number of limits with numbers of callers that a keeper keeps apart.
pub const MAX_REPLACED: usize = 1_024;

/// The charges of a request as the store takes them.
pub(crate) type ChargeList<'a> = SmallVec<[Charge<'a>; 4]>;

impl<S: Store, C: Clock> Keeper<S, C> {
    /// Creates a keeper of `policy`. The policy is moved to the zero of `clock`, and the store
    /// receives its origin, so that windows and calendars begin at the same moments for all
    /// processes.
    pub fn new(policy: Policy, store: S, clock: C) -> Self {
        let origin = clock.origin();
        store.set_origin(origin);
        let keeper = Self {
            store,
            clock,
            policy: ArcSwap::from_pointee(policy.clone()),
            envoy: ArcSwapOption::empty(),
            ids: Mutex::default(),
            zero: Mutex::new(Zero { origin, moves: 0 }),
            wall_origin: AtomicU64::new(origin.as_unix_nanos()),
            reservations: Reservations::default(),
        };
        keeper.install(policy);
        keeper
    }

    /// Replaces the policy: the next request of every key meets the new numbers; balances stay with
    /// the limits' names. Returns the new version.
    pub fn install(&self, mut policy: Policy) -> u32 {
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        policy.set_origin(self.zero().origin);
        let before = self.policy.load();
        policy.version = before.version + 1;
        policy.keep_signals(&before);
        let version = policy.version;
        for limit in policy.rules.limits_mut() {
            limit.id = ids.of(&limit.name);
            limit.version = version;
        }
        self.reservations.install(&policy);
        ids.former = Some(self.policy.swap(Arc::new(policy)));
        version
    }

    /// Replaces the configuration of the rate limit service; counters stay with their domains.
    pub fn install_envoy(&self, mut config: envoy::EnvoyConfig) {
        let zero = self.zero();
        config.set_origin(zero.origin);
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        for limit in config.limits_mut() {
            limit.id = ids.of(&limit.name);
            // Their windows change with the zero only; counters are carried over then.
            limit.version = 1 + zero.moves;
        }
        self.envoy.store(Some(Arc::new(config)));
    }

    /// Moves the zero of the clock on the wall clock, which has been set. Policies and
    /// configurations that are installed from now on have the windows of the new wall clock. For
    /// counters in this process only, because a shared store has a clock of its own. Active hours
    /// follow at once.
    pub fn set_origin(&self, origin: Origin) {
        self.set_wall_origin(origin);
        let mut zero = self.zero.lock().unwrap_or_else(PoisonError::into_inner);
        zero.moves += u32::from(zero.origin != origin);
        zero.origin = origin;
    }

    /// Moves the wall clock of active hours and signals, and nothing else. Levels of signals end,
    /// because a clock that is set back would let them last longer.
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

    /// Returns the wall clock's time at `now`.
    pub(crate) fn wall(&self, now: Time) -> WallTime {
        WallTime::new(self.wall_origin(), now)
    }

    fn zero(&self) -> Zero {
        *self.zero.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the current configuration of the rate limit service.
    pub fn envoy(&self) -> Option<Arc<envoy::EnvoyConfig>> {
        self.envoy.load_full()
    }

    /// Decides one request and charges it, all limits together or none.
    ///
    /// Limits of concurrency are only looked at: they refuse if no permit is free, and lend
    /// nothing, because nothing would come back. [`acquire`](Self::acquire) takes permits.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn check(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let now = self.clock.now();
        let (policy, charges) = self.charges(facts, scope, now);
        let decisions = {
            let list = list(&charges, &policy);
            if refused_at_once(&charges, &policy) {
                self.refused_unasked(&list, Lend::Nothing, now).await?
            } else if list.iter().any(lends) {
                self.store.acquire(&list, Lend::Nothing, now).await?
            } else {
                self.store.decide(&list, now).await?
            }
        };
        Ok(Answer::new(policy, charges, decisions, now))
    }

    /// Returns the answer that [`check`](Self::check) would return; charges nothing, and shows the
    /// current state of the limits.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn peek(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let now = self.clock.now();
        let (policy, charges) = self.charges(facts, scope, now);
        let refused = refused_at_once(&charges, &policy);
        let shown = if refused { free } else { list };
        let mut decisions = self.store.look(&shown(&charges, &policy), now).await?;
        decisions.admitted &= !refused;
        Ok(Answer::new(policy, charges, decisions, now))
    }

    /// Refunds the charge of [`check`](Self::check), but no lent permits; the answer shows the
    /// limits after it. Of a limit and its alternatives, the limit receives the refund, unless
    /// `scope` names the alternative that was charged, and not the limit. A limit that counts values
    /// keeps them, because an earlier request may have had the same.
    ///
    /// # Errors
    /// When the store cannot answer, and [`StoreError::Unsupported`] if one of the limits cannot
    /// take permits back: then nothing is given back.
    pub async fn refund(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let now = self.clock.now();
        let (policy, charges) = self.charges(facts, scope, now);
        let mut rates = list(&charges, &policy);
        let mut before = None;
        rates.retain(|charge| {
            let is_refunded = is_refunded(charge.mode, before.replace(charge.mode));
            is_refunded && !lends(charge)
        });
        self.store.refund(&rates, now).await?;
        drop(rates);
        let decisions = self.store.look(&free(&charges, &policy), now).await?;
        Ok(Answer::new(policy, charges, decisions, now))
    }

    /// Resets the states of a request's limits and keys; the answer shows them fresh.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn reset(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let now = self.clock.now();
        let (policy, charges) = self.charges(facts, scope, now);
        self.store.reset(&list(&charges, &policy), now).await?;
        let decisions = self.store.look(&free(&charges, &policy), now).await?;
        Ok(Answer::new(policy, charges, decisions, now))
    }

    /// Returns the current policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Returns the current policy, for a short look: it changes no reference count, to avoid
    /// contention between threads.
    pub fn look_at_policy(&self) -> impl Deref<Target = Arc<Policy>> + use<S, C> {
        self.policy.load()
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    #[inline]
    pub(crate) fn charges(
        &self,
        facts: &Facts<'_>,
        scope: Scope<'_>,
        now: Time,
    ) -> (Arc<Policy>, Charges) {
        let policy = self.policy.load_full();
        let mut charges = Charges::default();
        policy.charges(facts, self.wall(now), &mut charges);
        if let Scope::Only(names) = scope {
            let named = |rule: &u32| {
                let rule = policy.rules.get(*rule as usize);
                rule.is_some_and(|rule| names.iter().any(|name| rule.is_named(name)))
            };
            keep_entries(&mut charges, &policy, named);
            charges.missing.retain(|rule| named(rule));
            charges.barred.retain(|barred| named(&barred.rule));
        }
        self.number_replaced(&mut charges);
        (policy, charges)
    }

    /// Decides a request that is refused because a key part is missing or the caller lets no
    /// request pass: it is charged only under limits that count denials.
    pub(crate) async fn refused_unasked(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> Result<Decisions, StoreError> {
        let counted = charges.iter().copied().map(|charge| {
            if charge.limit.algorithm.charges_even_if_refused(lend) {
                charge
            } else {
                at_no_cost(charge)
            }
        });
        let counted: ChargeList<'_> = counted.collect();
        let mut decisions = self.store.acquire(&counted, lend, now).await?;
        decisions.admitted = false;
        Ok(decisions)
    }

    /// Gives limits with a caller's numbers ids of their own, because a store keeps one set of
    /// numbers for a limit. Beyond `MAX_REPLACED`, the limit's own numbers hold.
    pub(crate) fn number_replaced(&self, charges: &mut Charges) {
        if charges.replaced.is_empty() {
            return;
        }
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
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

impl<C: Clock> Keeper<MemoryStore, C> {
    /// [`check`](Self::check) on the memory store, which always answers, and at once. For the
    /// other calls there is [`at_once`].
    pub fn check_now(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Answer {
        let answer = at_once(self.check(facts, scope));
        answer.unwrap_or_else(|_| unreachable!("the memory store always answers"))
    }
}

/// Returns true if an enforced limit refuses without being asked, because a part of its key is
/// missing or the caller lets no request pass.
pub(crate) fn refused_at_once(charges: &Charges, policy: &Policy) -> bool {
    let mut missing = charges.missing.iter();
    let is_enforced = |rule: &u32| {
        let rule = policy.rules.get(*rule as usize);
        rule.is_some_and(|rule| rule.mode_of(None) == Some(Mode::Enforce))
    };
    let mut barred = charges.barred.iter();
    missing.any(is_enforced) || barred.any(|barred| barred.mode == Mode::Enforce)
}

pub(crate) fn list<'a>(charges: &'a Charges, policy: &'a Policy) -> ChargeList<'a> {
    charges.iter(policy).collect()
}

/// Returns the same charges at no cost: they only look.
fn free<'a>(charges: &'a Charges, policy: &'a Policy) -> ChargeList<'a> {
    charges.iter(policy).map(at_no_cost).collect()
}

/// Returns true if the limit lends permits.
pub(crate) fn lends(charge: &Charge<'_>) -> bool {
    charge.limit.algorithm.concurrency().is_some()
}

fn at_no_cost(charge: Charge<'_>) -> Charge<'_> {
    Charge {
        cost: Permits::ZERO,
        ..charge
    }
}
