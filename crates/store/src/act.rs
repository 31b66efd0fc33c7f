//! Act: one thing that a store does with the states of a request, and the type of its answer.
//!
//! ```text
//!   Decide     judge all, charge all or none   -> Decisions
//!   Look       judge all, charge nothing       -> Decisions
//!   GiveBack   give back charges               -> ()
//!   Settle     correct charges to actual costs -> ()
//!   Reset      forget the states               -> had one? for each
//!   Release    take back a name's permits      -> permits, for each
//!   Renew      restart a name's lease          -> its length, for each
//!   Ban        ban keys, or lift their bans    -> the decisions that now stand
//!   Grant      add credits to balances         -> added, and the balance, for each
//! ```
//!
//! An act is written once, over [`RequestStates`]: the memory store gives it locked shards, the
//! Redis store the values that its script found.

#![expect(
    unnameable_types,
    reason = "sealed: callers choose an act and write none"
)]

mod answer;
mod ban;
mod grant;
mod item;

use std::fmt::Debug;

use ratekeeper_core::{Call, Charge, GrantId, Lend, Nanos, Permits};
use smallvec::SmallVec;

use crate::settle::{self, RequestStates};
use crate::{Decisions, StoreError};
pub use answer::ActAnswer;
#[cfg(feature = "redis")]
pub(crate) use answer::AnyAnswer;
pub use ban::Ban;
pub use grant::{Grant, GrantAnswer};
pub(crate) use item::ChargeCorrection;
pub use item::{ActItem, ActualCost, ChargeOrigin, Hold, Settled};

/// One thing that a store does with the states of a request: [`Decide`], [`Look`], [`GiveBack`],
/// [`Settle`], [`Reset`], [`Release`],
/// [`Renew`], [`Ban`] or [`Grant`].
#[cfg(feature = "redis")]
pub trait StoreAct: Act + crate::fallback::FallbackAct {}
#[cfg(feature = "redis")]
impl<A: Act + crate::fallback::FallbackAct> StoreAct for A {}

/// One thing that a store does with the states of a request: [`Decide`], [`Look`], [`GiveBack`],
/// [`Settle`], [`Reset`], [`Release`],
/// [`Renew`], [`Ban`] or [`Grant`].
#[cfg(not(feature = "redis"))]
pub trait StoreAct: Act {}
#[cfg(not(feature = "redis"))]
impl<A: Act> StoreAct for A {}

/// The definition of an act.
pub trait Act: Copy + Debug + Send + Sync + 'static {
    /// One item of the request: a [`Charge`], a [`Settled`] charge, or a [`Hold`].
    type Item<'a>: ActItem<'a>;
    /// The answer of the act.
    type Answer: ActAnswer;

    /// Returns the act among all acts.
    fn kind(self) -> ActKind;

    /// Performs the act on the states of a request.
    fn run(self, states: &mut impl RequestStates) -> Self::Answer;

    /// Checks that all limits support the act.
    ///
    /// # Errors
    /// [`StoreError::Unsupported`] if one of them does not.
    fn check(self, _items: &[Self::Item<'_>]) -> Result<(), StoreError> {
        Ok(())
    }
}

/// An act among all acts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ActKind {
    /// [`Decide`].
    Decide(Lend),
    /// [`Look`].
    Look,
    /// [`GiveBack`].
    GiveBack,
    /// [`Settle`].
    Settle,
    /// [`Reset`].
    Reset,
    /// Like a reset, but leaves no mark.
    #[doc(hidden)]
    Erase,
    /// [`Release`].
    Release,
    /// [`Renew`].
    Renew,
    /// [`Ban`].
    Ban(Nanos),
    /// [`Grant`].
    Grant(GrantId),
}

impl ActKind {
    /// The names of all acts, as metrics and traces have them.
    pub const NAMES: [&'static str; 9] = [
        "decide",
        "look",
        "give-back",
        "settle",
        "reset",
        "release",
        "renew",
        "ban",
        "grant",
    ];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// Returns the place of its name.
    pub(crate) const fn index(self) -> usize {
        match self {
            Self::Decide(_) => 0,
            Self::Look => 1,
            Self::GiveBack => 2,
            Self::Settle => 3,
            Self::Reset | Self::Erase => 4,
            Self::Release => 5,
            Self::Renew => 6,
            Self::Ban(_) => 7,
            Self::Grant(_) => 8,
        }
    }

    /// Performs the act on the states of a request.
    #[cfg(feature = "redis")]
    #[expect(clippy::unit_arg, reason = "two acts answer nothing")]
    pub(crate) fn run(self, states: &mut impl RequestStates) -> AnyAnswer {
        match self {
            Self::Decide(lend) => Decide(lend).run(states).into(),
            Self::Look => Look.run(states).into(),
            Self::GiveBack => AnyAnswer::Nothing(GiveBack.run(states)),
            Self::Settle => AnyAnswer::Nothing(Settle.run(states)),
            Self::Reset | Self::Erase => Reset.run(states).into(),
            Self::Release => Release.run(states).into(),
            Self::Renew => Renew.run(states).into(),
            Self::Ban(span) => Ban(span).run(states).into(),
            Self::Grant(id) => Grant(id).run(states).into(),
        }
    }

    /// Returns how limits of concurrency lend under this act.
    pub(crate) const fn lend(self) -> Lend {
        match self {
            Self::Decide(lend) => lend,
            Self::GiveBack => Lend::Unnamed,
            _ => Lend::Nothing,
        }
    }
}

/// Decides and charges, all or none; limits of concurrency lend as the value says.
#[derive(Clone, Copy, Debug)]
pub struct Decide(pub Lend);

impl Act for Decide {
    type Item<'a> = Charge<'a>;
    type Answer = Decisions;

    fn kind(self) -> ActKind {
        ActKind::Decide(self.0)
    }

    #[inline]
    fn run(self, states: &mut impl RequestStates) -> Decisions {
        settle::decide(states)
    }
}

/// Judges as [`Decide`] would; charges nothing.
#[derive(Clone, Copy, Debug)]
pub struct Look;

impl Act for Look {
    type Item<'a> = Charge<'a>;
    type Answer = Decisions;

    fn kind(self) -> ActKind {
        ActKind::Look
    }

    fn run(self, states: &mut impl RequestStates) -> Decisions {
        settle::look(states)
    }
}

/// Gives permits to keys as a gift, as far as they have used some. Charges that were made and not
/// used are given back by [`Settle`], which knows when they were made.
#[derive(Clone, Copy, Debug)]
pub struct GiveBack;

impl Act for GiveBack {
    type Item<'a> = Charge<'a>;
    type Answer = ();

    fn kind(self) -> ActKind {
        ActKind::GiveBack
    }

    fn run(self, states: &mut impl RequestStates) {
        (0..states.count()).for_each(|at| states.give_back(at));
    }

    fn check(self, charges: &[Self::Item<'_>]) -> Result<(), StoreError> {
        charges.iter().try_for_each(takes_back)
    }
}

/// Checks that the limit of the charge supports refunds, unless the charge is nothing.
fn takes_back(charge: &Charge<'_>) -> Result<(), StoreError> {
    match charge.cost {
        Permits::ZERO => Ok(()),
        _ => supports(charge, Call::Refund),
    }
}

/// Checks that the limit of the charge supports a call.
fn supports(charge: &Charge<'_>, call: Call) -> Result<(), StoreError> {
    let limit = charge.limit;
    limit.algorithm.supports(call).map_err(|why| {
        let why = format!("the limit `{}`: {why}", limit.name);
        StoreError::Unsupported(why)
    })
}

/// Corrects charges to the actual costs of their work: the rest is given back, as far as time has
/// not paid for it ([`Refund::give_back`](ratekeeper_core::Refund::give_back)), the excess is
/// charged even beyond the limit, and keys that begin anew are reset. Limits with patience (token
/// bucket, leaky bucket) owe the excess as far ahead as they promise; the others charge what they
/// still have, and the excess beyond is forgiven.
#[derive(Clone, Copy, Debug)]
pub struct Settle;

impl Act for Settle {
    type Item<'a> = Settled<'a>;
    type Answer = ();

    fn kind(self) -> ActKind {
        ActKind::Settle
    }

    fn run(self, states: &mut impl RequestStates) {
        for at in 0..states.count() {
            match states.correction(at) {
                ChargeCorrection::GiveBack => states.give_back(at),
                ChargeCorrection::Keep => {}
                ChargeCorrection::Owe => owe(states, at),
                // A report lifts no ban: only the operator does.
                ChargeCorrection::Reset if states.look(at, Permits::ZERO).verdict.is_ban() => {}
                ChargeCorrection::Reset => {
                    states.forget(at);
                }
            }
        }
    }

    fn check(self, items: &[Self::Item<'_>]) -> Result<(), StoreError> {
        items.iter().try_for_each(|item| {
            let limit = item.charge.limit;
            let is_unused = item.used == ActualCost::Permits(Permits::ZERO);
            if limit.algorithm.concurrency().is_some() && !is_unused {
                let why = format!(
                    "the limit `{}` lends permits, which are released and not settled",
                    limit.name
                );
                return Err(StoreError::Unsupported(why));
            }
            match item.used {
                ActualCost::Permits(_) => takes_back(&item.charge),
                ActualCost::Reset => Ok(()),
            }
        })
    }
}

/// Charges the item even beyond its limit, or as much as the limit can owe.
fn owe(states: &mut impl RequestStates, at: usize) {
    let owed = states.owe(at, states.cost(at));
    if !owed.verdict.allows() {
        let _most = states.owe(at, owed.remaining);
    }
}

/// Forgets the states of limits and keys.
#[derive(Clone, Copy, Debug)]
pub struct Reset;

impl Act for Reset {
    type Item<'a> = Charge<'a>;
    type Answer = SmallVec<[bool; 4]>;

    fn kind(self) -> ActKind {
        ActKind::Reset
    }

    fn run(self, states: &mut impl RequestStates) -> Self::Answer {
        (0..states.count()).map(|at| states.forget(at)).collect()
    }
}

/// Takes back the permits that names hold.
#[derive(Clone, Copy, Debug)]
pub struct Release;

impl Act for Release {
    type Item<'a> = Hold<'a>;
    type Answer = SmallVec<[Permits; 4]>;

    fn kind(self) -> ActKind {
        ActKind::Release
    }

    fn run(self, states: &mut impl RequestStates) -> Self::Answer {
        (0..states.count()).map(|at| states.release(at)).collect()
    }
}

/// Restarts the leases of names at full length.
#[derive(Clone, Copy, Debug)]
pub struct Renew;

impl Act for Renew {
    type Item<'a> = Hold<'a>;
    type Answer = SmallVec<[Option<Nanos>; 4]>;

    fn kind(self) -> ActKind {
        ActKind::Renew
    }

    fn run(self, states: &mut impl RequestStates) -> Self::Answer {
        (0..states.count()).map(|at| states.renew(at)).collect()
    }
}
