//! Keeper: the path of a request, from its facts to its answer.
//!
//! ```text
//!   facts --policy--> charges --store--> decisions --> answer
//!            (which limits,     (all or
//!             which keys)        none)
//! ```
//!
//! The policy may be replaced at any time: see `keeper/install.rs`.

mod install;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::{ArcSwap, ArcSwapOption};
use ratekeeper_core::{Charge, Lend, Mode, Nanos, Permits, Time};
use ratekeeper_policy::{Entry, Facts, Policy, WallTime, envoy};
use ratekeeper_store::{Decisions, Lock, MemoryStore, Store, StoreError};
use smallvec::SmallVec;

use super::call::is_refunded;
use super::scope::{Scope, keep_entries};
use crate::permit::lends;
use crate::{Answer, Clock, Reservations, at_once};
pub use install::MAX_REPLACED;
use install::{LimitIds, Zero};

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
    ids: Lock<LimitIds>,
    zero: Lock<Zero>,
    /// Unix time of the clock's zero, in nanoseconds, for active hours.
    wall_origin: AtomicU64,
    pub(crate) reservations: Reservations,
}

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
            ids: Lock::default(),
            zero: Lock::new(Zero { origin, moves: 0 }),
            wall_origin: AtomicU64::new(origin.as_unix_nanos()),
            reservations: Reservations::default(),
        };
        keeper.install(policy);
        keeper
    }

    /// Returns the wall clock's time at `now`.
    pub(crate) fn wall(&self, now: Time) -> WallTime {
        WallTime::new(self.wall_origin(), now)
    }

    /// Returns the current configuration of the rate limit service.
    pub fn envoy(&self) -> Option<Arc<envoy::EnvoyConfig>> {
        self.envoy.load_full()
    }

    /// Decides one request and charges it, all limits together or none.
    ///
    /// Limits of concurrency are only looked at: they refuse if no permit is free, but lend none,
    /// because no call would give it back. [`acquire`](Self::acquire) takes permits.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn check(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let mut answer = self.unasked();
        self.check_into(&mut answer, facts, scope).await?;
        Ok(answer)
    }

    /// Returns the answer to a request of now whose limits were not asked yet.
    #[inline]
    pub(crate) fn unasked(&self) -> Answer {
        let now = self.clock.now();
        Answer::unasked(self.policy(), now)
    }

    /// Completes an answer by the decisions of the limits.
    #[inline]
    pub(crate) async fn check_into(
        &self,
        answer: &mut Answer,
        facts: &Facts<'_>,
        scope: Scope<'_>,
    ) -> Result<(), StoreError> {
        self.put_charges(facts, scope, answer);
        let decisions = self.decide_unlent(answer).await?;
        answer.set(decisions);
        Ok(())
    }

    /// Decides the charges of an answer; nothing is lent.
    #[inline]
    async fn decide_unlent(&self, answer: &Answer) -> Result<Decisions, StoreError> {
        let list = answer.list();
        let lend = if list.iter().any(lends) {
            Lend::Nothing
        } else {
            Lend::Unnamed
        };
        self.decide(&list, answer, lend).await
    }

    /// Decides `list`, the charges of an answer. Those of a request that is refused in any case,
    /// because a key part is missing or the caller has set a limit to zero, are charged only under
    /// limits that count denials.
    #[inline]
    pub(crate) async fn decide(
        &self,
        list: &[Charge<'_>],
        answer: &Answer,
        lend: Lend,
    ) -> Result<Decisions, StoreError> {
        let now = answer.decided_at();
        if !answer.is_refused_unasked() {
            return self.store.acquire(list, lend, now).await;
        }
        let counted = list.iter().map(|charge| {
            if charge.limit.algorithm.charges_even_if_refused(lend) {
                *charge
            } else {
                charge.at_cost(Permits::ZERO)
            }
        });
        let counted: ChargeList<'_> = counted.collect();
        let mut decisions = self.store.acquire(&counted, lend, now).await?;
        decisions.admitted = false;
        Ok(decisions)
    }

    /// Returns the answer that [`check`](Self::check) would return; charges nothing, and shows the
    /// current state of the limits.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn peek(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let mut answer = self.asked(facts, scope);
        let refused = answer.is_refused_unasked();
        let shown = if refused { Answer::free } else { Answer::list };
        let mut decisions = self
            .store
            .look(&shown(&answer), answer.decided_at())
            .await?;
        decisions.admitted &= !refused;
        answer.set(decisions);
        Ok(answer)
    }

    /// Gives back the charges of [`check`](Self::check), but no lent permits; the answer shows the
    /// limits after it. Of a limit and its alternatives, the limit receives the refund, unless
    /// `scope` names the alternative that was charged, and not the limit. A limit that counts
    /// distinct values keeps them, because an earlier request may have had the same value.
    ///
    /// # Errors
    /// When the store cannot answer, and [`StoreError::Unsupported`] if one of the limits cannot
    /// take permits back: then nothing is given back.
    pub async fn refund(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let answer = self.asked(facts, scope);
        let mut rates = answer.list();
        let mut before = None;
        rates.retain(|charge| {
            let is_refunded = is_refunded(charge.mode, before.replace(charge.mode));
            is_refunded && !lends(charge)
        });
        self.store.refund(&rates, answer.decided_at()).await?;
        drop(rates);
        self.shown(answer).await
    }

    /// Resets the states of a request's limits and keys; the answer shows them fresh.
    ///
    /// # Errors
    /// When the store cannot answer.
    pub async fn reset(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Result<Answer, StoreError> {
        let answer = self.asked(facts, scope);
        let now = answer.decided_at();
        self.store.reset(&answer.list(), now).await?;
        self.shown(answer).await
    }

    /// Completes an answer by the present state of its limits.
    async fn shown(&self, mut answer: Answer) -> Result<Answer, StoreError> {
        let now = answer.decided_at();
        let decisions = self.store.look(&answer.free(), now).await?;
        answer.set(decisions);
        Ok(answer)
    }

    /// Returns the current policy.
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Returns the current policy, for a short time. It changes no reference count, to avoid
    /// contention between threads.
    pub fn look_at_policy(&self) -> impl Deref<Target = Arc<Policy>> + use<S, C> {
        self.policy.load()
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the clock.
    pub fn clock(&self) -> &C {
        &self.clock
    }

    /// Sets the level of a signal, in parts per million (microseconds for a latency), for this time
    /// from now on. Returns false if no limit of the policy names the signal.
    pub fn set_signal(&self, name: &str, level: u32, lasts: impl Into<Nanos>) -> bool {
        let policy = self.look_at_policy();
        let mut signals = policy.signals();
        let signal = signals.find(|signal| signal.name() == name);
        let wall = self.wall(self.clock().now());
        signal
            .map(|signal| signal.set(level, wall, lasts))
            .is_some()
    }

    /// Returns the answer to a request of now with its charges, which are not decided yet.
    pub(crate) fn asked(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Answer {
        let mut answer = self.unasked();
        self.put_charges(facts, scope, &mut answer);
        answer
    }

    /// Finds the charges of a request.
    #[inline]
    pub(crate) fn put_charges(&self, facts: &Facts<'_>, scope: Scope<'_>, answer: &mut Answer) {
        let wall = self.wall(answer.decided_at());
        let (policy, charges) = (&answer.policy, &mut answer.charges);
        policy.charges(facts, wall, charges);
        if let Scope::Only(names) = scope {
            let named = |rule: &u32| (names.iter()).any(|name| policy.rules.is_named(*rule, name));
            keep_entries(charges, policy, named);
        }
        self.number_replaced(charges);
    }
}

impl<C: Clock> Keeper<MemoryStore, C> {
    /// [`check`](Self::check) on the memory store, which always answers, and at once. For the
    /// other calls there is [`at_once`].
    pub fn check_now(&self, facts: &Facts<'_>, scope: Scope<'_>) -> Answer {
        // Awaited here, so that no future carries the charges and the answer.
        let mut answer = self.unasked();
        self.put_charges(facts, scope, &mut answer);
        let decisions = at_once(self.decide_unlent(&answer));
        answer.set(decisions.unwrap_or_else(|_| unreachable!("the memory store always answers")));
        answer
    }
}

/// The charges of an answer, for the store.
impl Answer {
    pub(crate) fn list(&self) -> ChargeList<'_> {
        self.charges.iter(&self.policy).collect()
    }

    /// Returns the same charges at no cost, so that they are judged and change nothing.
    fn free(&self) -> ChargeList<'_> {
        let charges = self.charges.iter(&self.policy);
        charges.map(|it| it.at_cost(Permits::ZERO)).collect()
    }

    /// Returns true if an enforced limit refuses without a decision of the store, because a part of
    /// its key is missing, the caller has set the limit to zero, or an operator has banned the key.
    pub(crate) fn is_refused_unasked(&self) -> bool {
        let mut uncharged = self.charges.uncharged.iter();
        let is_banned = |entry: &Entry| entry.banned.is_some() && entry.mode == Mode::Enforce;
        uncharged.any(|uncharged| uncharged.reason.mode() == Some(Mode::Enforce))
            || self.charges.entries.iter().any(is_banned)
    }
}
