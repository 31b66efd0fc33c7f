//! Receipt: what a charge carries, so that it can be given back later.
//!
//! ```text
//!   made ------ now ------------ paid ----> time      of a bucket, `paid - now` is still unpaid:
//!   |== paid by time ==|== unpaid ==|                 no more than that comes back
//! ```

use core::num::NonZeroU64;
#[cfg(all(target_has_atomic = "64", not(loom)))]
use core::sync::atomic::{AtomicU64, Ordering};

use crate::{Decision, Nanos, Permits, Time};

/// What a charge carries, so that it can be given back later: see
/// [`Refund::give_back`](crate::Refund::give_back).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Receipt {
    /// The moment of the charge, by the clock of its state.
    pub made: Time,
    /// The moment at which time will have paid for it and for all charges before it.
    pub paid: Time,
    /// Permits that came back to the state since, of charges before it; zero if not known.
    pub returned: Permits,
    /// How much sooner time pays for it because of them; [`Nanos::MAX`] if not known. Each time that
    /// some came back may add up to a nanosecond.
    pub sooner: Nanos,
    /// Number by which a store finds the permits that came back since; `None` if it has only the
    /// moment.
    pub mark: Option<NonZeroU64>,
}

impl Receipt {
    /// The receipt of a charge that was allowed by `decision` at `made`.
    pub fn of(decision: &Decision, made: Time) -> Self {
        Self {
            made,
            paid: made + decision.reset_after,
            returned: Permits::ZERO,
            sooner: Nanos::ZERO,
            mark: None,
        }
    }
}

/// The permits given back to a state, counted beside it: shared by threads.
///
/// A state that was given permits back is paid earlier than the receipts of its other charges say.
/// The mark is read before a charge, and the count raised before the state is changed, so that a
/// race makes `returned` too large.
///
/// ```
/// use ratekeeper_core::{Permits, Returns};
/// let returns = Returns::new();
/// let mark = returns.mark();
/// returns.add(Permits::new(3));
/// assert_eq!(returns.since(mark), Some(Permits::new(3)));
/// returns.reset();
/// assert_eq!(returns.since(mark), None);
/// ```
#[cfg(all(target_has_atomic = "64", not(loom)))]
#[derive(Debug, Default)]
pub struct Returns {
    /// Permits given back, and one for each time that the state was forgotten; stays at its maximum.
    count: AtomicU64,
    /// The count at which the state was last forgotten.
    forgotten: AtomicU64,
}

#[cfg(all(target_has_atomic = "64", not(loom)))]
impl Returns {
    /// No permits given back.
    pub const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
        }
    }

    /// Returns the mark of a charge that is made next.
    #[inline]
    pub fn mark(&self) -> u64 {
        self.count.load(Ordering::Acquire) // before the charge
    }

    /// Counts permits that are given back next.
    pub fn add(&self, cost: Permits) {
        self.raise(cost.get()); // before the change of the state
    }

    /// Notes that the state is forgotten.
    pub fn reset(&self) {
        let count = self.raise(1);
        self.forgotten.fetch_max(count, Ordering::AcqRel);
    }

    /// Raises the count, which never wraps; returns it.
    fn raise(&self, by: u64) -> u64 {
        let raised = |count: u64| Some(count.saturating_add(by));
        let order = Ordering::AcqRel;
        let before = self.count.fetch_update(order, Ordering::Acquire, raised);
        before.unwrap_or_default().saturating_add(by) // it is never refused
    }

    /// Returns the permits given back since `mark`; `None` if the state was forgotten since.
    pub fn since(&self, mark: u64) -> Option<Permits> {
        let is_known = mark >= self.forgotten.load(Ordering::Acquire);
        let count = self.mark();
        let returned = count.checked_sub(mark)?; // of another state
        (is_known && count < u64::MAX).then(|| Permits::new(returned))
    }
}
