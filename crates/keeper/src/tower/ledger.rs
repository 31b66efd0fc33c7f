//! Ledger: the permits that requests hold, and how they come back.
//!
//! ```text
//!   lent --> held by the request, then by the body of its answer --> dropped: given back
//!              |    ^
//!              v    | a third of the lease has passed (one task for all loans of a length)
//!             renewed
//! ```
//!
//! A body may be dropped anywhere, also in a panic, so nothing may wait there. A store in memory
//! takes permits back at once. Calls to another store are made by a task of the runtime that the
//! request ran on, [`MAX_RETURNS`] at a time; beyond that, or without a runtime, the permits come
//! back when their lease ends.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use ratekeeper_core::{LeaseId, Nanos};
use tokio::runtime::Handle;

use super::hold::RequestHold;
use crate::Permit;
use crate::at_once::poll_once;

/// Maximum number of requests with permits on their way back to a store that must be waited for.
pub(super) const MAX_RETURNS: usize = 10_000;
/// Number of loans renewed by one call of the store.
const RENEWED_AT_ONCE: usize = 32;

/// A lender of permits.
pub(crate) trait PermitLender: Send + Sync + 'static {
    /// Returns true if no method below waits.
    fn answers_at_once(&self) -> bool;
    /// Takes permits back; those that cannot be returned now come back when the lease ends.
    fn take_back(&self, permits: &[Permit]) -> impl Future<Output = ()> + Send;
    /// Renews leases for their full length from now; returns the time until the first of them ends,
    /// `None` if none was renewed.
    fn prolong(&self, permits: &[Permit]) -> impl Future<Output = Option<Nanos>> + Send;
    /// Completes when `span` has passed.
    fn sleep(&self, span: Nanos) -> impl Future<Output = ()> + Send;
}

/// The permits that requests hold. Clones share them.
#[derive(Debug)]
pub(crate) struct Ledger<L> {
    shared: Arc<LedgerInner<L>>,
}

#[derive(Debug)]
struct LedgerInner<L> {
    lender: Arc<L>,
    /// By the length of the lease: at most one entry for each limit.
    loans: Mutex<BTreeMap<Nanos, LoanBatch>>,
    next: AtomicU64,
    returning: AtomicUsize,
}

/// Loans of one length.
#[derive(Debug, Default)]
struct LoanBatch {
    /// True if a task renews them.
    tended: bool,
    open: HashMap<u64, Arc<[Permit]>>,
}

clone_fields!([L] Ledger<L> { shared });

impl<L: PermitLender> Ledger<L> {
    pub(super) fn new(lender: Arc<L>) -> Self {
        let shared = LedgerInner {
            lender,
            loans: Mutex::default(),
            next: AtomicU64::new(0),
            returning: AtomicUsize::new(0),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns a guard that keeps these permits until it is dropped, and then gives them back;
    /// `None` if there are no permits. Without a runtime they last one lease.
    pub(super) fn hold(&self, lent: impl Iterator<Item = (Permit, Nanos)>) -> Option<RequestHold> {
        let mut lease = Nanos::MAX;
        let mut lent = lent.peekable();
        lent.peek()?;
        let permits: Arc<[Permit]> = lent
            .map(|(permit, length)| {
                lease = lease.min(length);
                permit
            })
            .collect();
        let shared = Arc::clone(&self.shared);
        let number = shared.next.fetch_add(1, Ordering::Relaxed);
        let runtime = Handle::try_current().ok();
        let starts = {
            let mut all = shared.loans.lock();
            let loans = all.entry(lease).or_default();
            loans.open.insert(number, Arc::clone(&permits));
            runtime.is_some() && !std::mem::replace(&mut loans.tended, true)
        };
        if let (Some(runtime), true) = (&runtime, starts) {
            let shared = Arc::clone(&shared);
            // Not under the lock, because a runtime that ends drops the task at once, which locks.
            let tending = Tending {
                shared,
                lease: Some(lease),
            };
            runtime.spawn(tending.tend(lease));
        }
        Some(RequestHold::Other(Box::new(Loan {
            shared,
            lease,
            number,
            permits,
            runtime,
        })))
    }
}

/// The permits that one request holds.
struct Loan<L: PermitLender> {
    shared: Arc<LedgerInner<L>>,
    lease: Nanos,
    number: u64,
    permits: Arc<[Permit]>,
    runtime: Option<Handle>,
}

impl<L: PermitLender> Drop for Loan<L> {
    fn drop(&mut self) {
        if let Some(loans) = self.shared.loans.lock().get_mut(&self.lease) {
            loans.open.remove(&self.number);
        }
        let shared = &self.shared;
        if shared.lender.answers_at_once() {
            let _ = poll_once(shared.lender.take_back(&self.permits));
        } else if let Some(runtime) = &self.runtime
            && let Some(place) = Returning::place(shared)
        {
            let permits = Arc::clone(&self.permits);
            runtime.spawn(async move { place.0.lender.take_back(&permits).await });
        }
    }
}

/// A place among the requests with permits on their way back.
struct Returning<L>(Arc<LedgerInner<L>>);

impl<L> Returning<L> {
    fn place(shared: &Arc<LedgerInner<L>>) -> Option<Self> {
        let place = Self(Arc::clone(shared)); // dropped, it leaves
        let before = shared.returning.fetch_add(1, Ordering::Relaxed);
        (before < MAX_RETURNS).then_some(place)
    }
}

impl<L> Drop for Returning<L> {
    fn drop(&mut self) {
        self.0.returning.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Renews the loans of one length until there are no more. The task may be dropped with its
/// runtime; then the next loan starts another.
struct Tending<L> {
    shared: Arc<LedgerInner<L>>,
    /// `None` once there are no more.
    lease: Option<Nanos>,
}

impl<L: PermitLender> Tending<L> {
    async fn tend(mut self, lease: Nanos) {
        let mut shortest = lease;
        loop {
            // Leaves two more chances if the store fails once.
            let pause = Nanos::from_nanos(shortest.as_nanos().div_ceil(3));
            self.shared.lender.sleep(pause).await;
            let open = self.open(lease);
            if open.is_empty() {
                return;
            }
            let mut left = Vec::new();
            for some in open.chunks(RENEWED_AT_ONCE) {
                let permits: Vec<Permit> = some.iter().flat_map(|it| it.iter().cloned()).collect();
                left.extend(self.shared.lender.prolong(&permits).await);
            }
            // A change of the limit may have shortened it.
            shortest = left.into_iter().min().map_or(shortest, |it| it.min(lease));
        }
    }

    /// Returns the open loans. If there are none, the next loan starts another task.
    fn open(&mut self, lease: Nanos) -> Vec<Arc<[Permit]>> {
        let mut all = self.shared.loans.lock();
        let loans = all.get(&lease);
        let open: Vec<_> = loans.map_or_else(Vec::new, |it| it.open.values().cloned().collect());
        if open.is_empty() {
            all.remove(&lease);
            self.lease = None;
        }
        open
    }
}

impl<L> Drop for Tending<L> {
    fn drop(&mut self) {
        let Some(lease) = self.lease else {
            return;
        };
        if let Some(loans) = self.shared.loans.lock().get_mut(&lease) {
            loans.tended = false;
        }
    }
}

/// Returns an unguessable name for a loan: a number, hashed with a secret of this process.
pub(super) fn new_lease() -> LeaseId {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let half = |which: u8| SECRET.hash_one((number, which)).to_le_bytes();
    let [a, b] = [half(0), half(1)];
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a);
    bytes[8..].copy_from_slice(&b);
    LeaseId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use ratekeeper_core::Key;
    use tokio::task::yield_now;

    use super::*;
    use crate::{ManualClock, Timer};

    /// Counts the calls; permits that come back never arrive.
    #[derive(Default)]
    struct Far {
        clock: ManualClock,
        prolonged: AtomicUsize,
        returning: AtomicUsize,
        /// What a renewal returns.
        left: Mutex<Option<Nanos>>,
    }

    impl PermitLender for Far {
        fn answers_at_once(&self) -> bool {
            false
        }

        async fn take_back(&self, permits: &[Permit]) {
            self.returning.fetch_add(permits.len(), Ordering::Relaxed);
            pending::<()>().await;
        }

        async fn prolong(&self, permits: &[Permit]) -> Option<Nanos> {
            self.prolonged.fetch_add(permits.len(), Ordering::Relaxed);
            *self.left.lock()
        }

        async fn sleep(&self, span: Nanos) {
            self.clock.sleep_async(span).await;
        }
    }

    fn lent(seconds: u64) -> impl Iterator<Item = (Permit, Nanos)> {
        let permit = Permit::new("a", Key::ALL, new_lease());
        [(permit, Nanos::from_secs(seconds))].into_iter()
    }

    async fn pass(far: &Far, seconds: u64) {
        for _ in 0..seconds {
            yield_now().await;
            far.clock.advance(Nanos::SECOND);
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn loans_are_renewed_three_times_a_lease_by_a_task_that_ends_with_them() {
        let far = Arc::new(Far::default());
        let ledger = Ledger::new(Arc::clone(&far));
        assert!(ledger.hold(std::iter::empty()).is_none());
        let held: Vec<_> = (0..100).map(|_| ledger.hold(lent(30))).collect();
        let other = ledger.hold(lent(6));
        let renewed = || far.prolonged.swap(0, Ordering::Relaxed);
        pass(&far, 60).await;
        assert_eq!(renewed(), 100 * 6 + 30);
        drop(other);
        pass(&far, 60).await;
        assert_eq!(renewed(), 100 * 6);
        assert_eq!(ledger.shared.loans.lock().len(), 1);
        drop(held);
        pass(&far, 60).await;
        assert_eq!(renewed(), 0);
        assert!(ledger.shared.loans.lock().is_empty());
        let again = ledger.hold(lent(30));
        pass(&far, 60).await;
        assert_eq!(renewed(), 6);
        drop(again);
    }

    #[tokio::test]
    async fn a_shorter_lease_is_renewed_in_time_while_the_store_fails() {
        let far = Arc::new(Far::default());
        let ledger = Ledger::new(Arc::clone(&far));
        let held = ledger.hold(lent(60));
        *far.left.lock() = Some(Nanos::from_secs(15));
        pass(&far, 20).await;
        assert_eq!(far.prolonged.load(Ordering::Relaxed), 1);
        *far.left.lock() = None;
        pass(&far, 15).await;
        assert_eq!(far.prolonged.load(Ordering::Relaxed), 1 + 3);
        drop(held);
    }

    #[test]
    fn a_runtime_that_ends_harms_nobody() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let ended = runtime.unwrap().handle().clone(); // and it is dropped
        let ledger = Ledger::new(Arc::<Far>::default());
        let _inside = ended.enter();
        drop([ledger.hold(lent(30)), ledger.hold(lent(30))]);
        let tended = |loans: &LoanBatch| loans.tended;
        assert!(!ledger.shared.loans.lock().values().any(tended));
    }

    #[tokio::test]
    async fn no_more_are_on_their_way_back_than_may() {
        let far = Arc::new(Far::default());
        let ledger = Ledger::new(Arc::clone(&far));
        let held: Vec<_> = (0..MAX_RETURNS + 10)
            .map(|_| ledger.hold(lent(30)))
            .collect();
        drop(held);
        for _ in 0..MAX_RETURNS {
            yield_now().await; // every task runs as far as it can
        }
        assert_eq!(far.returning.load(Ordering::Relaxed), MAX_RETURNS);
    }

    #[test]
    fn names_of_leases_differ() {
        let mut names: Vec<_> = (0..1_000).map(|_| *new_lease().as_bytes()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 1_000);
    }
}
