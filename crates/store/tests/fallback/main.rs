//! Decisions while a store fails, and the debits afterwards; in virtual time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod debts;
mod health;
mod outages;

use std::future::poll_fn;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use ratekeeper_core::{AnyAlgorithm, Charge, Gcra, Lend, Limit, Nanos, Outage, Time};
use ratekeeper_store::{
    ActItem as _, ActKind, Decisions, Fallback, HealthChange, MemoryConfig, MemoryStore, Remote,
    Store, StoreAct, StoreError, conformance,
};

/// A memory store behind a wire that can be cut.
struct Distant {
    store: MemoryStore,
    cut: AtomicBool,
    foreign: AtomicBool,
    /// Debits are not answered.
    stalls: AtomicBool,
    /// It notices by itself that it is cut, as a server of Redis does.
    notices: AtomicBool,
    /// Calls that reached the wire.
    calls: AtomicU64,
}

impl Distant {
    fn reach(&self) -> Result<&MemoryStore, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.cut.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("the wire is cut".into()));
        }
        Ok(&self.store)
    }
}

/// The key that holds a foreign value while `foreign` is true.
const FOREIGN: &[u8] = b"foreign";
/// The key that has too many requests.
const CROWDED: &[u8] = b"crowded";

impl Store for Distant {
    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let store = self.reach()?;
        let names = |key: &[u8]| items.iter().any(|item| item.charge().key.as_bytes() == key);
        let is_decided = act.kind() == ActKind::Decide(Lend::Unnamed);
        if is_decided && self.foreign.load(Ordering::Relaxed) && names(FOREIGN) {
            return Err(StoreError::Foreign("a list".into()));
        }
        if is_decided && names(CROWDED) {
            return Err(StoreError::Crowded);
        }
        store.settle(act, items, now).await
    }
}

impl Remote for Distant {
    async fn ping(&self) -> Result<(), StoreError> {
        self.reach().map(|_| ())
    }

    fn is_away(&self) -> bool {
        self.notices.load(Ordering::Relaxed) && self.cut.load(Ordering::Relaxed)
    }

    async fn debit(&self, charges: &[Charge<'_>], now: Time) -> Result<Decisions, StoreError> {
        let answered = |_: &mut Context<'_>| {
            if self.stalls.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
            Poll::Ready(())
        };
        poll_fn(answered).await;
        self.decide(charges, now).await
    }
}

fn fallback(nodes: u32) -> Fallback<Distant> {
    let memory = || MemoryStore::new(MemoryConfig::default());
    let distant = Distant {
        store: memory(),
        cut: AtomicBool::new(false),
        foreign: AtomicBool::new(true),
        stalls: AtomicBool::new(false),
        notices: AtomicBool::new(false),
        calls: AtomicU64::new(0),
    };
    Fallback::new(distant, memory(), NonZeroU32::new(nodes).unwrap())
}

fn cut(store: &Fallback<Distant>, cut: bool) {
    store.main().cut.store(cut, Ordering::Relaxed);
}

fn at(millis: u64) -> Time {
    Time::ZERO + Nanos::from_millis(millis)
}

fn limit(id: u32, outage: Outage, algorithm: impl Into<AnyAlgorithm>) -> Limit {
    Limit {
        outage,
        ..conformance::limit(id, algorithm)
    }
}

fn tokens(id: u32, outage: Outage, quota: &str) -> Limit {
    limit(
        id,
        outage,
        Gcra::token_bucket(quota.parse().unwrap()).unwrap(),
    )
}

fn charge(limit: &Limit, cost: u64) -> Charge<'_> {
    conformance::charge(limit, b"ada", cost)
}

/// The result of a future that never waits.
fn ready<T>(future: impl Future<Output = T>) -> T {
    use std::task::Waker;
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the future is ready on its first poll"),
    }
}

fn decide(store: &Fallback<Distant>, charges: &[Charge<'_>], now: Time) -> Decisions {
    ready(store.decide(charges, now)).unwrap()
}

/// Runs the upkeep at `now`, and returns the change of health.
fn tend(store: &Fallback<Distant>, now: Time) -> Option<HealthChange> {
    ready(store.tend(now))
}

/// Permits that remain, by the fallback.
fn remaining(store: &Fallback<Distant>, limit: &Limit, now: Time) -> u64 {
    let decisions = decide(store, &[charge(limit, 0)], now);
    decisions.each[0].remaining.get()
}

/// How many of a hundred requests of one permit pass at `now`.
fn passes(store: &Fallback<Distant>, limit: &Limit, now: Time) -> usize {
    let one = |_| decide(store, &[charge(limit, 1)], now).admitted;
    (0..100).map(one).filter(|admitted| *admitted).count()
}

#[test]
fn a_fallback_with_its_store_conforms() {
    conformance::check(|| fallback(3));
}

/// The fallback of a single process has the whole limit as its share.
#[test]
fn a_fallback_without_its_store_conforms() {
    conformance::check(|| {
        let store = fallback(1);
        cut(&store, true);
        Local(store)
    });
}

/// A fallback that makes resets, grants, and refunds and settlements of charges not made here in
/// memory: the real one fails them, because nothing would change where the states are.
struct Local(Fallback<Distant>);

impl Store for Local {
    async fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> Result<A::Answer, StoreError> {
        let local = self.0.local();
        match act.kind() {
            ActKind::GiveBack | ActKind::Settle => match self.0.settle(act, items, now).await {
                Err(StoreError::Unavailable(_)) => local.settle(act, items, now).await,
                refunded => refunded,
            },
            ActKind::Reset | ActKind::Grant(_) => {
                assert!(self.0.settle(act, items, now).await.is_err());
                local.settle(act, items, now).await
            }
            ActKind::Release | ActKind::Renew => local.settle(act, items, now).await,
            _ => self.0.settle(act, items, now).await,
        }
    }
}
