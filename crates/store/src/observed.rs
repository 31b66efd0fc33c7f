//! Observed: a store that reports each decision to an observer.
//!
//! ```text
//!   decide --> store --> decisions --> observer, charge by charge --> as the store answers
//! ```
//!
//! Looks, refunds, settlements and resets decide nothing, and are not reported.

use ratekeeper_core::{Charge, Decision, Limit, Origin, Time};

use crate::act::{ActAnswer as _, ActItem as _};
use crate::{ActKind, Store, StoreAct, StoreError};

/// Receives each decision of an [`Observed`] store. It is called on the path of the request, so it
/// must be quick; a closure of a charge and its decision is one.
pub trait Observer: Send + Sync {
    /// Receives the decision about one charge. The request may be refused by another.
    fn decided(&self, charge: &Charge<'_>, decision: &Decision);
}

impl<F: Fn(&Charge<'_>, &Decision) + Send + Sync> Observer for F {
    fn decided(&self, charge: &Charge<'_>, decision: &Decision) {
        self(charge, decision);
    }
}

/// Each decision goes to both.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn decided(&self, charge: &Charge<'_>, decision: &Decision) {
        self.0.decided(charge, decision);
        self.1.decided(charge, decision);
    }
}

/// A store that reports each decision to an observer.
///
/// ```
/// use std::sync::Mutex;
/// use ratekeeper_core::{
///     AnyAlgorithm, Charge, Decision, Gcra, Key, Limit, LimitId, Mode, Outage, Permits, Time,
/// };
/// use ratekeeper_store::{MemoryConfig, MemoryStore, Observed, Store};
/// # use std::{future::Future, pin::pin, task::{Context, Poll, Waker}};
///
/// let refused = Mutex::new(Vec::new());
/// let store = Observed::new(
///     MemoryStore::new(MemoryConfig::default()),
///     |charge: &Charge<'_>, decision: &Decision| {
///         if !decision.verdict.allows() {
///             refused.lock().unwrap().push(charge.limit.name.to_string());
///         }
///     },
/// );
/// let limit = Limit {
///     name: "logins".into(),
///     id: LimitId::new(0),
///     version: 1,
///     outage: Outage::Local,
///     scope: ratekeeper_core::LimitScope::Cluster,
///     keys: ratekeeper_core::LimitKeys::All,
///     algorithm: Gcra::token_bucket("1/1h".parse()?)?.into(),
/// };
/// let (key, cost, mode) = (Key::ALL, Permits::ONE, Mode::Enforce);
/// let charges = [Charge { limit: &limit, key, cost, mode }];
/// for _ in 0..2 {
///     let decided = pin!(store.decide(&charges, Time::ZERO));
///     assert!(decided.poll(&mut Context::from_waker(Waker::noop())).is_ready());
/// }
/// assert_eq!(*refused.lock().unwrap(), ["logins"]);
/// # Ok::<(), ratekeeper_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Observed<S, O> {
    store: S,
    observer: O,
}

impl<S: Store, O: Observer> Observed<S, O> {
    /// The same store, observed.
    pub const fn new(store: S, observer: O) -> Self {
        Self { store, observer }
    }

    /// Returns the store.
    pub const fn store(&self) -> &S {
        &self.store
    }

    /// Returns the observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }
}

impl<S: Store, O: Observer> Store for Observed<S, O> {
    fn answers_at_once(&self) -> bool {
        self.store.answers_at_once()
    }

    fn set_origin(&self, origin: Origin) {
        self.store.set_origin(origin);
    }

    fn adopt<'l>(&self, limits: &(impl Iterator<Item = &'l Limit> + Clone), now: Time) {
        self.store.adopt(limits, now);
    }

    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let answer = self.store.settle(act, items, now).await?;
        if matches!(act.kind(), ActKind::Decide(_))
            && let Some(decisions) = answer.decisions()
        {
            let mode = |at: usize| items[at].charge().mode;
            for (at, (item, decision)) in items.iter().zip(&decisions.each).enumerate() {
                // An alternative that was not asked decided nothing.
                if decisions.asks(at, mode) {
                    self.observer.decided(&item.charge(), decision);
                }
            }
        }
        Ok(answer)
    }
}
