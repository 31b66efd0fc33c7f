//! Desk: the interface between the queue of waiters and any limit.
//!
//! ```text
//!   line:  first | second | ...   --->  desk: Limiter          one limit, one line
//!   line:  first | ...            --->  desk: a key of many    a line for each key
//! ```

use ratekeeper_core::{Decision, LeaseId, Nanos, Permits, Time, Verdict};

use super::line::WaitLine;
use super::{Limiter, LimiterAlgorithm, StateCell};
use crate::Clock;

/// Retry time of requests that are refused because others wait, if nothing better is known.
const LINE_RETRY: Nanos = Nanos::from_millis(1);

/// A limit, and the line before it.
pub(crate) trait Waitable {
    fn line(&self) -> &WaitLine;
    /// Returns the maximum number of waiters, if no more may join the `waiting` present ones.
    fn most_if_full(&self, waiting: usize) -> Option<usize>;
    fn capacity(&self) -> Permits;
    /// Returns true if permits come back when work is done, at unknown moments.
    fn comes_back(&self) -> bool;
    /// See [`Algorithm::at_least`](ratekeeper_core::Algorithm::at_least).
    fn at_least(&self, now: Time, total: Permits) -> Nanos;
    /// Charges `cost` at `at`, if it may pass by `by`; otherwise charges nothing, and returns the
    /// reason.
    fn take(&self, at: Time, cost: Permits, by: Time) -> Verdict;
}

/// A desk of a limit of concurrency, which lends permits to a name.
pub(crate) trait Lends: Waitable {
    /// Lends `cost` permits to `lease`, or none.
    fn lend(&self, now: Time, cost: Permits, lease: LeaseId) -> Verdict;
}

/// A limit of concurrency whose permits are lent to `lease` when the waiter takes them.
pub(crate) struct Lending<D> {
    pub(crate) desk: D,
    pub(crate) lease: LeaseId,
}

impl<D: Lends> Waitable for Lending<D> {
    fn line(&self) -> &WaitLine {
        self.desk.line()
    }

    fn most_if_full(&self, waiting: usize) -> Option<usize> {
        self.desk.most_if_full(waiting)
    }

    fn capacity(&self) -> Permits {
        self.desk.capacity()
    }

    fn comes_back(&self) -> bool {
        true
    }

    fn at_least(&self, now: Time, total: Permits) -> Nanos {
        self.desk.at_least(now, total)
    }

    fn take(&self, at: Time, cost: Permits, _by: Time) -> Verdict {
        self.desk.lend(at, cost, self.lease)
    }
}

/// Returns `cost` in the type of the algorithms; `None` above [`Quota::MAX_PERMITS`], because no
/// limit holds so many.
#[inline]
pub(crate) fn permits(cost: u64) -> Option<Permits> {
    (cost < Permits::MAX.get()).then(|| Permits::new(cost))
}

/// Returns the decision about a cost that no limit can hold, from the state of the limit.
pub(crate) fn never(state: Decision) -> Decision {
    Decision {
        verdict: Verdict::DenyForever,
        ..state
    }
}

/// Returns the decision for callers that do not wait while others do; `look` returns the one about
/// a cost if no other caller waited, and `at_least` the minimum wait behind all of them.
#[cold]
pub(crate) fn behind_the_line(
    look: impl Fn(Permits) -> Decision,
    at_least: impl FnOnce() -> Nanos,
    cost: Permits,
) -> Decision {
    let decision = look(cost);
    if cost == Permits::ZERO || decision.verdict == Verdict::DenyForever {
        return decision;
    }
    let own = decision.verdict.retry_after().unwrap_or(LINE_RETRY);
    let retry_after = own.max(at_least());
    Decision {
        verdict: Verdict::Deny { retry_after },
        remaining: Permits::ZERO,
        reset_after: look(Permits::ZERO).reset_after,
        more_after: retry_after,
    }
}

impl<A: LimiterAlgorithm, C: Clock> Limiter<A, C> {
    /// Returns the decision for a caller that does not wait while others do.
    pub(super) fn behind_the_line(&self, now: Time, cost: Permits) -> Decision {
        let at_least = || (&self).at_least(now, self.line.lock().total_with(cost));
        behind_the_line(|cost| self.look(now, cost), at_least, cost)
    }

    /// Returns the decision about a charge; nothing is charged.
    pub(super) fn look(&self, now: Time, cost: Permits) -> Decision {
        self.place
            .read(|state| self.with(|algorithm| algorithm.look(state, now, cost)))
    }
}

impl<A: LimiterAlgorithm, C: Clock> Waitable for &Limiter<A, C> {
    fn line(&self) -> &WaitLine {
        &self.line
    }

    fn most_if_full(&self, waiting: usize) -> Option<usize> {
        Some(self.most_waiting).filter(|most| waiting >= *most)
    }

    fn capacity(&self) -> Permits {
        self.with(A::capacity)
    }

    fn comes_back(&self) -> bool {
        self.with(A::comes_back)
    }

    fn at_least(&self, now: Time, total: Permits) -> Nanos {
        self.place
            .read(|state| self.with(|algorithm| algorithm.at_least(state, now, total)))
    }

    fn take(&self, at: Time, cost: Permits, by: Time) -> Verdict {
        self.charge(|limit, state| {
            let verdict = limit.look(state, at, cost).verdict;
            let passes = match verdict {
                Verdict::Allow => true,
                Verdict::AllowAfter(wait) => at + wait <= by,
                _ => false,
            };
            if !passes {
                return verdict;
            }
            let _charged = limit.decide(state, at, cost);
            Verdict::Allow
        })
    }
}
