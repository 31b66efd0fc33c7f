//! Store: keeps the states of limits and decides all charges of a request, or none.

use std::fmt;
use std::future::Future;

use ratekeeper_core::{
    Call, Charge, Decision, Key, LeaseId, Lend, Limit, Mode, Nanos, Origin, Permits, Time,
};
use smallvec::SmallVec;

/// The decisions of one request, one for each charge, in the order of the charges.
///
/// If `admitted`, every charge whose own decision allows has been charged. If not, none has,
/// except under limits that count denials: then `remaining` and `reset_after` of the charges
/// that would have passed show the state as it now stands.
#[must_use = "a decision nobody reads limits nothing"]
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decisions {
    /// No enforcing limit denied.
    pub admitted: bool,
    /// One for each charge.
    pub each: SmallVec<[Decision; 4]>,
}

/// Permits on loan, by the name they were lent to.
#[derive(Clone, Copy, Debug)]
pub struct Hold<'a> {
    /// The limit that lent them.
    pub limit: &'a Limit,
    /// Whose permits they are.
    pub key: Key<'a>,
    /// The name.
    pub lease: LeaseId,
}

impl<'a> Hold<'a> {
    /// A charge of nothing to the same limit and key.
    pub(crate) const fn free(&self) -> Charge<'a> {
        Charge {
            limit: self.limit,
            key: self.key,
            cost: Permits::ZERO,
            mode: Mode::Enforce,
        }
    }
}

/// Where states live.
///
/// All charges of a request are made together, or none is: a request passes if every charge
/// in mode enforce allows. A shadow charge that denies is not made, and vetoes nothing.
/// A limit that counts denials is charged by every request that reaches it, whether it denies
/// itself, another limit refuses, or nobody does: a charge for what has been done is not lost.
/// Charges of one request that name the same limit and key are judged one upon the other, in
/// their order.
///
/// What a limit of concurrency is charged is on loan: [`Store::decide`] lends to nobody in
/// particular, and [`Store::refund`] takes back; [`Store::acquire`] lends to a name, and
/// [`Store::release`] takes back from it. Where such a limit counts denials, what is lent to
/// nobody in particular is lent although another limit refuses: it will be given back.
pub trait Store: Send + Sync {
    /// Whether every answer is ready at once, as that of a store in memory is. Callers that
    /// cannot wait then need nobody who waits for them.
    fn answers_at_once(&self) -> bool {
        false
    }

    /// Has all moments count from `origin`, where the zero of the callers' clock lies; for a
    /// store that keeps states by another clock. To be called before anything is asked.
    fn set_origin(&self, _origin: Origin) {}

    /// Decides and charges.
    fn decide(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// As [`Store::decide`], with limits of concurrency lending as `lend` says.
    fn acquire(
        &self,
        charges: &[Charge<'_>],
        lend: Lend,
        now: Time,
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// Says what [`Store::decide`] would say; charges nothing, so `remaining` and `reset_after`
    /// show every state as it stands.
    fn look(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send;

    /// Gives back costs that were charged and not used: all of them, or none and an error.
    fn refund(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Forgets the states of these limits and keys; says of each whether there was one.
    fn reset(
        &self,
        charges: &[Charge<'_>],
        now: Time,
    ) -> impl Future<Output = Result<SmallVec<[bool; 4]>, StoreError>> + Send;

    /// Takes back what these names hold, each on its own; says of each how many permits came
    /// back: none if it was released before, or has ended.
    fn release(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> impl Future<Output = Result<SmallVec<[Permits; 4]>, StoreError>> + Send;

    /// Lets the leases of these names run their full length from `now`, each on its own; says
    /// of each how long that is, unless it was released, or has ended.
    fn renew(
        &self,
        holds: &[Hold<'_>],
        now: Time,
    ) -> impl Future<Output = Result<SmallVec<[Option<Nanos>; 4]>, StoreError>> + Send;
}

/// Why a store could not answer. The memory store always can.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// Cannot be reached, or did not answer in time; trying later may help.
    Unavailable(String),
    /// The part of it that holds these keys cannot be reached, did not answer in time, or does
    /// not decide (it is out of memory); others do. Trying later may help.
    Partly(String),
    /// Cannot be used as it was told; trying later does not help.
    Misconfigured(String),
    /// It answers, but a key of this request holds what none of ours wrote. Other keys are
    /// not concerned.
    Foreign(String),
    /// A limit of this request cannot do what was asked, in any store: nothing was done.
    Unsupported(String),
}

/// Refuses a refund that one of these limits cannot make, before any is made.
///
/// # Errors
/// [`StoreError::Unsupported`].
pub(crate) fn can_refund(charges: &[Charge<'_>]) -> Result<(), StoreError> {
    for Charge { limit, cost, .. } in charges {
        if *cost == Permits::ZERO {
            continue; // there is nothing to give back
        }
        if let Err(unsupported) = limit.algorithm.supports(Call::Refund) {
            let why = format!("the limit `{}`: {unsupported}", limit.name);
            return Err(StoreError::Unsupported(why));
        }
    }
    Ok(())
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unavailable(why) => write!(f, "the store is unavailable: {why}"),
            Self::Partly(why) => write!(f, "a part of the store is unavailable: {why}"),
            Self::Misconfigured(why) => write!(f, "the store is misconfigured: {why}"),
            Self::Foreign(why) => write!(f, "the store holds a value that is not ours: {why}"),
            Self::Unsupported(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for StoreError {}
