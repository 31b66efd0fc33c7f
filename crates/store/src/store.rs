//! Store: keeps the states of limits and decides all charges of a request, or none.

use std::fmt;
use std::future::Future;
use std::num::NonZeroU64;

use ratekeeper_core::{
    Charge, Decision, GrantId, Lend, Limit, Nanos, Origin, Permits, Receipt, Time,
};
use smallvec::SmallVec;

use crate::act::{
    Ban, ChargeOrigin, Decide, GiveBack, Grant, GrantAnswer, Hold, Look, Release, Renew, Reset,
    Settle, Settled, StoreAct,
};

/// The decisions of one request, one for each charge, in the order of the charges.
///
/// If `admitted`, every charge with a decision that allows has been charged. If not, none has,
/// except under limits that count denials: then `remaining` and `reset_after` of the charges that
/// would have passed show the state as it now stands.
#[must_use = "decisions limit nothing unless the caller acts on them"]
#[derive(Clone, Default)]
pub struct Decisions {
    /// True if no enforcing limit denied.
    pub admitted: bool,
    /// One decision for each charge.
    pub each: SmallVec<[Decision; 4]>,
    /// The moment of the decisions, by the clock of the store.
    pub made: Time,
    /// The [`mark`](Receipt::mark) of the charges.
    pub mark: Option<NonZeroU64>,
    /// True if the store could not be asked, so that each limit decided by its
    /// [`Outage`](ratekeeper_core::Outage).
    pub without_store: bool,
}

/// Decisions are equal if the same was decided, whatever marks their stores have reached.
impl PartialEq for Decisions {
    fn eq(&self, other: &Self) -> bool {
        let facts = |it: &Self| (it.admitted, it.made, it.without_store);
        facts(self) == facts(other) && self.each == other.each
    }
}

impl Eq for Decisions {}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decisions")
            .field("admitted", &self.admitted)
            .field("each", &self.each)
            .field("made", &self.made)
            .field("without_store", &self.without_store)
            .finish_non_exhaustive()
    }
}

impl Decisions {
    /// Returns where and when the charge at `index` was made, to settle it later; `None` if there
    /// is none.
    pub fn origin(&self, index: usize) -> Option<ChargeOrigin> {
        let receipt = Receipt {
            mark: self.mark,
            ..Receipt::of(self.each.get(index)?, self.made)
        };
        Some(if self.without_store {
            ChargeOrigin::Outage(receipt)
        } else {
            ChargeOrigin::Store(receipt)
        })
    }
}

/// A call of a store: the future of its answer.
pub trait StoreCall<T>: Future<Output = Result<T, StoreError>> + Send {}

impl<T, F: Future<Output = Result<T, StoreError>> + Send> StoreCall<T> for F {}

/// Holds the states of limits, and decides by them.
///
/// All charges of a request are made together, or none is: a request passes if every charge in
/// mode enforce allows. A shadow charge that denies is not made, and vetoes nothing. A limit that
/// counts denials is charged by every request that reaches it, even if it or another limit
/// denies, so that a charge for finished work is not lost. Charges of one request that name the
/// same limit and key are judged one upon the other, in their order.
///
/// Charges of a concurrency limit are loans: [`Store::decide`] lends without a name, and
/// [`Store::refund`] takes back; [`Store::acquire`] lends to a name, and [`Store::release`] takes
/// back from it. Where such a limit counts denials, a loan without a name is made even if another
/// limit refuses, because it will be given back.
///
/// A store implements [`Store::settle`]; the other calls are its acts by name.
pub trait Store: Send + Sync {
    /// Returns true if every answer is ready at once, as with a store in memory. Callers that
    /// cannot wait then need no helper that waits for them.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Sets the origin that all moments count from, the zero of the callers' clock; for a store
    /// that keeps states by another clock. Must be called before any other method.
    fn set_origin(&self, _origin: Origin) {}

    /// Takes over the numbers of limits that were changed, so that all keys in this process keep the
    /// usage that they have now by the old ones.
    fn adopt<'l>(&self, _limits: &(impl Iterator<Item = &'l Limit> + Clone), _now: Time) {}

    /// Performs an act on the states of a request's items; the act gives the type of the answer.
    fn settle<A: StoreAct>(
        &self,
        act: A,
        items: &[A::Item<'_>],
        now: Time,
    ) -> impl StoreCall<A::Answer>;

    /// Decides and charges.
    fn decide(&self, charges: &[Charge<'_>], now: Time) -> impl StoreCall<Decisions> {
        self.settle(Decide(Lend::Unnamed), charges, now)
    }

    /// As [`Store::decide`]; concurrency limits lend as `lend` says.
    fn acquire(&self, charges: &[Charge<'_>], lend: Lend, now: Time) -> impl StoreCall<Decisions> {
        self.settle(Decide(lend), charges, now)
    }

    /// Returns the decisions that [`Store::decide`] would make; charges nothing, so `remaining`
    /// and `reset_after` show every state as it stands.
    fn look(&self, charges: &[Charge<'_>], now: Time) -> impl StoreCall<Decisions> {
        self.settle(Look, charges, now)
    }

    /// Gives costs as a gift, see [`GiveBack`]: all of them, or none and an error.
    fn refund(&self, charges: &[Charge<'_>], now: Time) -> impl StoreCall<()> {
        self.settle(GiveBack, charges, now)
    }

    /// Corrects charges that were made as estimates to the actual costs of their work; see
    /// [`Settle`]. Keys in several slots of a cluster are corrected one slot after the other.
    fn correct(&self, settled: &[Settled<'_>], now: Time) -> impl StoreCall<()> {
        self.settle(Settle, settled, now)
    }

    /// Forgets the states of these limits and keys; returns true for each that had one.
    fn reset(&self, charges: &[Charge<'_>], now: Time) -> impl StoreCall<SmallVec<[bool; 4]>> {
        self.settle(Reset, charges, now)
    }

    /// Bans these keys for `span` from now, in place of bans that stand; zero lifts their bans.
    /// Returns the decisions about a cost of zero that now stand.
    fn ban(
        &self,
        charges: &[Charge<'_>],
        span: Nanos,
        now: Time,
    ) -> impl StoreCall<SmallVec<[Decision; 4]>> {
        self.settle(Ban(span), charges, now)
    }

    /// Adds the cost of each charge to the balance of its key, unless a grant with this id was
    /// made to the key before; returns the credits added and the balances.
    fn grant(
        &self,
        charges: &[Charge<'_>],
        id: GrantId,
        now: Time,
    ) -> impl StoreCall<SmallVec<[GrantAnswer; 4]>> {
        self.settle(Grant(id), charges, now)
    }

    /// Takes back the permits that these names hold, each on its own; returns for each the number
    /// of permits that came back: 0 if it was released before, or has ended.
    fn release(&self, holds: &[Hold<'_>], now: Time) -> impl StoreCall<SmallVec<[Permits; 4]>> {
        self.settle(Release, holds, now)
    }

    /// Restarts the leases of these names at full length from `now`, each on its own; returns the
    /// length of each, or `None` if it was released, or has ended.
    fn renew(&self, holds: &[Hold<'_>], now: Time) -> impl StoreCall<SmallVec<[Option<Nanos>; 4]>> {
        self.settle(Renew, holds, now)
    }
}

/// Why a store could not answer. The memory store always can.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or did not answer in time; trying later may help.
    Unavailable(String),
    /// The part of the store that holds these keys cannot be reached, did not answer in time, or
    /// does not decide (it is out of memory); others do. Trying later may help.
    Partly(String),
    /// The store is in use, but too many requests of these keys were before this one: nothing was
    /// done. A request that waits for a decision must be refused, because deciding it elsewhere would
    /// admit too much.
    Crowded,
    /// The store cannot be used as configured; trying later does not help.
    Misconfigured(String),
    /// The store answers, but a key of this request holds a value that this library did not
    /// write. Other keys are not concerned.
    Foreign(String),
    /// A limit of this request does not support the call, in any store: nothing was done.
    Unsupported(String),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "the store is unavailable: {why}"),
            Self::Partly(why) => write!(f, "a part of the store is unavailable: {why}"),
            Self::Crowded => f.write_str("too many requests of these keys were first"),
            Self::Misconfigured(why) => write!(f, "the store is misconfigured: {why}"),
            Self::Foreign(why) => write!(f, "the store holds a foreign value: {why}"),
            Self::Unsupported(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreError {}
