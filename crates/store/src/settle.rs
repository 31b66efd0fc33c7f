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
//! * A charge and the alternatives after it ([`Mode::Otherwise`]) are a chain. Its charges are asked
//!   in order until one allows, and only that one is made. The chain denies if all of them deny.
//!
//! ```text
//!   chain     enforce   otherwise   otherwise
//!   verdicts  deny      allow       (allow)      the last is not asked, and not charged
//! ```
//!
//! * [`Mode::Once`] is a condition of the charge after it. If the condition denies, that charge is
//!   not asked, and refuses nothing. If it allows, both are charged, or neither.
//! * [`Mode::Headroom`] is never charged. The charge after it is judged as if the headroom had been
//!   charged before. A denial for lack of headroom is not decided in place, because the algorithm
//!   would judge the cost without the headroom, and might allow it.

use ratekeeper_core::{Decision, GrantId, Mode, Nanos, Permits, Verdict};
use smallvec::{SmallVec, smallvec};

use crate::Decisions;
use crate::act::{Correction, GrantAnswer};

/// The items of a request, with their states at hand. Items are numbered from 0.
#[expect(
    unnameable_types,
    reason = "sealed: acts run over the stores of this crate"
)]
pub trait RequestStates {
    /// Returns the number of charges.
    fn count(&self) -> usize;
    /// The mode of a charge.
    fn mode(&self, at: usize) -> Mode;
    /// The cost of a charge.
    fn cost(&self, at: usize) -> Permits;
    /// The last charge before this one with the same limit and key.
    fn earlier(&mut self, at: usize) -> Option<usize>;
    /// Returns true if the charge is made even if the request is refused.
    fn charges_even_if_refused(&self, at: usize) -> bool;
    /// The decision about `cost`; charges nothing.
    fn look(&mut self, at: usize, cost: Permits) -> Decision;
    /// Decides and charges.
    fn charge(&mut self, at: usize) -> Decision;
    /// Gives back a charge that was made.
    fn give_back(&mut self, at: usize);
    /// How settling corrects the charge of the item.
    fn correction(&self, at: usize) -> Correction;
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

impl Decisions {
    /// Returns true if the charge at this index is asked: it is the first of its chain and not
    /// excused, or all before it in the chain deny. Headroom is never asked. `mode` returns the
    /// mode of the charge at an index.
    #[inline]
    pub fn asks(&self, at: usize, mode: impl Fn(usize) -> Mode) -> bool {
        asks(&self.each, at, mode)
    }

    /// Returns true if the charge at this index was made, provided that the request was admitted.
    #[inline]
    pub fn makes(&self, at: usize, mode: impl Fn(usize) -> Mode) -> bool {
        makes(&self.each, at, mode)
    }

    /// Returns the index of the charge that allows in place of the one at this index; `None` if
    /// that one allows itself, or if no alternative allows.
    pub fn covered_by(&self, at: usize, mode: impl Fn(usize) -> Mode) -> Option<usize> {
        let denies = |at: usize| self.each.get(at).is_some_and(|one| !one.verdict.allows());
        let rest = at + 1..self.each.len();
        let mut alternatives = rest.take_while(|&next| mode(next) == Mode::Otherwise);
        if !denies(at) {
            return None;
        }
        alternatives.find(|&next| !denies(next))
    }
}

fn is_asked(charges: &impl RequestStates, each: &[Decision], at: usize) -> bool {
    asks(each, at, |at| charges.mode(at))
}

fn is_made(charges: &impl RequestStates, each: &[Decision], at: usize) -> bool {
    makes(each, at, |at| charges.mode(at))
}

pub(crate) fn makes(each: &[Decision], at: usize, mode: impl Fn(usize) -> Mode) -> bool {
    let allows = |at: usize| each.get(at).is_some_and(|one| one.verdict.allows());
    allows(at) && (mode(at) != Mode::Once || allows(at + 1)) && asks(each, at, mode)
}

pub(crate) fn asks(each: &[Decision], at: usize, mode: impl Fn(usize) -> Mode) -> bool {
    let mut before = (0..at).rev();
    let mut own = mode(at);
    if own == Mode::Headroom {
        return false;
    }
    if own != Mode::Otherwise {
        let excuses = |at: usize| mode(at) == Mode::Once && !each[at].verdict.allows();
        return !before.next().is_some_and(excuses);
    }
    while own == Mode::Otherwise {
        let Some(at) = before.next() else {
            return true; // the first charge of a request
        };
        if each[at].verdict.allows() {
            return false;
        }
        own = mode(at);
    }
    true
}

/// Returns the answer that [`decide`] would give, with every key as it stands; charges nothing.
pub(crate) fn look(charges: &mut impl RequestStates) -> Decisions {
    let (mut each, _) = judge(charges);
    let admitted = admitted(charges, &each);
    show_standing(charges, &mut each);
    Decisions {
        admitted,
        each,
        without_store: false,
    }
}

/// Charges all that are allowed, or none; and limits that count denials in either case.
#[inline]
pub(crate) fn decide(charges: &mut impl RequestStates) -> Decisions {
    if let Some(decision) = charges.decide_alone() {
        return Decisions {
            admitted: decision.verdict.allows() || charges.mode(0) == Mode::Shadow,
            each: smallvec![decision],
            without_store: false,
        };
    }
    decide_all(charges)
}

fn decide_all(charges: &mut impl RequestStates) -> Decisions {
    let (mut each, before) = judge(charges);
    let free: SmallVec<[bool; 4]> = (0..each.len())
        .map(|at| !is_counted(charges, &each, at))
        .collect();
    for at in (0..each.len()).filter(|at| !free[*at]) {
        let judged = each[at].verdict;
        each[at] = charges.charge(at);
        if !judged.allows() {
            each[at].verdict = judged;
        }
    }
    let mut admitted = admitted(charges, &each);
    for at in (0..each.len()).filter(|at| free[*at]) {
        // A charge that is denied only because of an earlier one of this request might be
        // allowed if that one is not made, and must not be charged.
        let is_alone = before[at] + headroom(charges, at) == Permits::ZERO;
        if !each[at].verdict.allows() && is_alone {
            each[at] = charges.charge(at);
        }
    }
    if admitted {
        admitted = charge_all(charges, &mut each, &free);
    }
    if !admitted {
        show_standing(charges, &mut each);
    }
    Decisions {
        admitted,
        each,
        without_store: false,
    }
}

/// Returns true if the charge is made even if the request is refused: never an alternative, a
/// condition, a headroom, or a charge that is excused.
fn is_counted(charges: &impl RequestStates, each: &[Decision], at: usize) -> bool {
    let by_itself = matches!(charges.mode(at), Mode::Enforce | Mode::Shadow);
    charges.charges_even_if_refused(at) && by_itself && is_asked(charges, each, at)
}

/// Returns the room that a charge must leave.
fn headroom(charges: &impl RequestStates, at: usize) -> Permits {
    match at.checked_sub(1) {
        Some(before) if charges.mode(before) == Mode::Headroom => charges.cost(before),
        _ => Permits::ZERO,
    }
}

/// Looks at every charge as if those before it to the same limit and key were made. Returns the
/// decisions and the sum of those charges. A charge that is not asked allows, and is looked at for
/// nothing.
fn judge(charges: &mut impl RequestStates) -> (Each, SmallVec<[Permits; 4]>) {
    let mut each = Each::new();
    let mut before = SmallVec::<[Permits; 4]>::new();
    for at in 0..charges.count() {
        let mut spent = Permits::ZERO;
        if let Some(earlier) = charges.earlier(at) {
            spent = before[earlier];
            if is_made(charges, &each, earlier) || is_counted(charges, &each, earlier) {
                spent = spent + charges.cost(earlier);
            }
        }
        each.push(if is_asked(charges, &each, at) {
            charges.look(at, spent + headroom(charges, at) + charges.cost(at))
        } else {
            Decision {
                verdict: Verdict::Allow,
                ..charges.look(at, spent)
            }
        });
        before.push(spent);
    }
    (each, before)
}

fn admitted(charges: &impl RequestStates, each: &[Decision]) -> bool {
    admits(each, |at| charges.mode(at))
}

/// Returns true if no enforcing chain denies, with all of its charges.
pub(crate) fn admits(each: &[Decision], mode: impl Fn(usize) -> Mode) -> bool {
    let (mut passes, mut others_pass) = (true, true);
    for (at, decision) in each.iter().enumerate() {
        let denies = !decision.verdict.allows();
        match mode(at) {
            Mode::Enforce => {
                others_pass = passes;
                passes &= !denies;
            }
            Mode::Shadow => others_pass = passes,
            Mode::Otherwise if at == 0 => passes = !denies,
            // After the first charge that allows, the others of a chain change nothing.
            Mode::Otherwise if !denies => passes = others_pass,
            Mode::Otherwise | Mode::Once | Mode::Headroom => {}
        }
    }
    passes
}

/// Makes the charges that are allowed. Only a store without memory can still deny one: then the
/// others are given back, and the result is false. (A charge that the algorithm cannot take back
/// stays: less is admitted, never more.)
fn charge_all(charges: &mut impl RequestStates, each: &mut Each, free: &[bool]) -> bool {
    for at in 0..each.len() {
        if !free[at] || !is_made(charges, each, at) {
            continue;
        }
        let decision = charges.charge(at);
        if decision.verdict.allows() {
            each[at] = decision;
            continue;
        }
        let judged = each.clone();
        deny_rest(each, at, decision, |at| charges.mode(at));
        if !admitted(charges, each) {
            for made in (0..at).filter(|made| free[*made]) {
                if is_made(charges, &judged, made) {
                    charges.give_back(made);
                }
            }
            return false;
        }
    }
    true
}

/// Denies a charge that was judged to be allowed, and with it the rest of its chain, which was not
/// judged, or the charge of which it is the condition.
pub(crate) fn deny_rest(
    each: &mut [Decision],
    at: usize,
    decision: Decision,
    mode: impl Fn(usize) -> Mode,
) {
    let rest = (at + 1..each.len()).take_while(|&next| mode(next) == Mode::Otherwise);
    let condition = (mode(at) == Mode::Once && at + 1 < each.len()).then_some(at + 1);
    let end = rest.last().or(condition).unwrap_or(at);
    each[at..=end].fill(decision);
}

/// Charges that were allowed and not made show their key as it stands.
fn show_standing(charges: &mut impl RequestStates, each: &mut Each) {
    for (at, decision) in each.iter_mut().enumerate() {
        if decision.verdict.allows() {
            *decision = Decision {
                verdict: decision.verdict,
                ..charges.look(at, Permits::ZERO)
            };
        }
    }
}
