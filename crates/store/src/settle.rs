//! Settle: all charges of a request or none.
//!
//! ```text
//!   judge all --> charge what counts denials --> admitted? --no--> decide denials, show standing
//!                                                    |
//!                                                   yes ---> charge all that are allowed
//! ```
//!
//! This is the definition. The memory store runs it over its locked shards, the Redis store over
//! the states that its script found; `redis/decide.lua` is its twin, which a test compares with
//! it.
//!
//! * A limit that counts denials is charged by every request that reaches it, even if another
//!   limit refuses the request.
//! * A denial is decided in place in either case. It leaves the state as it was, except where the
//!   limit counts denials, or where a clock that was set back made a debt too long: then the debt
//!   is cut now.
//! * Charges of one request that name the same limit and key are judged one upon the other, so
//!   that their sum stays within the bound.
//! * Which charges are asked and made, and whether the request passes, follows from their
//!   [`modes`].
//! * A denial for lack of headroom is not decided in place, because the algorithm would judge the
//!   cost without the headroom, and might allow it.

use std::num::NonZeroU64;

use ratekeeper_core::{Decision, GrantId, Mode, Nanos, Permits, Time, Verdict};
use smallvec::{SmallVec, smallvec};

use crate::act::{ChargeCorrection, GrantAnswer};
use crate::{Decisions, modes};

/// The items of a request, with their states at hand. Items are numbered from 0.
#[expect(
    unnameable_types,
    reason = "sealed: acts run over the stores of this crate"
)]
pub trait RequestStates {
    /// Returns the number of charges.
    fn count(&self) -> usize;
    /// Returns the moment, by the clock of the states.
    fn now(&self) -> Time;
    /// Returns the mark of the charges that were just made, for their receipts.
    fn mark(&self) -> Option<NonZeroU64> {
        None
    }
    /// Returns the mode of a charge.
    fn mode(&self, at: usize) -> Mode;
    /// Returns the cost of a charge.
    fn cost(&self, at: usize) -> Permits;
    /// Returns the last charge before this one with the same limit and key.
    fn earlier(&mut self, at: usize) -> Option<usize>;
    /// Returns true if the charge is made even if the request is refused.
    fn charges_even_if_refused(&self, at: usize) -> bool;
    /// Returns the decision about `cost`; charges nothing.
    fn look(&mut self, at: usize, cost: Permits) -> Decision;
    /// Decides and charges.
    fn charge(&mut self, at: usize) -> Decision;
    /// Gives back a charge that was made, by its receipt if it has one.
    fn give_back(&mut self, at: usize);
    /// Returns how settling corrects the charge of the item.
    fn correction(&self, at: usize) -> ChargeCorrection;
    /// Charges `cost` as far ahead as the limit promises; a denial charges nothing.
    fn owe(&mut self, at: usize, cost: Permits) -> Decision;
    /// Forgets a state; returns true if it owed something.
    fn forget(&mut self, at: usize) -> bool;
    /// Takes back the permits that the item's name holds.
    fn release(&mut self, at: usize) -> Permits;
    /// Restarts the lease of the item's name; returns its length, or `None` if it has ended.
    fn renew(&mut self, at: usize) -> Option<Nanos>;

    /// Bans a key for `span` from now, or lifts its ban if it is zero; returns the decision about
    /// a cost of zero afterwards.
    fn ban(&mut self, at: usize, span: Nanos) -> Decision;

    /// Adds the cost of the item to the balance of its key, unless a grant with this id was made
    /// before.
    fn grant(&mut self, at: usize, id: GrantId) -> GrantAnswer;

    /// Decides and charges the only item, where the store has a shorter way for that; the result
    /// is the same.
    fn decide_alone(&mut self) -> Option<Decision> {
        None
    }
}

type Each = SmallVec<[Decision; 4]>;

/// Returns the answer that [`decide`] would give, with every key as it stands; charges nothing.
pub(crate) fn look(states: &mut impl RequestStates) -> Decisions {
    let (mut each, _) = judge(states);
    let admitted = admitted(states, &each);
    show_standing(states, &mut each);
    Decisions {
        admitted,
        each,
        made: states.now(),
        mark: None,
        without_store: false,
    }
}

/// Charges all that are allowed, or none; and limits that count denials in either case.
#[inline]
pub(crate) fn decide(states: &mut impl RequestStates) -> Decisions {
    if let Some(decision) = states.decide_alone() {
        return Decisions {
            admitted: decision.verdict.allows() || states.mode(0) == Mode::Shadow,
            each: smallvec![decision],
            made: states.now(),
            mark: states.mark(),
            without_store: false,
        };
    }
    decide_all(states)
}

fn decide_all(states: &mut impl RequestStates) -> Decisions {
    let (mut each, spent) = judge(states);
    let counted: SmallVec<[bool; 4]> = (0..each.len())
        .map(|at| is_counted(states, &each, at))
        .collect();
    for at in (0..each.len()).filter(|&at| counted[at]) {
        let judged = each[at].verdict;
        each[at] = states.charge(at);
        if !judged.allows() {
            each[at].verdict = judged;
        }
    }
    let mut admitted = admitted(states, &each);
    for at in (0..each.len()).filter(|&at| !counted[at]) {
        // A charge that is denied only because of an earlier one of this request might be
        // allowed if that one is not made, and must not be charged.
        let is_alone = spent[at] + headroom(states, at) == Permits::ZERO;
        if !each[at].verdict.allows() && is_alone {
            each[at] = states.charge(at);
        }
    }
    if admitted {
        admitted = charge_all(states, &mut each, &counted);
    }
    if !admitted {
        show_standing(states, &mut each);
    }
    Decisions {
        admitted,
        each,
        made: states.now(),
        mark: states.mark(),
        without_store: false,
    }
}

/// Looks at every charge as if those before it to the same limit and key were made. Returns the
/// decisions, and for each the sum of the charges before it. A charge that is not asked allows, and
/// is looked at for nothing.
fn judge(states: &mut impl RequestStates) -> (Each, SmallVec<[Permits; 4]>) {
    let mut each = Each::new();
    let mut spent = SmallVec::<[Permits; 4]>::new();
    for at in 0..states.count() {
        let mut before = Permits::ZERO;
        if let Some(earlier) = states.earlier(at) {
            before = spent[earlier];
            if is_made(states, &each, earlier) || is_counted(states, &each, earlier) {
                before = before + states.cost(earlier);
            }
        }
        each.push(if is_asked(states, &each, at) {
            states.look(at, before + headroom(states, at) + states.cost(at))
        } else {
            Decision {
                verdict: Verdict::Allow,
                ..states.look(at, before)
            }
        });
        spent.push(before);
    }
    (each, spent)
}

/// Makes the charges that are allowed and not made yet. Only a store without memory can still deny
/// one: then the others are given back, and the result is false. (A charge that the algorithm
/// cannot take back stays: less is admitted, never more.)
fn charge_all(states: &mut impl RequestStates, each: &mut Each, counted: &[bool]) -> bool {
    for at in 0..each.len() {
        if counted[at] || !is_made(states, each, at) {
            continue;
        }
        let decision = states.charge(at);
        if decision.verdict.allows() {
            each[at] = decision;
            continue;
        }
        let judged = each.clone();
        modes::deny_rest(each, at, decision, |at| states.mode(at));
        if !admitted(states, each) {
            for made in (0..at).filter(|&made| !counted[made]) {
                if is_made(states, &judged, made) {
                    states.give_back(made);
                }
            }
            return false;
        }
    }
    true
}

/// Charges that were allowed and not made show their key as it stands.
fn show_standing(states: &mut impl RequestStates, each: &mut Each) {
    for (at, decision) in each.iter_mut().enumerate() {
        if decision.verdict.allows() {
            *decision = Decision {
                verdict: decision.verdict,
                ..states.look(at, Permits::ZERO)
            };
        }
    }
}

/// Returns the room that a charge must leave.
fn headroom(states: &impl RequestStates, at: usize) -> Permits {
    match at.checked_sub(1) {
        Some(before) if states.mode(before) == Mode::Headroom => states.cost(before),
        _ => Permits::ZERO,
    }
}

/// Returns true if the charge is made even if the request is refused: never an alternative, a
/// condition, a headroom, or a charge that is excused.
fn is_counted(states: &impl RequestStates, each: &[Decision], at: usize) -> bool {
    let by_itself = matches!(states.mode(at), Mode::Enforce | Mode::Shadow);
    states.charges_even_if_refused(at) && by_itself && is_asked(states, each, at)
}

fn is_asked(states: &impl RequestStates, each: &[Decision], at: usize) -> bool {
    modes::asks(each, at, |at| states.mode(at))
}

fn is_made(states: &impl RequestStates, each: &[Decision], at: usize) -> bool {
    modes::makes(each, at, |at| states.mode(at))
}

fn admitted(states: &impl RequestStates, each: &[Decision]) -> bool {
    modes::admits(each, |at| states.mode(at))
}
